"""The turns of `outlast resume`, one after another: each begins with its ids and ends with its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlast.cli.exits import Exit, exit_of_outcome
from outlast.journal import read_records
from outlast.records.types import TurnAttached, TurnAttemptStarted, TurnRetried, TurnStarted
from outlast.runtime.awaiting import TERMINALS
from outlast.runtime.outcome import Terminal, outcome_of
from outlast.state.turn_text import TurnText

if TYPE_CHECKING:
    from outlast.cli.present import Presenter
    from outlast.records.envelope import Record
    from outlast.store.contract import Store

_BEGINS = (TurnStarted, TurnRetried, TurnAttached)
_BEGINS_TEXT = (TurnStarted, TurnRetried, TurnAttemptStarted)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A turn's end that may still be taken back by the rest of its batch."""

    body: Terminal
    seq: int
    settled_at: int
    """A batch is atomic: where the journal ended when this was read, it is complete."""


class Blocks:
    """Follows the record stream alone: nothing here waits for a turn, so a turn that goes on after its end
    (an interrupted one that is sent again) stops nobody from seeing what it does next."""

    def __init__(self, session: str, store: Store, presenter: Presenter) -> None:
        self._session = session
        self._store = store
        self._presenter = presenter
        self._open: str | None = None
        self._ended: dict[str, _Ended] = {}
        self._texts: dict[str, TurnText] = {}
        self._whole: set[str] = set()
        """Turns whose text was seen from its beginning."""
        self._outcomes: dict[str, str] = {}

    async def before(self, record: Record) -> None:
        """The line that begins a turn comes before the record that does."""
        turn = record.turn
        if turn is None or turn == self._open or not isinstance(record.body, (*_BEGINS, *TERMINALS)):
            return
        if self._open is not None and self._open not in self._ended:
            return  # it stands within the block of the turn that runs
        await self._settle(record.seq - 1)
        self._begin(turn)

    async def after(self, record: Record) -> None:
        """The outcome comes after the record that settles it."""
        turn = record.turn
        if turn is not None:
            self._texts.setdefault(turn, TurnText(turn)).apply(record)
            if isinstance(record.body, _BEGINS_TEXT):
                self._whole.add(turn)
            if isinstance(record.body, TurnRetried):
                self._ended.pop(turn, None)
            elif isinstance(record.body, TERMINALS):
                tip = await self._store.tip(self._session)
                self._ended[turn] = _Ended(record.body, record.seq, tip.seq)
        if self._ended and all(ended.settled_at <= record.seq for ended in self._ended.values()):
            await self._settle(record.seq)

    async def finish(self, seq: int) -> None:
        """Tell what is not told yet of all that was shown up to `seq`, the end of a batch."""
        await self._settle(seq)

    def exit_code(self) -> int:
        """0 when every turn that ended here is done; 130 when the last one was cancelled; else 1."""
        codes = [exit_of_outcome(outcome) for outcome in self._outcomes.values()]
        if codes and codes[-1] is Exit.INTERRUPTED:
            return Exit.INTERRUPTED
        return Exit.OK if all(code is Exit.OK for code in codes) else Exit.FAILED

    def _begin(self, turn: str) -> None:
        self._open = turn
        self._presenter.accepted(self._session, turn)

    async def _settle(self, seq: int) -> None:
        if self._open is not None and self._open not in self._ended:
            return  # what ended within the block of another turn is told after it
        ended, self._ended = self._ended, {}
        # The turn whose block is open comes first.
        for turn, end in sorted(ended.items(), key=lambda item: item[0] != self._open):
            outcome = outcome_of(self._session, turn, end.body, await self._text(turn, seq))
            if turn != self._open:
                self._begin(turn)
            self._presenter.outcome(outcome)
            self._outcomes.pop(turn, None)  # the newest is the last
            self._outcomes[turn] = outcome.outcome
            self._open = None

    async def _text(self, turn: str, seq: int) -> str:
        """The text of an ended turn. What lies before the place from which on records were shown is read
        once: only the turn that was running there, whose agent lived on, has such a part."""
        text = self._texts.pop(turn)
        if turn not in self._whole:
            text = TurnText(turn)
            async for record in read_records(self._store, self._session):
                if record.seq > seq:
                    break
                text.apply(record)
        self._whole.discard(turn)
        return text.text
