"""From the shim's spool to located agent events: the pure half of talking to an agent.

`Intake` feeds every frame of a generation to the adapter's fold. What lies at or before the journal's
cursor only rebuilds the fold's state; what lies after it comes out as events with their place, so that the
journal takes each exactly once, however often the spool is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outlast.agents.contract import AgentEvent, ExitInfo, Fold, TurnEnded
from outlast.agents.peer import Line, LineSplitter, LongLine
from outlast.records.envelope import Cursor
from outlast.records.types import AgentStateFolded


@dataclass(frozen=True, slots=True)
class Located:
    """One event and the cursor after the line or frame that it came from."""

    event: AgentEvent
    cursor: Cursor
    by_exit: bool = False
    """The agent did not say it: it follows from how its process ended."""


@dataclass(frozen=True, slots=True)
class OutputSeen:
    """Raw stdout bytes; `offset` is the stdout offset of the first one."""

    data: bytes
    offset: int
    end: bool = False


@dataclass(frozen=True, slots=True)
class InputSeen:
    line: bytes
    seq: int


@dataclass(frozen=True, slots=True)
class StdinClosedSeen:
    seq: int


@dataclass(frozen=True, slots=True)
class ExitSeen:
    exit: ExitInfo


@dataclass(frozen=True, slots=True)
class KillSeen:
    """The agent is being ended by its keeper."""


Seen = OutputSeen | InputSeen | StdinClosedSeen | KillSeen | ExitSeen
"""The frames that an adapter folds; the others concern the owner of the shim only."""


class Intake:
    """Folds one generation from `start` (the adapter's last stored state, or the beginning).

    `prompt` is the seq of the open turn's own input: an end of the turn that comes after it is given however
    far the journal's cursor is, because the record that says it is the turn's terminal, and that is missing.
    """

    def __init__(
        self,
        fold: Fold,
        generation: str,
        line_limit: int,
        journaled: Cursor | None,
        start: AgentStateFolded | None,
        prompt: int | None = None,
    ) -> None:
        self.fold = fold
        self.generation = generation
        self.exit: ExitInfo | None = None
        self.started_at_frame: int = start.offset if start else 0
        """Spool offset at which reading begins."""
        self._taken_stdout = start.stdout if start else 0
        self._taken_input = start.last_input if start else 0
        self._journaled = journaled if journaled and journaled.generation == generation else None
        self._prompt = prompt
        self._splitter = LineSplitter(line_limit, offset=self._taken_stdout)
        self._frame = self.started_at_frame
        self._eof = False
        self._lingered = False
        self._line_frame = self.started_at_frame

    @property
    def cursor(self) -> Cursor:
        """The place after everything that was folded."""
        return Cursor(self.generation, self._frame, self._taken_stdout, self._taken_input)

    @property
    def unended(self) -> int:
        """Bytes of spool that a line has taken which has not ended: a stored state begins before it."""
        return self._frame - self._line_frame

    def dump(self) -> AgentStateFolded:
        """The state to store: reading can begin again at the frame in which the open line began."""
        return AgentStateFolded(
            generation=self.generation,
            offset=self._line_frame,
            stdout=self._taken_stdout,
            last_input=self._taken_input,
            state=self.fold.dump(),
        )

    def feed(self, seen: Seen, begin: int, end: int) -> Iterator[Located]:
        """Fold the next frame. `begin` and `end` are where reading must begin to see all from this frame on,
        and all that comes after it: `SpoolFrame.resume` of the frame before, and of this."""
        self._frame = end
        match seen:
            case OutputSeen():
                yield from self._output(seen, begin, end)
            case InputSeen(line, seq) if seq > self._taken_input:
                self._taken_input = seq
                yield from self._new(self.fold.apply_in(line, seq), seq > self._journaled_input)
            case StdinClosedSeen(seq) if seq > self._taken_input:
                self._taken_input = seq
                yield from self._new(self.fold.apply_stdin_closed(seq), seq > self._journaled_input)
            case KillSeen():
                self._lingered = self._eof
            case ExitSeen(exit):
                self.exit = replace(exit, lingered=self._lingered)
                new = end > self._journaled_frame
                yield from self._new(self.fold.apply_exit(self.exit), new, by_exit=True)
            case _:
                pass

    def _output(self, seen: OutputSeen, begin: int, end: int) -> Iterator[Located]:
        data = seen.data
        known = self._splitter.offset - seen.offset
        if known > 0:  # Bytes of a frame that the stored state has in part.
            data = data[known:]
        for line in self._splitter.feed(data):
            yield from self._line(line.end_offset, self._apply(line))
            self._line_frame = begin
        if self._splitter.offset == self._taken_stdout:
            self._line_frame = end
        if seen.end:
            self._eof = True
            last = self._splitter.finish()
            if last is not None:
                yield from self._line(last.end_offset, self._apply(last))
            self._line_frame = end
            yield from self._new(self.fold.apply_eof(), True)

    def _apply(self, line: Line | LongLine) -> list[AgentEvent]:
        if isinstance(line, LongLine):
            return self.fold.apply_long(line.head, line.size)
        return self.fold.apply_out(line.data)

    def _line(self, end_offset: int, events: list[AgentEvent]) -> Iterator[Located]:
        self._taken_stdout = end_offset
        yield from self._new(events, end_offset > self._journaled_stdout)

    def _new(self, events: list[AgentEvent], new: bool, *, by_exit: bool = False) -> Iterator[Located]:
        for event in events:
            if new or self._is_missing_end(event):
                yield Located(event, self.cursor, by_exit)

    def _is_missing_end(self, event: AgentEvent) -> bool:
        return isinstance(event, TurnEnded) and self._prompt is not None and self._taken_input >= self._prompt

    @property
    def _journaled_stdout(self) -> int:
        return self._journaled.stdout if self._journaled else -1

    @property
    def _journaled_frame(self) -> int:
        return self._journaled.frame if self._journaled else -1

    @property
    def _journaled_input(self) -> int:
        return self._journaled.last_input if self._journaled else 0
