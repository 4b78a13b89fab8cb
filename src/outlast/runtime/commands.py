"""Commands from the inbox, all but close. Each is settled by a record that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlast.agents.absent import AbsentAgent
from outlast.agents.transcript import HoldsPrompts
from outlast.errors import InvalidRecordError
from outlast.journal import Journal, Proposal
from outlast.records.effects import EffectSettled
from outlast.records.envelope import Draft
from outlast.records.types import (
    AgentSessionChanged,
    Body,
    CommandSettled,
    GateResolved,
    InputCancelled,
    LoopChanged,
    TurnRetried,
)
from outlast.runtime.holding import held_inputs
from outlast.state.choices import chosen
from outlast.state.delays import delayed
from outlast.state.effect_rules import settleable
from outlast.state.model import OpenGate, State
from outlast.store.contract import Entry
from outlast.turns import patience
from outlast.turns.driver import LoopDriver
from outlast.turns.effects import lacking, still_owed
from outlast.turns.lost import decision
from outlast.turns.reopening import Unable, of_parked, reopens, retryable, unable
from outlast.turns.requests import (
    AdoptRequest,
    AnswerRequest,
    HoldRequest,
    SettleRequest,
    StopRequest,
    TurnRequest,
    decode,
)
from outlast.turns.retrying import by_person
from outlast.turns.terminal import Ending, Stop

_STOPS: Mapping[str, Literal["killed", "skipped"]] = {"kill": "killed", "skip": "skipped"}

Result = Literal["done", "too_late", "refused"]
Accept = Callable[[State, Sequence[Entry]], Proposal]
"""The records that accept these inputs."""


@dataclass
class Commands:
    """Takes the commands of one look at the inbox."""

    journal: Journal
    driver: LoopDriver
    accept: Accept
    at_work: bool
    """A task is on the open turn; else nobody is, and nobody will be before these commands are done."""
    consumed: set[str] = field(default_factory=set)
    """Inputs that a command settled together with itself."""
    deferred: set[str] = field(default_factory=set)
    """Commands that wait for the running turn to end."""
    left: list[Unable] = field(default_factory=list)
    """Commands that wait for an owner with the effects of their turn: this one only visits."""

    @property
    def state(self) -> State:
        return self.journal.state

    async def take(self, entry: Entry, entries: Sequence[Entry]) -> None:
        """Carry out one command, or leave it for a later look or owner."""
        beyond = next(unable(self.state, [entry], self.driver.effects), None)
        if beyond is not None and self.driver.visits:
            self.left.append(beyond)
            return
        try:
            match entry.kind:
                case "answer" if beyond is not None:
                    await self._settle(entry, "refused", _told(beyond.missing))
                case "cancel" | "kill":
                    await self._stop(entry, entries)
                case "answer":
                    await self._answer(entry)
                case "retry":
                    await self._retry(entry)
                case "skip":
                    await self._skip(entry)
                case "settle":
                    await self._settle_effect(entry)
                case "adopt":
                    await self._adopt(entry)
                case "hold":
                    await self._hold(entry, entries)
                case _:
                    await self._settle(entry, "refused", "this outlast does not know the command")
        except InvalidRecordError as error:
            # It would end every owner, one after another.
            await self._settle(entry, "refused", error.message)

    # --- cancel and kill ---------------------------------------------------------------------

    async def _stop(self, entry: Entry, entries: Sequence[Entry]) -> None:
        running = self.state.running
        target = decode(StopRequest, entry.body).turn
        taken = [each for each in self.left if each.turn == target]
        for each in taken:
            await self._settle(each.entry, "refused", "it was taken back")
            self.left.remove(each)
        if running is not None and target == running.turn:
            await self._stop_running(entry, running.turn)
        elif target in self.consumed:
            return  # Another cancel took it just now; the next look finds it gone.
        elif target is not None and any(e.request_id == target and e.kind == "input" for e in entries):
            self.consumed.add(target)
            cancelled = self._draft(entry, InputCancelled(request_id=target, reason="cancelled"))
            await self._decide(lambda _: Proposal((cancelled,), ((entry.request_id, 0), (target or "", 0))))
        elif entry.kind == "kill" and running is None and target not in self.state.queue:
            await self.driver.end_agent(grace=0.0)
            await self._settle(entry, "done", "no turn was running; no agent of the session is left")
        elif taken:
            words = ", ".join(each.entry.kind for each in taken)
            await self._settle(entry, "done", f"taken back, no owner had it yet: {words} of turn {target}")
        elif target is None and running is None:
            earlier = [e for e in entries if e.kind == "input" and e.order < entry.order]
            waiting = [e for e in earlier if e.request_id not in self.consumed]
            await self._decide(lambda state: self._hold_queue(state, entry, waiting))
            self.consumed.update(e.request_id for e in waiting)
        else:
            await self._decide(lambda state: self._stop_waiting(state, entry, target))

    def _hold_queue(self, state: State, entry: Entry, waiting: Sequence[Entry]) -> Proposal:
        """A cancel that found nothing at work: what was sent before it is not begun. In one batch with the
        acceptance of those inputs, or the next owner would take them for new ones, that end the hold."""
        count = len(state.queue) + len(waiting)
        if not count:
            return self._settled(entry, "too_late", "no turn is running")
        accepted = self.accept(state, waiting) if waiting else Proposal(())
        held = self._draft(entry, LoopChanged(state="held", reason="cancelled"))
        told = f"no turn was running; the queue is held ({count} waiting)"
        settled = CommandSettled(request_id=entry.request_id, command=entry.kind, outcome="done", detail=told)
        drafts = (*accepted.drafts, held, self._draft(entry, settled))
        return Proposal(drafts, (*accepted.settle, (entry.request_id, len(drafts) - 1)))

    def _stop_waiting(self, state: State, entry: Entry, target: str | None) -> Proposal:
        waiting = state.queue.get(target or "")
        if waiting is not None and waiting.reserved is not None:
            return self._settled(entry, "too_late", "it was given to the running turn")
        if waiting is not None:
            cancelled = InputCancelled(request_id=waiting.request_id, reason="cancelled")
            # One that had begun before and waits to be tried again is cancelled as a running turn is.
            held = [LoopChanged(state="held", reason="cancelled")] if waiting.delay is not None else []
            return self._proposal(entry, cancelled, *held)
        ended = None if target is None else retryable(state, target)
        if ended is not None and ended.outcome == "cancelled":
            return self._settled(entry, "done", "")
        over = "a turn has begun since" if target is None else "that turn is over"
        return self._settled(entry, "too_late", over)

    async def _stop_running(self, entry: Entry, turn: str) -> None:
        stop = Stop(_STOPS.get(entry.kind, "cancelled"), entry.actor, entry.request_id)
        asked = self.driver.stopping(turn)
        if not self.at_work:
            await self.driver.end_agent(grace=0.0)
            begun = self.state.open_turns[turn].attempt is not None
            nothing = None if begun else "no agent had been given it"
            await self.driver.close_turn(turn, Ending(stop=stop, interrupted=nothing))
        elif asked is None or (stop.reason == "killed" and asked.reason != "killed"):
            # What was asked before is settled at the next look, if the turn's end does not do it.
            self.driver.request_stop(turn, stop)
        # Another such wish waits: it is done when the turn has ended, and not before.

    # --- gates ---------------------------------------------------------------------------------

    async def _answer(self, entry: Entry) -> None:
        request = decode(AnswerRequest, entry.body)
        gate = self.state.gates.get(request.gate)
        if gate is not None and self.state.open_turns and reopens(self.state, gate, request.choice):
            self.deferred.add(entry.request_id)
            return
        await self._decide(lambda state: self._answered(state, entry, request))
        self.driver.wake()

    def _answered(self, state: State, entry: Entry, request: AnswerRequest) -> Proposal:
        gate = state.gates.get(request.gate)
        if gate is None:
            return self._settled(entry, "too_late", "the gate is not open any more")
        choice = chosen(request.choice, gate.choices)
        if choice is None:
            known = ", ".join(each.id for each in gate.choices)
            return self._settled(entry, "refused", f"no such choice; there are: {known}")
        resolved = GateResolved(
            gate=gate.gate, reason="answered", answer=choice, by=request.by or entry.actor
        )
        bodies = self._consequences(state, gate, choice, entry)
        return self._proposal(entry, resolved, *bodies, turn=gate.turn)

    def _consequences(self, state: State, gate: OpenGate, choice: str, entry: Entry) -> list[Body]:
        """What the answer to a question of the runtime itself (`on_interrupt = ask`) leads to."""
        if not of_parked(state, gate):
            return []
        match choice:
            case "retry" | "continue":
                mode: Literal["again", "continue"] = "again" if choice == "retry" else "continue"
                return [TurnRetried(by=entry.actor or "a person", mode=mode)]
            case "skip":
                return [CommandSettled(request_id=entry.request_id, command="skip", outcome="done")]
            case "fresh" | "reseed" | "put_back" | "as_is":
                decided = decision(state, gate.loop, choice, entry.actor)
                again = TurnRetried(by=entry.actor or "a person", mode="again")
                return [*decided, again, *_active(state, gate.loop)]
            case _:
                return []

    # --- retry and skip ------------------------------------------------------------------------

    async def _retry(self, entry: Entry) -> None:
        request = decode(TurnRequest, entry.body)
        await self._decide(lambda state: self._retried(state, entry, request))
        self.driver.wake()

    def _retried(self, state: State, entry: Entry, request: TurnRequest) -> Proposal:
        wanted, root = request.turn, state.root or ""
        decided = [] if request.session is None else decision(state, root, request.session, entry.actor)
        waits = delayed(state, wanted)
        if waits is not None:
            # It is tried again as was planned, only now.
            settled = CommandSettled(request_id=entry.request_id, command="retry", outcome="done")
            return self._proposal(entry, settled, *decided, *_active(state, root), turn=waits)
        if state.open_turns:
            return self._settled(entry, "refused", "a turn is running; ask again when it has ended")
        closed = retryable(state, wanted or "")
        if closed is None:
            return self._settled(entry, "too_late", "that turn was done, is about to run, or is too long ago")
        missing = lacking(closed.owed, self.driver.effects)
        if missing:
            return self._settled(entry, "refused", _told(missing))
        owed = None if closed.owed else self.driver.effects.planned() or None
        mode = by_person(closed, holds_prompts=isinstance(self.driver.agent, HoldsPrompts))
        again = TurnRetried(by=entry.actor or "a person", mode=mode, effects=owed)
        gates = _abandoned_gates(state, closed.turn, entry)
        active = _active(state, closed.loop)
        return self._proposal(entry, again, *decided, *gates, *active, turn=closed.turn)

    async def _skip(self, entry: Entry) -> None:
        wanted = decode(TurnRequest, entry.body).turn
        waits = delayed(self.state, wanted)
        if waits in self.state.open_turns:
            await self._stop_running(entry, waits)
        else:
            await self._decide(lambda state: self._skipped(state, entry, wanted))

    def _skipped(self, state: State, entry: Entry, wanted: str | None) -> Proposal:
        waits = delayed(state, wanted)
        if waits in state.queue:
            return self._proposal(entry, InputCancelled(request_id=waits or "", reason="cancelled"))
        turn = wanted if wanted in state.parked else None
        root = state.root or ""
        if turn is None and (wanted is not None or not state.loops[root].held):
            return self._settled(entry, "too_late", "no such turn is parked")
        if turn is None:
            active = LoopChanged(state="active", reason="a person skipped what it was held for")
            return self._proposal(entry, active)
        settled = CommandSettled(request_id=entry.request_id, command="skip", outcome="done")
        gates = _abandoned_gates(state, turn, entry)
        return self._proposal(entry, settled, *gates, *_active(state, root), turn=turn)

    # --- an effect that nobody knows of --------------------------------------------------------

    async def _settle_effect(self, entry: Entry) -> None:
        request = decode(SettleRequest, entry.body)
        if self.state.open_turns:
            self.deferred.add(entry.request_id)  # The turn goes on then, and two cannot.
            return
        await self._decide(lambda state: self._effect_settled(state, entry, request))

    def _effect_settled(self, state: State, entry: Entry, request: SettleRequest) -> Proposal:
        closed = settleable(state, request.turn)
        effect = None if closed is None else closed.effects.get(request.effect)
        if closed is None or effect is None or effect.outcome == "done":
            return self._settled(entry, "too_late", "that effect is done, or its turn is over")
        if request.seen not in (None, effect.seq):
            return self._settled(entry, "too_late", "that effect has begun again, or was settled, since")
        missing = lacking(still_owed(closed), self.driver.effects)
        if missing:
            return self._settled(entry, "refused", _told(missing))
        settled = EffectSettled(
            effect=effect.effect,
            outcome=request.outcome,
            by="person",
            result=request.result,
            reason=request.reason,
        )
        resumed = TurnRetried(by=entry.actor or "a person", mode="continue")
        gates = _abandoned_gates(state, closed.turn, entry)
        return self._proposal(entry, settled, *gates, resumed, *_active(state, closed.loop), turn=closed.turn)

    # --- adopt ---------------------------------------------------------------------------------

    async def _adopt(self, entry: Entry) -> None:
        if isinstance(self.driver.agent, AbsentAgent):
            # Only who knows where its program keeps sessions can claim one.
            if not self.driver.visits:
                await self._settle(entry, "refused", "its agent is not configured here")
            return
        request = decode(AdoptRequest, entry.body)
        # Claimed before it is bound: whoever comes second is refused, also in another store. A claim whose
        # owner was killed here is this session's again when the next one takes the same command.
        refused = await self._claimed(request)
        if refused:
            await self._settle(entry, "refused", refused)
            return
        await self._decide(lambda state: self._adopted(state, entry, request))
        if self._provider_session == request.provider_session:
            await self.driver.adopted()

    async def _claimed(self, request: AdoptRequest) -> str:
        if self._provider_session not in (None, request.provider_session):
            return "its agent has a session of its own already"
        return await self.driver.claim_adopted(request.provider_session)

    @property
    def _provider_session(self) -> str | None:
        return self.state.loops[self.state.root or ""].provider_session

    def _adopted(self, state: State, entry: Entry, request: AdoptRequest) -> Proposal:
        has = state.loops[state.root or ""].provider_session
        if has == request.provider_session:
            return self._settled(entry, "done", "it has it already")
        if has is not None:
            return self._settled(entry, "refused", "its agent has a session of its own already")
        bound = AgentSessionChanged(
            provider=request.provider,
            provider_session=request.provider_session,
            state="confirmed" if request.confirmed else "bound",
            source="resumed",
            reason=request.reason,
        )
        settled = CommandSettled(request_id=entry.request_id, command="adopt", outcome="done")
        return self._proposal(entry, settled, bound)

    # --- hold ----------------------------------------------------------------------------------

    async def _hold(self, entry: Entry, entries: Sequence[Entry]) -> None:
        request = decode(HoldRequest, entry.body)
        if self.at_work:
            self.deferred.add(entry.request_id)  # What is at work has begun since, and ends first.
            return
        waiting = [e for e in entries if e.kind == "input" and e.request_id in request.inputs]
        waiting = [e for e in waiting if e.request_id not in self.consumed]
        await self._decide(lambda state: self._parked(state, entry, request, waiting))
        self.consumed.update(e.request_id for e in waiting)

    def _parked(self, state: State, entry: Entry, request: HoldRequest, waiting: Sequence[Entry]) -> Proposal:
        accepted = self.accept(state, waiting) if waiting else Proposal(())
        parked = held_inputs(state, accepted.drafts, request, entry.actor)
        if not parked:
            return self._settled(entry, "too_late", "none of the inputs waits any more")
        settled = CommandSettled(request_id=entry.request_id, command=entry.kind, outcome="done")
        drafts = (*accepted.drafts, *parked, self._draft(entry, settled))
        return Proposal(drafts, (*accepted.settle, (entry.request_id, len(drafts) - 1)))

    # --- settling ------------------------------------------------------------------------------

    async def _decide(self, propose: Callable[[State], Proposal | None]) -> None:
        await patience.decide(self.journal, propose, at="actor.command")

    async def _settle(self, entry: Entry, outcome: Result, detail: str) -> None:
        await self._decide(lambda _: self._settled(entry, outcome, detail))

    def _settled(self, entry: Entry, outcome: Result, detail: str) -> Proposal:
        return self._proposal(
            entry,
            CommandSettled(request_id=entry.request_id, command=entry.kind, outcome=outcome, detail=detail),
        )

    def _proposal(self, entry: Entry, *bodies: Body, turn: str | None = None) -> Proposal:
        """These records, the first of which settles the command."""
        drafts = tuple(self._draft(entry, body, turn) for body in bodies)
        return Proposal(drafts, ((entry.request_id, 0),))

    def _draft(self, entry: Entry, body: Body, turn: str | None = None) -> Draft:
        return Draft(body=body, loop=self.state.root, turn=turn, cause=entry.request_id, actor=entry.actor)


def _told(missing: Sequence[str]) -> str:
    return f"the turn owes {', '.join(missing)}, which this owner does not have"


def _active(state: State, loop: str) -> list[Body]:
    held = state.loops[loop].held
    return [LoopChanged(state="active", reason="a person decided")] if held else []


def _abandoned_gates(state: State, turn: str, entry: Entry) -> list[Body]:
    """Questions about a turn that a person has decided in another way."""
    return [
        GateResolved(gate=gate.gate, reason="abandoned", by=entry.actor)
        for gate in state.gates.values()
        if gate.turn == turn
    ]
