"""The spool: what the shim appends is what every reader sees, and damage is said, never skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.keep import (
    AgentFolder,
    Generation,
    SpoolCorruptError,
    SpoolGapError,
    SpoolReader,
    frames,
    layout,
    points,
)
from outlast.keep.facts import look
from outlast.keep.fields import pack
from outlast.keep.reader import Head, InputLine, OutputChunk, SpoolFrame, Void, Written
from outlast.keep.spool import DiskRefused, Spool


class SpoolMade:
    """A generation's folder and the spool in it."""

    def __init__(self, path: Path) -> None:
        self.generation: Generation = AgentFolder.create(path).generation(1)
        self.generation.path.mkdir()
        self._fd = os.open(self.generation.path, os.O_RDONLY | os.O_DIRECTORY)
        self.spool = Spool(self._fd, "boot")

    def read(self, after: int = 0) -> list[SpoolFrame]:
        return list(SpoolReader(self.generation).frames(after))

    def output(self, after: int = 0) -> bytes:
        return b"".join(frame.data for frame in self.read(after) if isinstance(frame, OutputChunk))

    def file(self, base: int = 0) -> Path:
        return self.generation.path / os.fsdecode(layout.segment_name(base))

    def input(self, seq: int, *parts: bytes) -> None:
        for n, part in enumerate(parts):
            flags = (frames.FIRST if n == 0 else 0) | (frames.MORE if n < len(parts) - 1 else 0)
            self.spool.append(frames.INPUT, part, flags=flags, seq=seq)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[SpoolMade]:
    made = SpoolMade(tmp_path / "agent folder ?#é")
    yield made
    made.close()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int | None, str]]:
    plan: dict[str, tuple[int | None, str]] = {}
    monkeypatch.setattr(points, "_plan", plan)
    monkeypatch.setattr(points, "_passed", {})
    return plan


def test_both_directions_come_back_in_one_order(made: SpoolMade) -> None:
    made.spool.append(frames.OUTPUT, b"hello ")
    made.input(1, b'{"a"', b":1}\n")
    made.spool.note(frames.WRITTEN, seq=1)
    made.spool.append(frames.OUTPUT, b"\xff\xfe")
    found = made.read()
    assert [type(frame) for frame in found] == [Head, OutputChunk, InputLine, Written, OutputChunk]
    assert isinstance(found[2], InputLine)
    assert (found[2].seq, found[2].line) == (1, b'{"a":1}\n')
    assert found[4].stdout == 6
    assert found[-1].end == made.spool.tip


def test_reading_goes_on_from_any_frames_end(made: SpoolMade) -> None:
    for n in range(20):
        made.spool.append(frames.OUTPUT, b"%d," % n)
    whole = made.read()
    for n, frame in enumerate(whole):
        assert made.read(frame.end) == whole[n + 1 :]


def test_a_message_that_was_voided_is_no_input(made: SpoolMade) -> None:
    made.spool.append(frames.INPUT, b"half", flags=frames.FIRST | frames.MORE, seq=1)
    made.spool.note(frames.VOID, seq=1)
    made.input(1, b"whole\n")
    found = [frame for frame in made.read() if isinstance(frame, InputLine | Void)]
    assert [type(frame) for frame in found] == [Void, InputLine]
    assert isinstance(found[1], InputLine)
    assert found[1].line == b"whole\n"


def test_a_spool_of_many_segments_reads_as_one(made: SpoolMade) -> None:
    chunk = bytes(range(256)) * 2048
    for _ in range(40):
        made.spool.append(frames.OUTPUT, chunk)
    assert len(layout.segments(os.fsencode(made.generation.path))) > 2
    assert made.output() == chunk * 40


def test_trimming_lets_go_of_whole_segments_and_a_cursor_before_them_is_a_gap(made: SpoolMade) -> None:
    chunk = bytes(1 << 19)
    made.input(1, b"one\n")
    for _ in range(40):
        made.spool.append(frames.OUTPUT, chunk)
    cursor = made.read()[2].end
    made.spool.trim(made.spool.tip)
    assert made.spool.base > cursor
    with pytest.raises(SpoolGapError) as gap:
        made.read(cursor)
    assert gap.value.first == made.spool.base
    assert made.read(made.spool.base)


