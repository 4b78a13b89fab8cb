"""Reading a spool, of a living or a dead generation: typed frames, one at a time, in constant memory."""

from __future__ import annotations

import bisect
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from outlast.keep import frames, layout
from outlast.keep.errors import SpoolCorruptError, SpoolGapError
from outlast.keep.fields import Fields, FieldsDamaged
from outlast.keep.folder import Generation
from outlast.keep.frames import Frame, FrameDamaged
from outlast.keep.records import ExitRecord
from outlast.keep.tail import is_torn, written_in_this_boot


@dataclass(frozen=True)
class SpoolFrame:
    """What every frame has. `offset` and `end` are its place in the spool, `stdout` the agent's stdout offset
    there, `time` nanoseconds of CLOCK_BOOTTIME (comparable within one boot, counts suspend).

    `resume` is the cursor behind it: where another reader must begin so that nothing after this frame is
    missing. It is `end`, or the first part of an input whose last part lies behind `end`: then frames up to
    `end` come again. It never goes back.
    """

    offset: int
    end: int
    resume: int
    stdout: int
    time: int


@dataclass(frozen=True)
class Head(SpoolFrame):
    """The begin of a segment. `wall` is the wall clock then, nanoseconds since 1970; the inputs are those
    of before."""

    version: int
    boot: str
    wall: int
    last_input: int
    last_digest: bytes
    written_through: int


@dataclass(frozen=True)
class Attached(SpoolFrame):
    """An owner came."""

    epoch: int
    holder: str


@dataclass(frozen=True)
class OwnerGone(SpoolFrame):
    """An owner went, was cut off, or detached."""

    epoch: int
    holder: str


@dataclass(frozen=True)
class Fence(SpoolFrame):
    """The floor was raised by somebody who did not attach."""

    epoch: int
    holder: str


@dataclass(frozen=True)
class Started(SpoolFrame):
    """The agent's process, or why there is none: then `pid` is 0 and `errno` and `stage` are set."""

    pid: int
    start_ticks: int
    errno: int | None
    stage: str


@dataclass(frozen=True)
class OutputChunk(SpoolFrame):
    """Raw bytes of the agent's stdout, cut anywhere; `eof`: it has ended."""

    data: bytes = field(repr=False)
    eof: bool


@dataclass(frozen=True)
class InputLine(SpoolFrame):
    """A whole accepted input, with its newline. `offset` is its last part's."""

    seq: int
    line: bytes = field(repr=False)


@dataclass(frozen=True)
class StdinClosed(SpoolFrame):
    """Stdin was closed: by input `seq`, or by the agent itself (`by_agent`, seq 0)."""

    seq: int
    by_agent: bool


@dataclass(frozen=True)
class Void(SpoolFrame):
    """An input that had begun was not completed; its number is free again."""

    seq: int


@dataclass(frozen=True)
class Written(SpoolFrame):
    """The input went whole into the agent's pipe."""

    seq: int


@dataclass(frozen=True)
class KillBegun(SpoolFrame):
    """The agent is being ended: `reason` is owner, orphaned or terminated (the shim got SIGTERM)."""

    reason: str


@dataclass(frozen=True)
class Exit(SpoolFrame):
    """The agent's whole tree is gone."""

    record: ExitRecord


