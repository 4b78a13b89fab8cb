"""The turns of `outlast resume`, one after another: each begins with its ids and ends with its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from outlast.cli.exits import Exit, exit_of_outcome
from outlast.records.types import InputCancelled, TurnAttached, TurnRetried, TurnStarted
from outlast.runtime.outcome import outcome_of
from outlast.runtime.texts import text_pieces
from outlast.state.turn_ends import TERMINALS, Ends

if TYPE_CHECKING:
    from outlast.cli.present import Presenter
    from outlast.records.envelope import Record
    from outlast.state.turn_ends import End
    from outlast.store.contract import Store

_BEGINS = (TurnStarted, TurnRetried, TurnAttached, *TERMINALS)


class Blocks:
    """Follows the record stream alone: nothing here waits for a turn, so a turn that goes on after its end
    (an interrupted one that is sent again) stops nobody from seeing what it does next.

    `begun` are the turns that are open where the stream begins (`begun_in`): whatever comes of one of them
    begins its block, which for a settled turn are its words.
    """

    def __init__(self, session: str, store: Store, presenter: Presenter, begun: Mapping[str, int]) -> None:
        self._session = session
        self._store = store
        self._presenter = presenter
        self._open: str | None = None
        self._open_before = set(begun)
        self._ends = Ends(begun)
        self._settled_at = 0
        """A batch is atomic: where the journal ended when a terminal was read, its batch is complete."""
        self._outcomes: dict[str, str] = {}

    async def before(self, record: Record) -> None:
        """The line that begins a turn comes before the record that does."""
        body = record.body
        if isinstance(body, InputCancelled) and body.reason == "damaged" and self._open is None:
            await self._begin(body.request_id)
        turn = record.turn
        if turn is None or turn == self._open:
            return
        if turn not in self._open_before and not isinstance(record.body, _BEGINS):
            return
        if self._open is not None and self._open not in self._ends:
            return  # it stands within the block of the turn that runs
        await self._settle()
        await self._begin(turn)

    async def after(self, record: Record) -> None:
        """The outcome comes after the record that settles it."""
        self._ends.apply(record)
        if isinstance(record.body, TERMINALS):
            self._settled_at = (await self._store.tip(self._session)).seq
        if self._ends and self._settled_at <= record.seq:
            await self._settle()

    async def finish(self) -> None:
        """Tell what is not told yet of all that was shown, up to the end of a batch."""
        await self._settle()

    @property
    def told(self) -> bool:
        """Whether anything had an outcome here."""
        return bool(self._outcomes)

    def exit_code(self) -> int:
        """0 when every turn that ended here is done; 130 when the last one was cancelled; else 1."""
        codes = [exit_of_outcome(outcome) for outcome in self._outcomes.values()]
        if codes and codes[-1] is Exit.INTERRUPTED:
            return Exit.INTERRUPTED
        return Exit.OK if all(code is Exit.OK for code in codes) else Exit.FAILED

    async def _begin(self, turn: str) -> None:
        self._open = turn
        await self._presenter.accepted(self._session, turn)

    async def _settle(self) -> None:
        if self._open is not None and self._open not in self._ends:
            return  # what ended within the block of another turn is told after it
        ended = self._ends.take().values()
        # The turn whose block is open comes first.
        for end in sorted(ended, key=lambda end: end.turn != self._open):
            if end.turn != self._open:
                await self._begin(end.turn)
            await self._tell(end)
            self._open = None

    async def _tell(self, end: End) -> None:
        outcome = outcome_of(self._session, end)
        await self._presenter.outcome(outcome, text_pieces(self._store, self._session, end))
        self._open_before.discard(end.turn)
        self._outcomes.pop(end.turn, None)  # the newest is the last
        self._outcomes[end.turn] = outcome.outcome