def test_what_was_trimmed_still_counts_as_input(made: SpoolMade) -> None:
    made.input(1, b"one\n")
    made.spool.last_input, made.spool.last_digest = 1, b"digest"
    made.spool.note(frames.WRITTEN, seq=1)
    for _ in range(20):
        made.spool.append(frames.OUTPUT, bytes(1 << 20))
    made.spool.trim(made.spool.tip)
    facts = look(made.generation)
    assert (facts.last_input, facts.last_digest, facts.written_through, facts.inputs) == (1, b"digest", 1, ())


@pytest.mark.parametrize("cut", [1, 20, 39, 41, 44])
def test_torn_tail(made: SpoolMade, cut: int) -> None:
    made.spool.append(frames.OUTPUT, b"whole")
    good = made.spool.tip
    made.spool.append(frames.OUTPUT, b"torn!")
    os.truncate(made.file(), good + cut)
    assert made.output() == b"whole"
    facts = look(made.generation)
    assert (facts.tip, facts.fault) == (good, "")


def test_a_tail_of_zeros_or_of_lost_pages_is_torn_not_corrupt(made: SpoolMade) -> None:
    made.spool.append(frames.OUTPUT, b"whole")
    good = made.spool.tip
    with made.file().open("ab") as file:
        file.write(bytes(70_000))
    assert made.output() == b"whole"
    with made.file().open("r+b") as file:
        file.truncate(good)
        file.seek(good)
        file.write(frames.header(frames.OUTPUT, b"abc") + b"\0\0\0")
    assert made.output() == b"whole"
    assert look(made.generation).fault == ""


def test_nul_block(made: SpoolMade) -> None:
    made.spool.append(frames.OUTPUT, b"before")
    at = made.spool.tip
    made.spool.append(frames.OUTPUT, b"x" * 200)
    made.spool.append(frames.OUTPUT, b"after")
    with made.file().open("r+b") as file:
        file.seek(at)
        file.write(bytes(240))
    found = SpoolReader(made.generation).frames()
    assert isinstance(next(found), Head)
    first = next(found)
    assert isinstance(first, OutputChunk)
    assert first.data == b"before"
    with pytest.raises(SpoolCorruptError) as damage:
        next(found)
    assert damage.value.offset == at
    assert str(at) in look(made.generation).fault


def test_a_flipped_byte_in_the_middle_is_named_by_its_offset(made: SpoolMade) -> None:
    made.spool.append(frames.OUTPUT, b"before")
    at = made.spool.tip
    made.spool.append(frames.OUTPUT, b"damaged")
    made.spool.append(frames.OUTPUT, b"after")
    with made.file().open("r+b") as file:
        file.seek(at + frames.HEADER_SIZE)
        file.write(b"D")
    with pytest.raises(SpoolCorruptError) as damage:
        made.read()
    assert damage.value.offset == at


def test_a_lost_segment_in_the_middle_is_corruption(made: SpoolMade) -> None:
    for _ in range(20):
        made.spool.append(frames.OUTPUT, bytes(1 << 20))
    bases = layout.segments(os.fsencode(made.generation.path))
    made.file(bases[1]).unlink()
    with pytest.raises(SpoolCorruptError):
        made.read()


def test_what_the_disk_refuses_leaves_no_trace_and_goes_in_later(
    made: SpoolMade, disk: dict[str, object]
) -> None:
    made.spool.append(frames.OUTPUT, b"one ")
    size = made.file().stat().st_size
    disk["keep.spool.append"] = (None, "raise:ENOSPC")
    with pytest.raises(DiskRefused):
        made.spool.append(frames.OUTPUT, b"two ")
    assert made.file().stat().st_size == size
    made.spool.note(frames.WRITTEN, seq=1)
    assert made.spool.notes_wait
    disk.clear()
    made.spool.append(frames.OUTPUT, b"three")
    assert [type(frame) for frame in made.read()] == [Head, OutputChunk, Written, OutputChunk]
    assert made.output() == b"one three"


def test_an_unknown_frame_type_is_an_error_not_silence(made: SpoolMade) -> None:
    made.spool.append(55, pack({}))
    with pytest.raises(SpoolCorruptError, match="malformed"):
        made.read()