class SpoolReader:
    """Reads a generation's spool. Looks only; any number may read at once, beside a writing shim too.

    `after` is where it begins: None for the first kept frame, else a frame's `resume` (0: the very first
    frame, which must not have been trimmed).
    """

    def __init__(self, generation: Generation, after: int | None = None) -> None:
        self._generation = generation
        self._begin = after
        self._position = after or 0
        self._message: _Message | None = None
        self._exited = False
        self._stdout: int | None = None if after else 0
        """Bytes of the agent's output up to the position; None while that is not known."""

    @property
    def position(self) -> int:
        """Spool offset behind the last frame, or part of an input, that was read."""
        return self._position

    def frames(self) -> Iterator[SpoolFrame]:
        """Every whole frame from where the last call, or its caller, stopped to the present end, and then the
        exit if only its record tells it.

        A torn tail ends the iteration; call again for what has come since. An input is given with its last
        part, whole; one whose first part lies before the beginning is not given. At the end of a generation
        whose disk was full, or whose shim was killed, an `Exit` is made from the exit record or the guard's.
        Raises SpoolGapError, SpoolCorruptError, FileNotFoundError.
        """
        yield from self._typed_frames()
        if self._exited:
            return
        record = self._record()
        if record is None:
            return
        # Only what is read after the record was seen can be all that came before it.
        yield from self._typed_frames()
        if not self._exited:
            self._require_all_of(record)
            self._exited, end = True, self._position
            if self._begins_behind_exit():
                return
            yield Exit(end, end, end, record.stdout_end or 0, record.boottime, record)

    def _require_all_of(self, record: ExitRecord) -> None:
        """An end after what is not there would be an end of something else."""
        if self._stdout is not None and self._stdout < (record.stdout_end or 0):
            missing = f"output from {self._stdout} to {record.stdout_end}"
            raise SpoolCorruptError(
                f"the spool has lost its end at {self._position}: {missing}",
                offset=self._position,
                reason="it is shorter than the agent's output",
            )

    def _record(self) -> ExitRecord | None:
        """A complete one; one that cannot be read tells no end."""
        try:
            with self._generation.opened() as fd:
                record = ExitRecord.read(fd)
        except FieldsDamaged:
            return None
        return record if record is not None and record.complete else None

    def _begins_behind_exit(self) -> bool:
        """Whether the frame before the beginning was the exit, and nothing has come since."""
        bases = self._bases()
        if not bases or not self._begin or self._begin != self._position:
            return False
        before = bases[max(0, bisect.bisect_left(bases, self._begin) - 1)]
        last = None
        for frame, _ in self._raw(before):
            last = frame
        return last is not None and last.type == frames.EXIT

    def _typed_frames(self) -> Iterator[SpoolFrame]:
        for frame, offset in self._raw(self._position if self._begin is not None else None):
            end = offset + frames.HEADER_SIZE + len(frame.payload)
            typed = self._typed(frame, offset, end)
            self._begin = self._begin if self._begin is not None else offset
            self._position = end
            self._stdout = frame.offset + (len(frame.payload) if frame.type == frames.OUTPUT else 0)
            if typed is not None:
                self._exited = self._exited or isinstance(typed, Exit)
                yield typed

    def _bases(self) -> list[int]:
        return layout.segments(os.fsencode(self._generation.path))

    def _raw(self, after: int | None) -> Iterator[tuple[Frame, int]]:
        bases = self._bases()
        position = (bases[0] if bases else 0) if after is None else after
        while bases:
            if position < bases[0]:
                raise SpoolGapError(
                    f"the spool begins at {bases[0]}, after the cursor {position}",
                    cursor=position,
                    first=bases[0],
                )
            index = bisect.bisect_right(bases, position) - 1
            base, following = bases[index], bases[index + 1 : index + 2]
            for frame, offset in self._segment(base, position):
                yield frame, offset
                position = offset + frames.HEADER_SIZE + len(frame.payload)
            if not following:
                # The shim may have gone on in this segment and begun another one behind our end of file: then
                # this one is read once more, now that it is known to be complete.
                bases = self._bases()
                if not bases or bases[-1] == base:
                    return
            elif position < following[0]:
                raise SpoolCorruptError(
                    f"the spool has a hole at {position}", offset=position, reason="segment cut short"
                )

    def _segment(self, base: int, position: int) -> Iterator[tuple[Frame, int]]:
        path = self._generation.path / os.fsdecode(layout.segment_name(base))
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise SpoolGapError(
                f"the spool was trimmed past the cursor {position}", cursor=position, first=base
            ) from None
        with file:
            yield from _segment(file, base, position)

    def _typed(self, frame: Frame, offset: int, end: int) -> SpoolFrame | None:
        if frame.type == frames.INPUT:
            return self._input(frame, offset, end)
        if frame.type == frames.VOID:
            self._message = None
        resume = end if self._message is None else self._message.offset
        try:
            return _typed(frame, (offset, end, resume, frame.offset, frame.time))
        except FieldsDamaged as damage:
            raise SpoolCorruptError(
                f"the frame at {offset} of the spool is malformed", offset=offset, reason=str(damage)
            ) from None

    def _input(self, frame: Frame, offset: int, end: int) -> SpoolFrame | None:
        if frame.flags & frames.FIRST:
            self._message = _Message(offset, [])
        if self._message is None:
            return None
        self._message.parts.append(frame.payload)
        if frame.more:
            return None
        line, self._message = b"".join(self._message.parts), None
        return InputLine(offset, end, end, frame.offset, frame.time, frame.seq, line)


