"""Carries out the commands from the inbox, all but close. Each is settled by a record that names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outlast.agents.absent import AbsentAgent
from outlast.errors import InvalidRecordError
from outlast.journal import Journal, Proposal
from outlast.records.envelope import Record
from outlast.state.model import State
from outlast.store.contract import Entry
from outlast.turns import patience
from outlast.turns.commanded import Act, Adopt, EndAgent, Look, StopTurn, Wait, Write, adopted, settled
from outlast.turns.driver import LoopDriver
from outlast.turns.requests import AdoptRequest
from outlast.turns.terminal import Ending


@dataclass
class Commands:
    """Takes the commands of one look at the inbox."""

    journal: Journal
    driver: LoopDriver
    look: Look

    @property
    def state(self) -> State:
        return self.journal.state

    async def take(self, entry: Entry, entries: Sequence[Entry]) -> None:
        """Carry out one command, or leave it for a later look or owner."""
        try:
            for act in self.look.acts(self.state, entry, entries):
                await self._do(act, entry)
        except InvalidRecordError as error:
            await self._decide(settled(entry, "refused", error.message).propose)

    async def _do(self, act: Act, entry: Entry) -> None:
        match act:
            case Write(propose):
                await self._decide(propose)
                self.driver.wake()
            case StopTurn():
                await self._stop(act)
            case EndAgent():
                await self.driver.end_agent(grace=0.0)
            case Adopt(request):
                await self._adopt(entry, request)
            case Wait():
                pass

    async def _stop(self, wanted: StopTurn) -> None:
        turn, stop = wanted.turn, wanted.stop
        asked = self.driver.stopping(turn)
        if not self.look.at_work:
            await self.driver.end_agent(grace=0.0)
            begun = self.state.open_turns[turn].attempt is not None
            nothing = None if begun else "no agent had been given it"
            await self.driver.close_turn(turn, Ending(stop=stop, interrupted=nothing))
        elif asked is None or (stop.reason == "killed" and asked.reason != "killed"):
            # What was asked before is settled at the next look, if the turn's end does not do it.
            self.driver.request_stop(turn, stop)
        # Another such wish waits: it is done when the turn has ended, and not before.

    async def _adopt(self, entry: Entry, request: AdoptRequest) -> None:
        if isinstance(self.driver.agent, AbsentAgent):
            # Only who knows where its program keeps sessions can claim one.
            if not self.driver.visits:
                await self._decide(settled(entry, "refused", "its agent is not configured here").propose)
            return
        # Claimed before it is bound: whoever comes second is refused, also in another store. A claim whose
        # owner was killed here is this session's again when the next one takes the same command.
        refused = await self._claimed(request)
        if refused:
            await self._decide(settled(entry, "refused", refused).propose)
            return
        await self._decide(lambda state: adopted(state, entry, request))
        if self._provider_session == request.provider_session:
            await self.driver.adopted()

    async def _claimed(self, request: AdoptRequest) -> str:
        if self._provider_session not in (None, request.provider_session):
            return "its agent has a session of its own already"
        return await self.driver.claim_adopted(request.provider_session)

    @property
    def _provider_session(self) -> str | None:
        return self.state.loops[self.state.root or ""].provider_session

    async def _decide(self, propose: Callable[[State], Proposal | None]) -> list[Record]:
        return await patience.decide(self.journal, propose, at="actor.command")
