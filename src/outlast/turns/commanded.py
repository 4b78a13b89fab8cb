"""What the owner of a session does about each command that waits in its inbox: by the folded state alone
(pure). The owner does it, `runtime.commands`; a plan foresees it, `restore.foreseen`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlast.errors import InvalidRecordError
from outlast.journal import Proposal
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
from outlast.state.choices import chosen
from outlast.state.delays import delayed
from outlast.state.effect_rules import settleable
from outlast.state.model import OpenGate, State
from outlast.store.contract import Entry
from outlast.turns.answers import Given
from outlast.turns.effects import Effects, lacking, still_owed
from outlast.turns.holding import held_inputs
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
from outlast.turns.terminal import Stop

_STOPS: Mapping[str, Literal["killed", "skipped"]] = {"kill": "killed", "skip": "skipped"}

Result = Literal["done", "too_late", "refused"]
Accept = Callable[[State, Sequence[Entry]], Proposal]
"""The records that accept these inputs."""


@dataclass(frozen=True, slots=True)
class Write:
    """Records that carry the command out, or say why not, made of the state that they follow on."""

    propose: Callable[[State], Proposal]


@dataclass(frozen=True, slots=True)
class StopTurn:
    """The open turn is to end, as a person wishes."""

    turn: str
    stop: Stop


@dataclass(frozen=True, slots=True)
class EndAgent:
    """The agent's process tree is to end: no turn is at work."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """The agent is to go on with a session that began elsewhere, once that is claimed."""

    request: AdoptRequest


@dataclass(frozen=True, slots=True)
class Wait:
    """It is for a later look: when the open turn has ended, another stop has done it, or an owner comes that
    has the effects that it needs."""


Act = Write | StopTurn | EndAgent | Adopt | Wait


