"""Showing a followed session: as JSON lines, or as text for people. Same calls, two faces.

Nothing here holds a turn's text: it is printed as its records come, and read from the journal once more where
it is to be shown whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from outlast.cli.last_words import last_words
from outlast.cli.output import Screen, visible
from outlast.cli.shapes import AcceptedLine, WayBackLine
from outlast.cli.text import LiveText, Takeovers, failure_lines, first_line, pieces_of, receipt_line
from outlast.errors import naming
from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.records.public import public_line
from outlast.records.types import (
    InputAccepted,
    InputJoined,
    Receipt,
    TurnAttemptStarted,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnStarted,
)
from outlast.state.messages import text_of
from outlast.turns.lost import HELD

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

    def break_off(self) -> None:
        """What comes next on standard error is none of this presenter's."""
        ...

    def way_back(self, session: str, *, owned: bool) -> None:
        """How to come back to the session, at every exit; `owned`: somebody else runs it."""
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

    def break_off(self) -> None:
        """A line of JSON is always whole."""

    def way_back(self, session: str, *, owned: bool) -> None:
        self._screen.err_json_line(WayBackLine(session, way_back_command(session, owned=owned)))


class TextPresenter:
    """The agent's words on standard output as they come, everything else on standard error."""

    def __init__(
        self,
        screen: Screen,
        session: str,
        *,
        only_turn: str | None = None,
        looks_on: bool = False,
        attempts: Mapping[str, TurnAttemptStarted] = MappingProxyType({}),
        inputs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._screen = screen
        self._session = session
        self._live = LiveText()
        # Only who looks on is told that a process came to the session without anything to mend.
        self._takeovers = Takeovers(only_mended=not looks_on)
        self._inputs = dict(inputs)
        """First lines of inputs, by request."""
        self._announced = looks_on
        """A turn was announced: from then on every turn is, this command's own too."""
        self.typed_here: set[str] = set()
        """Inputs that stand on the screen already."""
        self._attempts = dict(attempts)
        """By turn: whose standard error tells more if it fails."""
        self._endings_told: set[str] = set()
        self.only_turn = only_turn
        """The turn whose words are the result. Those of turns that begin meanwhile are shown beside it."""
        self._seen_to_begin: set[str] = set()
        self._from_its_start = only_turn is None
        """The turn's input was seen: what is shown as it comes is all of it. A turn that somebody else had
        sent before under the same key is shown whole at its end."""

    async def accepted(self, session: str, turn: str) -> None:
        """Nothing to see: the words follow."""

    def record(self, record: Record) -> None:
        line = self._takeovers.see(record)
        if line is not None:
            self._note(line)
        self._follow_input(record)
        if isinstance(record.body, TurnAttemptStarted) and record.turn is not None:
            self._attempts[record.turn] = record.body
        foreign = self._foreign(record.turn)
        if foreign and record.turn not in self._seen_to_begin:
            return
        for piece in pieces_of(record, self._live):
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

    def _explain(self, turn: str, receipt: Receipt) -> None:
        attempt = self._attempts.get(turn)
        words = [] if attempt is None else last_words(attempt)
        for line in failure_lines(receipt, self._session, words):
            self._note(line)

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
        told = outcome.turn in self._endings_told
        if outcome.outcome == "failed" and not told:
            if outcome.receipt is None:
                self._note(f"the turn failed: {outcome.reason}" if outcome.reason else "the turn failed")
            else:
                self._note(f"the turn failed: {receipt_line(outcome.receipt)}")
                self._explain(outcome.turn, outcome.receipt)
        elif outcome.outcome in ("interrupted", "parked"):
            if not told:
                self._note(f"the turn was {outcome.outcome}: {outcome.reason}")
            self._note(self._ways_on(outcome, told=told))
        elif outcome.stop_reason == "lost":
            self._note("a repair cut its record away: it is not known whether it was carried out")
        elif outcome.outcome == "cancelled" and not told:
            self._note("cancelled")

    def _ways_on(self, outcome: Outcome, *, told: bool) -> str:
        """What a person can do about a turn that was interrupted or is parked."""
        which = f"{quote(self._session)} {quote(outcome.turn)}"
        again = f"outlast retry {which} runs it again, which may repeat what it had done"
        leave = f"outlast skip {which} leaves it"
        if outcome.outcome != "parked":
            return again
        if outcome.reason.startswith(HELD):
            # No agent was given it: there is nothing to repeat, and no retry without a choice.
            choose = f"outlast retry {which} with --put-back, --as-is, --reseed or --fresh goes on with it"
            return leave if told else f"{choose}; {leave}"
        return f"{again}; {leave}"

    async def waits(self, gate: str) -> None:
        """Nothing to see: the error says it."""

    def break_off(self) -> None:
        self._end_words()

    def way_back(self, session: str, *, owned: bool) -> None:
        self._end_words()
        self._note(f"to come back: {way_back_command(session, owned=owned)}", dim=True)

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