@dataclass(frozen=True)
class _Message:
    """An input of which not all parts have been read; `offset` is the first one's."""

    offset: int
    parts: list[bytes]


def _segment(file: BinaryIO, base: int, position: int) -> Iterator[tuple[Frame, int]]:
    """Whole frames of one segment file, from the spool offset `position`, up to its present end.

    A living shim writes meanwhile, and takes back what its disk did not take: only what looks damaged twice,
    the same bytes in the same place, is damaged.
    """
    suspect: tuple[int, bytes] | None = None
    while True:
        start, rest, reason = yield from _whole_frames(file, base, position)
        if not rest or is_torn(rest, this_boot=_written_in_this_boot(file)):
            return
        if suspect is not None and suspect[0] == start and rest.startswith(suspect[1]):
            raise SpoolCorruptError(f"the spool is damaged at {start}: {reason}", offset=start, reason=reason)
        position, suspect = start, (start, rest)


def _whole_frames(
    file: BinaryIO, base: int, position: int
) -> Generator[tuple[Frame, int], None, tuple[int, bytes, str]]:
    """The frames from `position` on; at last where they end, what comes after them and, should that be
    damaged, why."""
    buffer, start, more = b"", position, b"?"
    file.seek(position - base)
    while more:
        more = file.read(frames.MAX_PAYLOAD)
        buffer += more
        used = 0
        try:
            while used < len(buffer):
                found = frames.decode(buffer, used)
                if found is None:
                    break
                yield found[0], start + used
                used = found[1]
        except FrameDamaged as damage:
            return start + used, buffer[used:] + file.read(), damage.reason
        buffer, start = buffer[used:], start + used
    # What comes after this end of file is for the next look: it need not be the end of a frame.
    return start, buffer, "its length is damaged"


def _written_in_this_boot(file: BinaryIO) -> bool:
    file.seek(0)
    return written_in_this_boot(file.read(frames.MAX_PAYLOAD))


def _typed(frame: Frame, place: tuple[int, int, int, int, int]) -> SpoolFrame:  # noqa: PLR0911
    kind = frame.type
    if kind == frames.OUTPUT:
        return OutputChunk(*place, frame.payload, bool(frame.flags & frames.EOF))
    if kind == frames.WRITTEN:
        return Written(*place, frame.seq)
    if kind == frames.VOID:
        return Void(*place, frame.seq)
    if kind == frames.STDIN_CLOSED:
        return StdinClosed(*place, frame.seq, bool(frame.flags & frames.EOF))
    said = Fields(frame.payload)
    if kind in _OWNERS:
        return _OWNERS[kind](*place, said.integer("epoch"), said.text("holder"))
    if kind == frames.STARTED:
        return Started(
            *place,
            said.integer("pid"),
            said.integer("ticks", 0),
            said.optional("errno"),
            said.text("stage", ""),
        )
    if kind == frames.KILL_BEGUN:
        return KillBegun(*place, said.text("reason"))
    if kind == frames.EXIT:
        return Exit(*place, ExitRecord.of(said, by="shim"))
    if kind == frames.HEAD:
        return Head(
            *place,
            version=said.integer("version"),
            boot=said.text("boot"),
            wall=said.integer("wall"),
            last_input=said.integer("last_input"),
            last_digest=said.blob("last_digest"),
            written_through=said.integer("written"),
        )
    raise FieldsDamaged(f"unknown type {kind}")


_OWNERS: dict[int, type[Attached] | type[OwnerGone] | type[Fence]] = {
    frames.ATTACHED: Attached,
    frames.OWNER_GONE: OwnerGone,
    frames.FENCED: Fence,
}