@dataclass
class Look:
    """The commands of one look at the inbox, in their order."""

    accept: Accept
    effects: Effects
    at_work: bool
    """A task is on the open turn; else nobody is, and nobody will be before these commands are done."""
    visits: bool = False
    """The owner came for commands alone."""
    holds_prompts: bool = False
    """The agent's session tells whether it holds the input of a turn."""
    consumed: set[str] = field(default_factory=set)
    """Inputs that a command settled together with itself."""
    deferred: set[str] = field(default_factory=set)
    """Commands that wait for the running turn to end."""
    given: dict[str, Given] = field(default_factory=dict)
    """Answers that questions have had which are open no more, by gate."""
    left: list[Unable] = field(default_factory=list)
    """Commands that wait for an owner with the effects of their turn: this one only visits."""

    def acts(self, state: State, entry: Entry, entries: Sequence[Entry]) -> list[Act]:
        """What is done about `entry`, one of `entries`, in this order."""
        try:
            return self._acts(state, entry, entries)
        except InvalidRecordError as error:
            # It would end every owner, one after another.
            return [settled(entry, "refused", error.message)]

    def _acts(self, state: State, entry: Entry, entries: Sequence[Entry]) -> list[Act]:
        beyond = next(unable(state, [entry], self.effects), None)
        if beyond is not None and self.visits:
            self.left.append(beyond)
            return [Wait()]
        if beyond is not None and entry.kind == "answer":
            return [settled(entry, "refused", _told(beyond.missing))]
        match entry.kind:
            case "cancel" | "kill":
                acts = self._stop(state, entry, entries)
            case "answer":
                acts = self._answer(state, entry)
            case "retry":
                request = decode(TurnRequest, entry.body)
                acts = [Write(lambda state: self._retried(state, entry, request))]
            case "skip":
                acts = self._skip(state, entry)
            case "settle":
                acts = self._settle_effect(state, entry)
            case "adopt":
                acts = [Adopt(decode(AdoptRequest, entry.body))]
            case "hold":
                acts = self._hold(state, entry, entries)
            case _:
                acts = [settled(entry, "refused", "this outlast does not know the command")]
        return acts

    # --- cancel and kill ---------------------------------------------------------------------

    def _stop(self, state: State, entry: Entry, entries: Sequence[Entry]) -> list[Act]:
        running = state.running
        target = decode(StopRequest, entry.body).turn
        taken = [each for each in self.left if each.turn == target]
        self.left = [each for each in self.left if each not in taken]
        acts: list[Act] = [settled(each.entry, "refused", "it was taken back") for each in taken]
        if running is not None and target == running.turn:
            acts.append(_stopping(entry, running.turn))
        elif target in self.consumed:
            acts.append(Wait())  # Another cancel took it just now; the next look finds it gone.
        elif target is not None and any(e.request_id == target and e.kind == "input" for e in entries):
            self.consumed.add(target)
            acts.append(Write(lambda state: _taken_back(state, entry, target)))
        elif entry.kind == "kill" and running is None and target not in state.queue:
            told = "no turn was running; no agent of the session is left"
            acts += [EndAgent(), settled(entry, "done", told)]
        elif taken:
            words = ", ".join(each.entry.kind for each in taken)
            told = f"taken back, no owner had it yet: {words} of turn {target}"
            acts.append(settled(entry, "done", told))
        elif target is None and running is None:
            earlier = [e for e in entries if e.kind == "input" and e.order < entry.order]
            waiting = [e for e in earlier if e.request_id not in self.consumed]
            self.consumed.update(e.request_id for e in waiting)
            acts.append(Write(lambda state: self._hold_queue(state, entry, waiting)))
        else:
            acts.append(Write(lambda state: _stop_waiting(state, entry, target)))
        return acts

    def _hold_queue(self, state: State, entry: Entry, waiting: Sequence[Entry]) -> Proposal:
        """A cancel that found nothing at work: what was sent before it is not begun. In one batch with the
        acceptance of those inputs, or the next owner would take them for new ones, that end the hold."""
        count = len(state.queue) + len(waiting)
        if not count:
            return _settled(state, entry, "too_late", "no turn is running")
        accepted = self.accept(state, waiting) if waiting else Proposal(())
        held = _draft(state, entry, LoopChanged(state="held", reason="cancelled"))
        told = f"no turn was running; the queue is held ({count} waiting)"
        done = CommandSettled(request_id=entry.request_id, command=entry.kind, outcome="done", detail=told)
        drafts = (*accepted.drafts, held, _draft(state, entry, done))
        return Proposal(drafts, (*accepted.settle, (entry.request_id, len(drafts) - 1)))

    # --- gates ---------------------------------------------------------------------------------

    def _answer(self, state: State, entry: Entry) -> list[Act]:
        request = decode(AnswerRequest, entry.body)
        gate = state.gates.get(request.gate)
        if gate is not None and state.open_turns and reopens(state, gate, request.choice):
            return self._defer(entry)
        return [Write(lambda state: self._answered(state, entry, request))]

    def _answered(self, state: State, entry: Entry, request: AnswerRequest) -> Proposal:
        gate, before = state.gates.get(request.gate), self.given.get(request.gate)
        if gate is None and before is not None and before.same(request.choice):
            return _settled(state, entry, "done", "")
        if gate is None:
            told = "the gate is not open any more" if before is None else before.told
            return _settled(state, entry, "too_late", told)
        choice = chosen(request.choice, gate.choices)
        if choice is None:
            known = ", ".join(each.id for each in gate.choices)
            return _settled(state, entry, "refused", f"no such choice; there are: {known}")
        by = request.by or entry.actor
        self.given[gate.gate] = Given(choice, by, tuple(gate.choices))
        resolved = GateResolved(gate=gate.gate, reason="answered", answer=choice, by=by)
        bodies = _consequences(state, gate, choice, entry)
        return _proposal(state, entry, resolved, *bodies, turn=gate.turn)

    # --- retry and skip ------------------------------------------------------------------------

    def _retried(self, state: State, entry: Entry, request: TurnRequest) -> Proposal:
        wanted, root = request.turn, state.root or ""
        decided = [] if request.session is None else decision(state, root, request.session, entry.actor)
        waits = delayed(state, wanted)
        if waits is not None:
            # It is tried again as was planned, only now.
            done = CommandSettled(request_id=entry.request_id, command="retry", outcome="done")
            return _proposal(state, entry, done, *decided, *_active(state, root), turn=waits)
        if state.open_turns:
            return _settled(state, entry, "refused", "a turn is running; ask again when it has ended")
        closed = retryable(state, wanted or "")
        if closed is None:
            told = "that turn was done, is about to run, or is too long ago"
            return _settled(state, entry, "too_late", told)
        missing = lacking(closed.owed, self.effects)
        if missing:
            return _settled(state, entry, "refused", _told(missing))
        owed = None if closed.owed else self.effects.planned() or None
        mode = by_person(closed, holds_prompts=self.holds_prompts)
        again = TurnRetried(by=entry.actor or "a person", mode=mode, effects=owed)
        gates = _abandoned_gates(state, closed.turn, entry)
        active = _active(state, closed.loop)
        return _proposal(state, entry, again, *decided, *gates, *active, turn=closed.turn)

    def _skip(self, state: State, entry: Entry) -> list[Act]:
        wanted = decode(TurnRequest, entry.body).turn
        waits = delayed(state, wanted)
        if waits in state.open_turns:
            return [_stopping(entry, waits)]
        return [Write(lambda state: _skipped(state, entry, wanted))]

    # --- an effect that nobody knows of --------------------------------------------------------

    def _settle_effect(self, state: State, entry: Entry) -> list[Act]:
        request = decode(SettleRequest, entry.body)
        if state.open_turns:
            return self._defer(entry)  # The turn goes on then, and two cannot.
        return [Write(lambda state: self._effect_settled(state, entry, request))]

    def _effect_settled(self, state: State, entry: Entry, request: SettleRequest) -> Proposal:
        closed = settleable(state, request.turn)
        effect = None if closed is None else closed.effects.get(request.effect)
        if closed is None or effect is None or effect.outcome == "done":
            return _settled(state, entry, "too_late", "that effect is done, or its turn is over")
        if request.seen not in (None, effect.seq):
            return _settled(state, entry, "too_late", "that effect has begun again, or was settled, since")
        missing = lacking(still_owed(closed), self.effects)
        if missing:
            return _settled(state, entry, "refused", _told(missing))
        said = EffectSettled(
            effect=effect.effect,
            outcome=request.outcome,
            by="person",
            result=request.result,
            reason=request.reason,
        )
        resumed = TurnRetried(by=entry.actor or "a person", mode="continue")
        gates = _abandoned_gates(state, closed.turn, entry)
        active = _active(state, closed.loop)
        return _proposal(state, entry, said, *gates, resumed, *active, turn=closed.turn)

    # --- hold ----------------------------------------------------------------------------------

    def _hold(self, state: State, entry: Entry, entries: Sequence[Entry]) -> list[Act]:
        request = decode(HoldRequest, entry.body)
        if self.at_work or any(turn not in request.inputs for turn in state.open_turns):
            return self._defer(entry)  # What is at work has begun since, and ends first.
        waiting = [e for e in entries if e.kind == "input" and e.request_id in request.inputs]
        waiting = [e for e in waiting if e.request_id not in self.consumed]
        self.consumed.update(e.request_id for e in waiting)
        return [Write(lambda state: self._parked(state, entry, request, waiting))]

    def _parked(self, state: State, entry: Entry, request: HoldRequest, waiting: Sequence[Entry]) -> Proposal:
        accepted = self.accept(state, waiting) if waiting else Proposal(())
        parked = held_inputs(state, accepted.drafts, request, entry.actor)
        if not parked:
            return _settled(state, entry, "too_late", "none of the inputs waits any more")
        done = CommandSettled(request_id=entry.request_id, command=entry.kind, outcome="done")
        drafts = (*accepted.drafts, *parked, _draft(state, entry, done))
        return Proposal(drafts, (*accepted.settle, (entry.request_id, len(drafts) - 1)))

    def _defer(self, entry: Entry) -> list[Act]:
        self.deferred.add(entry.request_id)
        return [Wait()]


