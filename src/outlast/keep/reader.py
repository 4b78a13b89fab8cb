"""Reading a spool, of a living or a dead generation: typed frames, one at a time, in constant memory."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from outlast.keep import frames, layout
from outlast.keep.errors import SpoolCorruptError, SpoolGapError
from outlast.keep.fields import Fields, FieldsDamaged
from outlast.keep.folder import Generation
from outlast.keep.frames import Frame, FrameDamaged
from outlast.keep.records import ExitRecord


@dataclass(frozen=True)
class SpoolFrame:
    """What every frame has. `offset` and `end` are its place in the spool (`end` is the cursor behind it),
    `stdout` the agent's stdout offset there, `time` nanoseconds of CLOCK_BOOTTIME (comparable within one
    boot, counts suspend)."""

    offset: int
    end: int
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
    """Reads a generation's spool. Looks only; any number may read at once, beside a writing shim too."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._parts: list[bytes] = []

    def frames(self, after: int = 0) -> Iterator[SpoolFrame]:
        """Every whole frame from the spool offset `after` (a frame's `end`, or 0) to the present end, and
        then the exit if only its record tells it.

        A torn tail ends the iteration; call again with the last frame's `end` for what has come since. An
        input whose first part lies before `after` is not assembled: use the `end` of a whole one. At the end
        of a generation whose disk was full, or whose shim was killed, an `Exit` is made from the exit record
        or the guard's. Raises SpoolGapError, SpoolCorruptError, FileNotFoundError.
        """
        end, exited = after, False
        self._parts = []
        for frame, offset in self._raw(after):
            end = offset + frames.HEADER_SIZE + len(frame.payload)
            typed = self._typed(frame, offset, end)
            if typed is not None:
                exited = exited or isinstance(typed, Exit)
                yield typed
        if not exited:
            yield from self._recorded_exit(end, after)

    def _recorded_exit(self, end: int, after: int) -> Iterator[SpoolFrame]:
        with self._generation.opened() as fd:
            record = ExitRecord.read(fd)
        if record is not None and record.complete and not self._has_exit_before(after, end):
            yield Exit(end, end, record.stdout_end or 0, record.boottime, record)

    def _has_exit_before(self, after: int, end: int) -> bool:
        """Whether a call that begins behind the last frame begins behind an exit frame."""
        if after == 0 or after != end:
            return False
        last = None
        for frame, _ in self._raw(0, skip_to=max(0, end - layout.SEGMENT_SIZE)):
            last = frame
        return last is not None and last.type == frames.EXIT

    def _raw(self, after: int, skip_to: int = 0) -> Iterator[tuple[Frame, int]]:
        folder = os.fsencode(self._generation.path)
        bases = layout.segments(folder)
        if not bases:
            return
        if after == 0:
            after = bases[max(0, bisect.bisect_right(bases, skip_to) - 1)] if skip_to else bases[0]
        index = bisect.bisect_right(bases, after) - 1
        if index < 0:
            raise SpoolGapError(
                f"the spool begins at {bases[0]}, after the cursor {after}", cursor=after, first=bases[0]
            )
        position = after
        while index < len(bases):
            base = bases[index]
            if position < base:
                # The next segment begins beyond what the last one holds: what was between was lost.
                raise SpoolCorruptError(
                    f"the spool has a hole at {position}", offset=position, reason="segment cut short"
                )
            try:
                file = (self._generation.path / os.fsdecode(layout.segment_name(base))).open(
                    "rb", buffering=0
                )
            except FileNotFoundError:
                raise SpoolGapError(
                    f"the spool was trimmed past the cursor {after}", cursor=position, first=base
                ) from None
            with file:
                for frame, offset in _segment(file, base, position):
                    yield frame, offset
                    position = offset + frames.HEADER_SIZE + len(frame.payload)
            index += 1
            if index == len(bases):
                # The shim may have begun another segment in the meantime.
                bases = layout.segments(folder)
                index = bisect.bisect_right(bases, base)

    def _typed(self, frame: Frame, offset: int, end: int) -> SpoolFrame | None:
        try:
            if frame.type == frames.INPUT:
                return self._input(frame, offset, end)
            return _typed(frame, offset, end)
        except FieldsDamaged as damage:
            raise SpoolCorruptError(
                f"the frame at {offset} of the spool is malformed", offset=offset, reason=str(damage)
            ) from None

    def _input(self, frame: Frame, offset: int, end: int) -> SpoolFrame | None:
        if frame.flags & frames.FIRST:
            self._parts = []
        self._parts.append(frame.payload)
        if frame.more:
            return None
        line, self._parts = b"".join(self._parts), []
        return InputLine(offset, end, frame.offset, frame.time, frame.seq, line)


def _segment(file: BinaryIO, base: int, position: int) -> Iterator[tuple[Frame, int]]:
    """Whole frames of one segment file, from the spool offset `position`."""
    buffer, start = b"", position
    file.seek(position - base)
    while True:
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
            if _is_torn(file, base, start, damage):
                return
            raise SpoolCorruptError(
                f"the spool is damaged at {start + used}: {damage.reason}",
                offset=start + used,
                reason=damage.reason,
            ) from None
        buffer, start = buffer[used:], start + used
        if not more:
            return


def _is_torn(file: BinaryIO, base: int, start: int, damage: FrameDamaged) -> bool:
    """A write that never ended: the bad frame reaches to the end of the file, or is followed by zeros."""
    size = os.fstat(file.fileno()).st_size
    if damage.end > damage.position and start - base + damage.end >= size:
        return True
    at = start - base + damage.position
    while at < size:
        data = os.pread(file.fileno(), 1 << 20, at)
        if not data or any(data.strip(b"\0")):
            return False
        at += len(data)
    return True


def _typed(frame: Frame, offset: int, end: int) -> SpoolFrame | None:  # noqa: PLR0911
    place = (offset, end, frame.offset, frame.time)
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
