"""The spool: what the shim appends is what every reader sees, and damage is said, never skipped."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.keep import (
    AgentFolder,
    ExitRecord,
    Generation,
    Landing,
    SpoolCorruptError,
    SpoolGapError,
    SpoolReader,
    frames,
    landing,
    layout,
    points,
)
from outlast.keep.facts import look
from outlast.keep.fields import pack
from outlast.keep.reader import (
    Attached,
    Exit,
    Head,
    InputLine,
    KillBegun,
    OutputChunk,
    OwnerGone,
    SpoolFrame,
    Started,
    Void,
    Written,
)
from outlast.keep.spool import DiskRefused, Spool


class SpoolMade:
    """A generation's folder and the spool in it."""

    def __init__(self, path: Path) -> None:
        self.generation: Generation = AgentFolder.create(path).generation(1)
        self.generation.path.mkdir()
        self._fd = os.open(self.generation.path, os.O_RDONLY | os.O_DIRECTORY)
        self.spool = Spool(self._fd, "boot")

    def read(self, after: int | None = None) -> list[SpoolFrame]:
        return list(SpoolReader(self.generation, after).frames())

    def output(self, after: int | None = None) -> bytes:
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
        assert made.read(frame.resume) == whole[n + 1 :]


def interleaved(made: SpoolMade, chance: random.Random) -> Iterator[None]:
    """A spool whose inputs come in parts, with outputs, other notes and new segments between the parts; gives
    way after each frame."""
    for seq in range(1, 30):
        whole = chance.random() < 0.7
        parts = chance.randrange(1, 6)
        for n in range(parts):
            flags = (frames.FIRST if n == 0 else 0) | (frames.MORE if n < parts - 1 or not whole else 0)
            made.spool.append(frames.INPUT, b"%d.%d " % (seq, n) * 40, flags=flags, seq=seq)
            yield
            for _ in range(chance.randrange(3)):
                made.spool.append(frames.OUTPUT, b"o" * chance.randrange(1, 700))
                yield
        if not whole:
            made.spool.note(frames.VOID, seq=seq)
            yield