# --- what each leads to ------------------------------------------------------------------------------


def _stopping(entry: Entry, turn: str) -> StopTurn:
    return StopTurn(turn, Stop(_STOPS.get(entry.kind, "cancelled"), entry.actor, entry.request_id))


def _taken_back(state: State, entry: Entry, target: str) -> Proposal:
    cancelled = _draft(state, entry, InputCancelled(request_id=target, reason="cancelled"))
    return Proposal((cancelled,), ((entry.request_id, 0), (target, 0)))


def _stop_waiting(state: State, entry: Entry, target: str | None) -> Proposal:
    waiting = state.queue.get(target or "")
    if waiting is not None and waiting.reserved is not None:
        return _settled(state, entry, "too_late", "it was given to the running turn")
    if waiting is not None:
        cancelled = InputCancelled(request_id=waiting.request_id, reason="cancelled")
        # One that had begun before and waits to be tried again is cancelled as a running turn is.
        held = [LoopChanged(state="held", reason="cancelled")] if waiting.delay is not None else []
        return _proposal(state, entry, cancelled, *held)
    ended = None if target is None else retryable(state, target)
    if ended is not None and ended.outcome == "cancelled":
        return _settled(state, entry, "done", "")
    over = "a turn has begun since" if target is None else "that turn is over"
    return _settled(state, entry, "too_late", over)


