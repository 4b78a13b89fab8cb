"""Showing a followed session: as JSON lines, or as text for people. Same calls, two faces.

Nothing here holds a turn's text: it is printed as its records come, and read from the journal once more where
it is to be shown whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Protocol

from outlast.cli.last_words import last_words
from outlast.cli.output import Screen, visible
from outlast.cli.shapes import AcceptedLine, WayBackLine
from outlast.cli.text import (
    LiveText,
    Takeovers,
    Told,
    failure_lines,
    first_line,
    pieces_of,
    receipt_line,
    ways_on,
)
from outlast.errors import naming
from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.records.public import public_line
from outlast.records.types import (
    CallObserved,
    GateOpened,
    InputAccepted,
    InputCancelled,
    InputJoined,
    InputReturned,
    LoopChanged,
    Receipt,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnStarted,
)
from outlast.state.choices import about_lost
from outlast.state.messages import text_of
from outlast.turns.lost import CODES

if TYPE_CHECKING:
    from outlast.runtime.handles import Delta
    from outlast.runtime.outcome import Outcome
    from outlast.store.contract import Store


class Presenter(Protocol):
    """What happens in a session, in the order in which it is durable."""

    async def accepted(self, session: str, turn: str) -> None: ...

    def record(self, record: Record) -> None: ...

    def delta(self, delta: Delta) -> None: ...

    async def outcome(self, outcome: Outcome, text: AsyncIterator[str]) -> None:
        """How a turn ended; its text comes as `text`."""
        ...

    async def waits(self, gate: str) -> None:
        """The command ends because the question `gate` is open."""
        ...

    def nothing_to_do(self, why: str) -> None:
        """The session stands still, because of `why`."""
        ...

    def break_off(self) -> None:
        """What comes next on standard error is none of this presenter's."""
        ...

    def way_back(self, session: str, *, owned: bool, needs: Sequence[str] = ()) -> None:
        """How to come back to the session, at every exit; `owned`: somebody else runs it; `needs`: the
        effects without which nobody does."""
        ...


class JsonPresenter:
    """The lines of `run --json`, for one turn or for several: its ids, records, its outcome.

    Records between turns (a restore's own, for instance) are shown after the next turn's ids: a turn's block
    begins with its ids and ends with its outcome, always. `tail` prints every record.
    """

    def __init__(self, screen: Screen, store: Store) -> None:
        self._screen = screen
        self._store = store
        self._within: AcceptedLine | None = None
        """The block that is open."""
        self._between: range | None = None
        """Where the records lie that the next block begins with."""

    async def accepted(self, session: str, turn: str) -> None:
        self._within = AcceptedLine(session, turn)
        self._screen.json_line(self._within)
        between, self._between = self._between, None
        if between is None:
            return
        async for record in read_records(self._store, session, between.start - 1):
            if record.seq not in between:
                return
            self._line(record)

    def record(self, record: Record) -> None:
        if self._within is not None:
            self._line(record)
        else:
            first = record.seq if self._between is None else self._between.start
            self._between = range(first, record.seq + 1)

    def _line(self, record: Record) -> None:
        if record.public:
            self._screen.out.write(public_line(record).decode("utf-8") + "\n")

    def delta(self, delta: Delta) -> None:
        """Text that is not durable is not shown; what an agent says of its own state is advice."""
        if delta.notice:
            self._screen.note(delta.text)

    async def outcome(self, outcome: Outcome, text: AsyncIterator[str]) -> None:
        from outlast.runtime.outcome import to_json

        self._within = None
        await self._screen.json_text_line(to_json(outcome), "text", text)

    async def waits(self, gate: str) -> None:
        """A block that is open ends, as every block does, with how its turn stands."""
        from outlast.runtime.texts import text_so_far

        within, self._within = self._within, None
        if within is not None:
            pieces = text_so_far(self._store, within.session, within.turn)
            shape = {"outcome": "waiting", "stop_reason": None, "text": "", "gate": gate}
            await self._screen.json_text_line(shape, "text", pieces)

    def nothing_to_do(self, why: str) -> None:
        self._screen.note(f"nothing to do; {why}")

    def break_off(self) -> None:
        """A line of JSON is always whole."""

    def way_back(self, session: str, *, owned: bool, needs: Sequence[str] = ()) -> None:
        self._screen.err_json_line(WayBackLine(session, way_back_command(session, owned=owned), tuple(needs)))