def test_an_input_in_parts_is_whole_however_the_spool_is_read(
    made: SpoolMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at after every frame, with outputs and new segments between its parts, an input comes once and
    with all its parts; and another reader may begin behind any frame and misses nothing."""
    monkeypatch.setattr(layout, "SEGMENT_SIZE", 4096)
    reader, live = SpoolReader(made.generation), list[SpoolFrame]()
    for _ in interleaved(made, random.Random("parts")):  # noqa: S311 - the same in each run
        live += reader.frames()
        assert reader.position == made.spool.tip
    whole = made.read()
    assert live == whole
    assert len(layout.segments(os.fsencode(made.generation.path))) > 5
    lines = [frame.line for frame in whole if isinstance(frame, InputLine)]
    assert len(lines) > 10
    assert all(line.startswith(b"%d.0 " % int(line.partition(b".")[0])) for line in lines)
    open_inputs, at = 0, 0
    for n, frame in enumerate(whole):
        assert at <= frame.resume <= frame.end
        at = frame.resume
        open_inputs += frame.resume < frame.end
        again = made.read(frame.resume)
        assert [one for one in again if one.end > frame.end] == whole[n + 1 :]
    assert open_inputs > 20


def test_a_reader_that_stops_in_the_middle_goes_on_there(made: SpoolMade) -> None:
    made.spool.append(frames.INPUT, b'{"a"', flags=frames.FIRST | frames.MORE, seq=1)
    made.spool.append(frames.OUTPUT, b"between")
    made.spool.append(frames.INPUT, b":1}\n", seq=1)
    reader = SpoolReader(made.generation)
    for frame in reader.frames():
        if isinstance(frame, OutputChunk):
            break
    assert [frame.line for frame in reader.frames() if isinstance(frame, InputLine)] == [b'{"a":1}\n']


def test_a_cursor_at_the_very_first_frame_of_a_trimmed_spool_is_a_gap(made: SpoolMade) -> None:
    """Nobody who has folded nothing may begin in the middle."""
    for _ in range(20):
        made.spool.append(frames.OUTPUT, bytes(1 << 20))
    made.spool.trim(made.spool.tip)
    with pytest.raises(SpoolGapError):
        made.read(0)
    assert isinstance(made.read()[0], Head)


def test_a_spool_that_grows_by_segments_while_it_is_read_is_sound(
    made: SpoolMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shim ends a segment and begins another behind a reader: nothing is lost or damaged."""
    monkeypatch.setattr(layout, "SEGMENT_SIZE", 4096)
    listed, rounds = layout.segments, iter(range(6))

    def written_meanwhile(folder: int | bytes) -> list[int]:
        for _ in itertools.islice(rounds, 1):
            begun = len(listed(folder))
            while len(listed(folder)) < begun + 2:
                made.spool.append(frames.OUTPUT, b"y" * 500)
        return listed(folder)

    made.spool.append(frames.OUTPUT, b"x")
    monkeypatch.setattr(layout, "segments", written_meanwhile)
    reader = SpoolReader(made.generation)
    seen = [frame for _ in range(8) for frame in reader.frames()]
    assert next(rounds, None) is None
    assert seen == made.read()
    assert seen[-1].end == made.spool.tip


EXITED = {
    "verified": 1,
    "complete": 1,
    "status": 0,
    "stdout_end": 10,
    "wall": 1,
    "boottime": 1,
}


@pytest.mark.parametrize("with_frame", [True, False], ids=["frame and record", "record only"])
def test_the_exit_comes_after_the_last_output(
    made: SpoolMade, monkeypatch: pytest.MonkeyPatch, with_frame: bool
) -> None:
    """An agent that ends between a reader's look at the spool and its look at the record: its last words come
    first, then one exit."""
    made.spool.append(frames.OUTPUT, b"first ")
    read = ExitRecord.read

    def ends_now(fd: int) -> ExitRecord | None:
        monkeypatch.setattr(ExitRecord, "read", read)
        made.spool.append(frames.OUTPUT, b"last")
        if with_frame:
            made.spool.append(frames.EXIT, pack(EXITED))
        record = layout.Record.create(layout.EXIT, dir_fd=fd)
        record.write(EXITED)
        os.close(record.fd)
        return read(fd)

    monkeypatch.setattr(ExitRecord, "read", ends_now)
    reader = SpoolReader(made.generation)
    found = list(reader.frames())
    assert [type(frame) for frame in found] == [Head, OutputChunk, OutputChunk, Exit]
    assert list(reader.frames()) == []
    if with_frame:
        assert made.read(found[-1].resume) == []
    else:
        # Told by the record alone, it has no place: whoever comes later is told too.
        assert [type(frame) for frame in made.read(found[-1].resume)] == [Exit]


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


def test_what_must_be_told_waits_for_the_disk_however_long(made: SpoolMade, disk: dict[str, object]) -> None:
    """Owners that come and go on a full disk cost only the oldest of their own notes."""
    disk["keep.spool.append"] = (None, "raise:ENOSPC")
    made.spool.note(frames.STARTED, pack({"pid": 1}))
    made.spool.note(frames.WRITTEN, seq=1)
    made.spool.note(frames.VOID, seq=2)
    for n in range(400):
        made.spool.note(frames.ATTACHED, pack({"epoch": n, "holder": "h"}))
        made.spool.note(frames.VOID, seq=2)
        made.spool.note(frames.OWNER_GONE, pack({"epoch": n, "holder": "h"}))
    made.spool.note(frames.OUTPUT, flags=frames.EOF)
    made.spool.note(frames.KILL_BEGUN, pack({"reason": "owner"}))
    made.spool.note(frames.EXIT, pack(EXITED))
    assert made.spool.written_through == 1
    disk.clear()
    made.spool.flush()
    found = made.read()
    told = [frame for frame in found if not isinstance(frame, Attached | OwnerGone)]
    assert [type(frame) for frame in told] == [Head, Started, Written, Void, OutputChunk, KillBegun, Exit]
    comings = [frame.epoch for frame in found if isinstance(frame, Attached)]
    assert comings[-1] == 399
    assert len(comings) == 128


def test_a_sync_reaches_every_segment_and_the_oldest_first(
    made: SpoolMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that were filled while nobody waited for the disk are durable before what lies behind them."""
    from outlast.keep import spool as spool_module

    monkeypatch.setattr(layout, "SEGMENT_SIZE", 4096)
    synced: list[str] = []
    monkeypatch.setattr(
        spool_module, "sync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
    )
    made.spool.careful = False
    for _ in range(20):
        made.spool.append(frames.OUTPUT, b"x" * 1000)
    names = sorted(path.name for path in made.generation.path.glob("spool.*"))
    assert len(names) > 4
    assert synced == []
    made.spool.trim(int(names[1].partition(".")[2]))
    made.spool.sync()
    assert synced == names[1:]
    made.spool.sync()
    made.spool.careful = True
    made.spool.append(frames.OUTPUT, b"x" * 4000)
    assert synced == names[1:]


def test_an_input_of_which_only_the_end_is_kept_is_nobody_elses(
    made: SpoolMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest is not known until a later segment says it."""
    monkeypatch.setattr(layout, "SEGMENT_SIZE", 4096)
    parts = [b"x" * 3000, b"y" * 3000, b"\n"]
    digest = hashlib.sha256(b"".join(parts)).digest()
    made.input(1, *parts)
    made.spool.last_input, made.spool.last_digest = 1, digest
    made.spool.trim(made.spool.tip)
    facts = look(made.generation)
    assert (facts.last_input, facts.last_digest, facts.inputs) == (1, None, ())
    assert landing(facts, 1, digest) is Landing.PERHAPS_WRITTEN
    assert [frame for frame in made.read() if isinstance(frame, InputLine)] == []
    made.spool.append(frames.OUTPUT, b"x" * 4000)
    facts = look(made.generation)
    assert (facts.last_input, facts.last_digest) == (1, digest)
    assert landing(facts, 1, b"another") is Landing.OTHER_WRITER


def test_what_lies_behind_a_segment_that_was_cut_short_is_not_proven_absent(
    made: SpoolMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SEGMENT_SIZE", 4096)
    for _ in range(3):
        made.spool.append(frames.OUTPUT, b"x" * 3000)
    made.input(1, b"{}\n")
    os.truncate(made.file(), 2000)
    facts = look(made.generation)
    assert "hole" in facts.fault
    assert landing(facts, 1, hashlib.sha256(b"{}\n").digest()) is Landing.PERHAPS_WRITTEN


def test_an_unknown_frame_type_is_an_error_not_silence(made: SpoolMade) -> None:
    made.spool.append(55, pack({}))
    with pytest.raises(SpoolCorruptError, match="malformed"):
        made.read()