def _consequences(state: State, gate: OpenGate, choice: str, entry: Entry) -> list[Body]:
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


def _skipped(state: State, entry: Entry, wanted: str | None) -> Proposal:
    waits = delayed(state, wanted)
    if waits in state.queue:
        return _proposal(state, entry, InputCancelled(request_id=waits or "", reason="cancelled"))
    turn = wanted if wanted in state.parked else None
    root = state.root or ""
    if turn is None and (wanted is not None or not state.loops[root].held):
        return _settled(state, entry, "too_late", "no such turn is parked")
    if turn is None:
        active = LoopChanged(state="active", reason="a person skipped what it was held for")
        return _proposal(state, entry, active)
    done = CommandSettled(request_id=entry.request_id, command="skip", outcome="done")
    gates = _abandoned_gates(state, turn, entry)
    return _proposal(state, entry, done, *gates, *_active(state, root), turn=turn)


def adopted(state: State, entry: Entry, request: AdoptRequest) -> Proposal:
    """The agent has the session that is claimed for it, unless it has one of its own already."""
    has = state.loops[state.root or ""].provider_session
    if has == request.provider_session:
        return _settled(state, entry, "done", "it has it already")
    if has is not None:
        return _settled(state, entry, "refused", "its agent has a session of its own already")
    bound = AgentSessionChanged(
        provider=request.provider,
        provider_session=request.provider_session,
        state="confirmed" if request.confirmed else "bound",
        source="resumed",
        reason=request.reason,
    )
    done = CommandSettled(request_id=entry.request_id, command="adopt", outcome="done")
    return _proposal(state, entry, done, bound)


def settled(entry: Entry, outcome: Result, detail: str) -> Write:
    """The command comes to that, whatever the state."""
    return Write(lambda state: _settled(state, entry, outcome, detail))


def _settled(state: State, entry: Entry, outcome: Result, detail: str) -> Proposal:
    told = CommandSettled(request_id=entry.request_id, command=entry.kind, outcome=outcome, detail=detail)
    return _proposal(state, entry, told)


def _proposal(state: State, entry: Entry, *bodies: Body, turn: str | None = None) -> Proposal:
    """These records, the first of which settles the command."""
    drafts = tuple(_draft(state, entry, body, turn) for body in bodies)
    return Proposal(drafts, ((entry.request_id, 0),))


def _draft(state: State, entry: Entry, body: Body, turn: str | None = None) -> Draft:
    return Draft(body=body, loop=state.root, turn=turn, cause=entry.request_id, actor=entry.actor)


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
