"""Reading a spool beside the shim that writes it: nothing in it is damaged only because it grows."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.keep import AgentFolder, Generation, SpoolCorruptError, SpoolReader, frames, layout, reader
from outlast.keep.reader import OutputChunk
from outlast.keep.spool import Spool

FRAMES = 1500
WRITER = f"""
import os, sys, time
from outlast.keep import frames
from outlast.keep.spool import Spool
spool = Spool(os.open(sys.argv[1], os.O_RDONLY), "boot")
spool.careful = False
for n in range({FRAMES}):
    spool.append(frames.OUTPUT, b"%08d" % n * 8)
    following = time.perf_counter() + 150e-6
    while time.perf_counter() < following:
        pass
"""


@pytest.fixture
def generation(tmp_path: Path) -> Generation:
    generation = AgentFolder.create(tmp_path / "agent").generation(1)
    generation.path.mkdir()
    return generation


@pytest.fixture
def spool(generation: Generation) -> Iterator[Spool]:
    fd = os.open(generation.path, os.O_RDONLY | os.O_DIRECTORY)
    yield Spool(fd, "boot")
    os.close(fd)


class Watched(io.FileIO):
    """A segment file that lets somebody else act when its end has been read."""

    def __init__(self, path: Path, *acts: Callable[[], Any]) -> None:
        super().__init__(path, "rb")
        self._acts = list(acts)

    def read(self, size: int | None = -1, /) -> bytes:
        got = super().read(-1 if size is None else size)
        if not got and self._acts:
            self._acts.pop(0)()
        return got or b""


def payloads(generation: Generation, *acts: Callable[[], Any]) -> list[bytes]:
    """What is read while each of `acts` happens right behind an end of file."""
    path = generation.path / os.fsdecode(layout.segment_name(0))
    with Watched(path, *acts) as file:
        found = list(reader._segment(file, 0, 0))
    return [frame.payload for frame, _ in found if frame.type == frames.OUTPUT]


def test_a_frame_that_comes_behind_the_end_that_was_read_is_no_damage(
    generation: Generation, spool: Spool
) -> None:
    spool.append(frames.OUTPUT, b"one")
    assert payloads(generation, lambda: spool.append(frames.OUTPUT, b"two")) == [b"one"]
    assert payloads(generation) == [b"one", b"two"]


def test_half_a_frame_that_is_completed_behind_the_end_that_was_read_is_no_damage(
    generation: Generation, spool: Spool
) -> None:
    spool.append(frames.OUTPUT, b"one")
    path = generation.path / os.fsdecode(layout.segment_name(0))
    whole = frames.encode(frames.OUTPUT, b"two")
    for cut in range(1, len(whole)):
        size = path.stat().st_size

        def put(part: bytes) -> None:
            with path.open("ab") as file:
                file.write(part)

        put(whole[:cut])
        assert payloads(generation, lambda: put(whole[cut:])) == [b"one"], cut  # noqa: B023 - called here
        assert payloads(generation) == [b"one", b"two"], cut
        os.truncate(path, size)


def test_what_was_written_over_while_it_was_read_is_read_again(generation: Generation, spool: Spool) -> None:
    """A shim takes back the half of a frame that its disk took, and puts another one there."""
    spool.append(frames.OUTPUT, b"one")
    end = spool.tip
    path = generation.path / os.fsdecode(layout.segment_name(0))
    with path.open("ab") as file:
        file.write(frames.encode(frames.OUTPUT, b"x" * 300)[:100])

    class Replaced(io.FileIO):
        fresh = True

        def read(self, size: int | None = -1, /) -> bytes:
            got = super().read(-1 if size is None else size)
            if self.fresh and got:
                self.fresh = False
                os.truncate(path, end)
                spool.append(frames.OUTPUT, b"y" * 400)
            return got or b""

    with Replaced(path, "rb") as segment:
        found = [frame.payload for frame, _ in reader._segment(segment, 0, 0)]
    assert found[1:] == [b"one", b"y" * 400]


def test_damage_in_a_spool_that_grows_is_still_damage(generation: Generation, spool: Spool) -> None:
    at = spool.tip
    spool.append(frames.OUTPUT, b"damaged")
    path = generation.path / os.fsdecode(layout.segment_name(0))
    with path.open("r+b") as file:
        file.seek(at + frames.HEADER_SIZE)
        file.write(b"D")
    grow = [lambda: spool.append(frames.OUTPUT, b"more")] * 50
    with pytest.raises(SpoolCorruptError):
        payloads(generation, *grow)


def test_a_reader_beside_a_writing_process_reads_every_frame_once(generation: Generation) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(generation.path)])
    try:
        follower, told = SpoolReader(generation, 0), b""
        ended = False
        while not ended:
            ended = writer.poll() is not None
            told += b"".join(frame.data for frame in follower.frames() if isinstance(frame, OutputChunk))
    finally:
        writer.kill()
        writer.wait()
    assert writer.returncode == 0
    assert told == b"".join(b"%08d" % n * 8 for n in range(FRAMES))