@dataclass(frozen=True, slots=True)
class Before:
    """What was there when the showing of a session began."""

    attempts: Mapping[str, TurnAttemptStarted] = field(default_factory=dict)
    """Of the turns that are open."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """First lines of the inputs that wait, or whose turns are open: a restore may return those to the
    queue."""
    waiting: frozenset[str] = frozenset()
    """The inputs that wait in the queue."""
    open_calls: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By open turn, the names of its calls without an outcome, by id."""


class TextPresenter:
    """The agent's words on standard output as they come, everything else on standard error."""

    def __init__(
        self,
        screen: Screen,
        session: str,
        *,
        only_turn: str | None = None,
        looks_on: bool = False,
        before: Before = Before(),
    ) -> None:
        self._screen = screen
        self._session = session
        self._live = LiveText()
        # Only who looks on is told that a process came to the session without anything to mend.
        self._takeovers = Takeovers(only_mended=not looks_on)
        self._inputs = dict(before.inputs)
        """First lines of inputs, by request."""
        self._announced = looks_on
        """A turn was announced: from then on every turn is, this command's own too."""
        self._calls = {turn: dict(calls) for turn, calls in before.open_calls.items()}
        """By turn, the names of its calls that have no outcome yet, by id."""
        self._idle = False
        """Nothing was left to do."""
        self._waiting = set(before.waiting)
        """Inputs that wait in the queue."""
        self.typed_here: set[str] = set()
        """Inputs that stand on the screen already."""
        self._attempts = dict(before.attempts)
        """By turn: whose standard error tells more if it fails."""
        self._endings_told: set[str] = set()
        self._asked: set[str] = set()
        """Turns about whose lost agent session a question was opened."""
        self._unsaid = ""
        """What to do about such a turn, as long as it may be a question that says it."""
        self.only_turn = only_turn
        """The turn whose words are the result. Those of turns that begin meanwhile are shown beside it."""
        self._seen_to_begin: set[str] = set()
        self._from_its_start = only_turn is None
        """The turn's input was seen: what is shown as it comes is all of it. A turn that somebody else had
        sent before under the same key is shown whole at its end."""

    async def accepted(self, session: str, turn: str) -> None:
        """Nothing to see: the words follow."""

    def record(self, record: Record) -> None:
        self._say_unsaid(record)
        line = self._takeovers.see(record)
        if line is not None:
            self._note(line)
        self._follow_input(record)
        if isinstance(record.body, TurnAttemptStarted) and record.turn is not None:
            self._attempts[record.turn] = record.body
        self._follow_calls(record)
        foreign = self._foreign(record.turn)
        if foreign and record.turn not in self._seen_to_begin:
            return
        for piece in () if self._says_nothing(record) else pieces_of(record, self._live):
            if piece.style == "text":
                self._words(piece.text, beside=foreign)
            elif piece.style == "end":
                self._end_words()
            else:
                self._end_words()
                self._note(piece.text, dim=piece.style == "dim")
        if isinstance(record.body, TurnFailed | TurnInterrupted | TurnParked) and record.turn is not None:
            self._endings_told.add(record.turn)
        if isinstance(record.body, TurnFailed) and record.turn is not None:
            self._explain(record.turn, record.body.receipt)

    def _says_nothing(self, record: Record) -> bool:
        """Of a queue in which nothing else waits it is of no interest whether it is held."""
        body = record.body
        return isinstance(body, LoopChanged) and not self._waiting - {record.cause}

    def _follow_calls(self, record: Record) -> None:
        body, turn = record.body, record.turn or ""
        if isinstance(body, TurnAttemptStarted):
            self._calls.pop(turn, None)
        elif isinstance(body, CallObserved):
            open_ones = self._calls.setdefault(turn, {})
            if body.status == "started":
                open_ones[body.call] = body.name
            else:
                open_ones.pop(body.call, None)
        elif isinstance(body, TurnDone):
            self._calls.pop(turn, None)

    def _explain(self, turn: str, receipt: Receipt) -> None:
        attempt = self._attempts.get(turn)
        words = [] if attempt is None else last_words(attempt)
        calls = list(self._calls.pop(turn, {}).values())
        for line in failure_lines(receipt, self._session, Told(turn, words, calls)):
            self._advise(receipt, line)

    def _advise(self, receipt: Receipt, line: str) -> None:
        """What to do about a lost agent session is said by the question about it, where one follows."""
        if receipt.error.code in CODES and line.startswith("  what to do: "):
            self._unsaid = line
        else:
            self._note(line)

    def _say_unsaid(self, record: Record | None = None) -> None:
        body = None if record is None else record.body
        if not self._unsaid or isinstance(body, TurnParked):
            return
        unsaid, self._unsaid = self._unsaid, ""
        if isinstance(body, GateOpened) and record is not None and about_lost(body.choices):
            self._asked.add(record.turn or "")
        else:
            self._note(unsaid)

    def delta(self, delta: Delta) -> None:
        if delta.notice:
            if self.only_turn in (None, delta.turn):
                self._note(delta.text, dim=True)
        elif self._screen.out.is_terminal and self.only_turn in (None, delta.turn):
            self._words(self._live.delta(delta.text))

    async def outcome(self, outcome: Outcome, text: AsyncIterator[str]) -> None:
        if not self._from_its_start:
            self._from_its_start = True
            async for piece in text:
                self._words(piece)
        self._end_words()
        self._say_unsaid()
        told = outcome.turn in self._endings_told
        if outcome.outcome == "failed" and not told:
            if outcome.receipt is None:
                self._note(f"the turn failed: {outcome.reason}" if outcome.reason else "the turn failed")
            else:
                self._note(f"the turn failed: {receipt_line(outcome.receipt)}")
                self._explain(outcome.turn, outcome.receipt)
                self._say_unsaid()
        elif outcome.outcome == "parked" and outcome.turn in self._asked:
            pass  # The question says what can be done.
        elif outcome.outcome in ("interrupted", "parked"):
            if not told:
                self._note(f"the turn was {outcome.outcome}: {outcome.reason}")
            self._note(ways_on(self._session, outcome, told=told))
        elif outcome.stop_reason == "lost":
            self._note("a repair cut its record away: it is not known whether it was carried out")
        elif outcome.outcome == "cancelled" and not told:
            self._note("cancelled")

    async def waits(self, gate: str) -> None:
        """Nothing to see: the error says it."""

    def nothing_to_do(self, why: str) -> None:
        self._idle = True
        self._note(f"nothing to do; {why}")

    def break_off(self) -> None:
        self._end_words()

    def way_back(self, session: str, *, owned: bool, needs: Sequence[str] = ()) -> None:
        self._end_words()
        if self._idle and not owned:
            # To be led back to where nothing is left to do would be a circle.
            self._note(f'go on with: outlast run --session {quote(session)} "..."', dim=True)
            return
        self._note(f"to come back: {way_back_words(session, owned=owned, needs=needs)}", dim=True)

    def _announce(self, request_id: str) -> None:
        """What the turn that begins was asked. A command's own first turn needs no such line."""
        if request_id in self.typed_here or (request_id == self.only_turn and not self._announced):
            return
        self._announced = True
        self._seen_to_begin.add(request_id)
        self._end_words()
        self._note(f"> {self._inputs.get(request_id, '')}")

    def _follow_input(self, record: Record) -> None:
        """An input that joined a running turn has that turn's words as its result."""
        body = record.body
        if isinstance(body, InputAccepted | InputReturned):
            self._waiting.add(body.request_id)
        elif isinstance(body, TurnStarted | InputJoined | InputCancelled):
            self._waiting.discard(body.request_id)
        if isinstance(body, InputAccepted):
            self._inputs[body.request_id] = first_line(text_of(body.content))
            if body.request_id == self.only_turn:
                self._from_its_start = True
        elif isinstance(body, TurnStarted):
            self._announce(body.request_id)
        elif isinstance(body, InputJoined) and body.request_id == self.only_turn and record.turn is not None:
            self.only_turn = record.turn
            self._from_its_start = False

    def _foreign(self, turn: str | None) -> bool:
        return self.only_turn is not None and turn not in (None, self.only_turn)

    def _words(self, text: str, *, beside: bool = False) -> None:
        """`beside`: of another turn than the one whose words are the result; a pipe does not get them."""
        if not self._from_its_start and not beside:
            return
        screen = self._screen
        channel = screen.err if beside and not screen.out.is_terminal else screen.out
        channel.write(visible(text) if channel.is_terminal or beside else text)

    def _end_words(self) -> None:
        for channel in (self._screen.out, self._screen.err):
            if not channel.at_line_start:
                channel.write("\n")

    def _note(self, text: str, *, dim: bool = False) -> None:
        shown = visible(naming(text, self._session))
        self._screen.note(self._screen.err.dim(shown) if dim else shown)


def way_back_command(session: str, *, owned: bool = False) -> str:
    """The command line that leads back to the session, ready to be pasted: one that somebody runs is joined,
    any other restored."""
    return f"outlast {'attach' if owned else 'resume'} {quote(session)}"


def way_back_words(session: str, *, owned: bool = False, needs: Sequence[str] = ()) -> str:
    """The way back for people; `needs`: the effects without which nobody goes on with the session, and which
    no command has."""
    if owned or not needs:
        return way_back_command(session, owned=owned)
    return f"start the program that has {', '.join(needs)}"
