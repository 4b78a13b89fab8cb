"""What a resume makes of the commands that wait in the inbox, and which turns run then: the restore, and its
owner's first looks at the inbox, by the same rules over the state alone (pure).

An agent that lives may end its turn at any moment: what depends on how it ends is not told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlast.agents.contract import TurnEnded
from outlast.clock import Micros
from outlast.errors import InvalidRecordError
from outlast.journal import Proposal
from outlast.records.agent_state import AgentSessionDecided, LostChoice
from outlast.records.envelope import Draft, Record
from outlast.records.types import (
    CommandSettled,
    Fence,
    GateResolved,
    InputCancelled,
    LoopChanged,
    PlannedTurn,
    SessionStopped,
    TurnAttached,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
)
from outlast.restore.ahead import Ahead, PlannedCommand, StaysParked
from outlast.restore.facts import AgentFacts, Facts
from outlast.restore.plan import RestorePlan
from outlast.restore.repairs import closing_gates, quick_repairs, slow_ending, stop_asked_for, stops_among
from outlast.state.model import State
from outlast.state.supposed import Supposed
from outlast.store.contract import Entry
from outlast.turns.accepting import accepted, closed, held_no_more
from outlast.turns.answers import Given
from outlast.turns.commanded import Act, Adopt, Look, StopTurn, Write, adopted, settled
from outlast.turns.decided import waiting_commands
from outlast.turns.effects import Effects
from outlast.turns.lost import OnLost, held_by_loss, with_loss
from outlast.turns.reopening import needs
from outlast.turns.requests import HoldRequest, decode
from outlast.turns.retrying import Judging
from outlast.turns.terminal import AfterFailure, Ending, Stop, close, host_done

Result = Literal["done", "too_late", "refused", "waits"]

_SESSIONS: dict[LostChoice, str] = {
    "put_back": "what was captured of the agent's session is put back",
    "as_is": "the agent's session is resumed as it is",
    "reseed": "a new agent session begins that is told what happened",
    "fresh": "a new agent session begins",
}


@dataclass(frozen=True, slots=True)
class Around:
    """What the first looks go by beside the state: of the process, of the root loop's agent, of the inbox."""

    effects: Effects = field(default_factory=Effects)
    steers: bool = False
    holds_prompts: bool = False
    after_failure: AfterFailure = "continue"
    on_lost: OnLost = "ask"
    opening: tuple[Draft, ...] = ()
    """The first records of a session without a journal."""
    pending: tuple[Entry, ...] = ()
    given: Mapping[str, Given] = field(default_factory=dict)
    """Of questions that are open no more, the answers that they had."""


def foresee(state: State, facts: Facts, chosen: RestorePlan, around: Around) -> tuple[State, Ahead]:
    """What `chosen`, the plan for `state`, leads to, and the state before the first turn is begun."""
    if chosen.starts and not around.opening:
        return state, Ahead(_kept(around.pending, "its agent is not configured here"), inputs=chosen.inbox)
    lacks = () if chosen.starts else needs(state, around.pending, around.effects)
    looking = _Looking(Supposed(state), around, visits=bool(lacks), given=dict(around.given))
    if chosen.starts:
        looking.on.add([_fence(state), *around.opening])
    else:
        looking.restore(facts, chosen)
    looking.on.add(list(held_no_more(looking.state)))
    looking.look()
    held = looking.held()
    return looking.state, Ahead(
        commands=tuple(looking.commands()),
        parked=(*_parked(looking.state), *(held[turn] for turn in looking.state.queue if turn in held)),
        inputs=len(state.queue) + sum(entry.kind == "input" for entry in around.pending),
        runs=() if lacks else tuple(turn for turn in _runs(looking.state) if turn not in held),
        stays=_stays(looking.state),
        lacks=lacks,
    )


@dataclass(slots=True)
class _Looking:
    """A restore, and the looks at the inbox after it until one finds nothing more to do."""

    on: Supposed
    around: Around
    visits: bool
    at_work: bool = False
    settled: set[str] = field(default_factory=set)
    given: dict[str, Given] = field(default_factory=dict)
    told: dict[str, tuple[Result, str]] = field(default_factory=dict)
    """Of each command that was carried out, or was not, what it led to."""

    @property
    def state(self) -> State:
        return self.on.state

    # --- the restore -----------------------------------------------------------------------------

    def restore(self, facts: Facts, chosen: RestorePlan) -> None:
        self.on.add([_fence(self.state), *quick_repairs(self.state, chosen)])
        for turn in chosen.turns:
            agent = facts.agents.get(turn.loop)
            if turn.action == "attach":
                self._attach(turn, agent)
            elif turn.action in ("settle", "interrupt") and agent is not None:
                self._close(turn.turn, self._ending(turn, agent))
        self.on.add(closing_gates(self.state, chosen))

    def _attach(self, turn: PlannedTurn, agent: AgentFacts | None) -> None:
        generation = "" if agent is None else agent.generation or ""
        attempts = self.state.open_turns[turn.turn].attempts
        attached = TurnAttached(attempt=attempts, generation=generation, spool_offset=0)
        self.on.add([Draft(body=attached, loop=turn.loop, turn=turn.turn)])
        self.at_work = turn.loop == self.state.root

    def _ending(self, turn: PlannedTurn, agent: AgentFacts) -> Ending:
        judging = Judging(Micros(0), agent.retry_attempts)
        if turn.action == "settle":
            cancelled = agent.terminal == "cancelled"
            return Ending(
                ended=TurnEnded(turn.turn, cancelled=cancelled, failure=agent.failure), judging=judging
            )
        return slow_ending(turn, agent, stop_asked_for(self.around.pending, turn.turn))

    def _close(self, turn: str, ending: Ending) -> None:
        proposal = host_done(self.state, turn, ending)
        if proposal is None:
            closing = close(self.state, turn, ending, self.around.after_failure)
            proposal = with_loss(self.state, turn, closing, self.around.on_lost)
        self._write(proposal)

    # --- the looks -------------------------------------------------------------------------------

    def look(self) -> None:
        """Until nothing that waits changes anything any more."""
        while True:
            entries = [entry for entry in self.around.pending if entry.request_id not in self.settled]
            stop, look = self._commands(entries)
            closing = next((entry for entry in entries if entry.kind == "close"), None)
            if closing is not None:
                self._closed(closing, stop)
                return
            inputs = [e for e in entries if e.kind == "input" and e.request_id not in look.consumed]
            if inputs:
                self._write(self._accept(self.state, inputs))
            self._go_on_after_stops()
            if stop is None:
                return
            self._stopped(stop)

    def _commands(self, entries: Sequence[Entry]) -> tuple[StopTurn | None, Look]:
        """Those of one look; and the stop of the turn at work among them, of which a kill is the stronger."""
        look = Look(
            self._accept,
            self.around.effects,
            at_work=self.at_work,
            visits=self.visits,
            holds_prompts=self.around.holds_prompts,
            given=self.given,
        )
        stop: StopTurn | None = None
        for entry in entries:
            if entry.kind in ("input", "close") or entry.request_id in self.settled:
                continue
            for act in look.acts(self.state, entry, entries):
                if isinstance(act, StopTurn) and self.at_work:
                    stronger = stop is not None and act.stop.reason == "killed" != stop.stop.reason
                    stop = act if stop is None or stronger else stop
                else:
                    self._try(act, entry)
        return stop, look

    def _try(self, act: Act, entry: Entry) -> None:
        try:
            self._do(act, entry)
        except InvalidRecordError as error:
            self._do(settled(entry, "refused", error.message), entry)

    def _do(self, act: Act, entry: Entry) -> None:
        match act:
            case Write(propose):
                self._write(propose(self.state))
            case StopTurn(turn, stop):
                begun = self.state.open_turns[turn].attempt is not None
                nothing = None if begun else "no agent had been given it"
                self._close(turn, Ending(stop=stop, interrupted=nothing))
            case Adopt(request):
                self._write(adopted(self.state, entry, request))
            case _:
                pass

    def _go_on_after_stops(self) -> None:
        """Of a cancel that waited, and of whoever resumes after it, the last word counts."""
        stops = stops_among(self.around.pending)
        going_on = list(held_no_more(self.state))
        if not stops or stops - self.settled or not going_on:
            return
        self.on.add(going_on)
        for request in stops & self.told.keys():
            result, leads_to = self.told[request]
            if result == "done":
                self.told[request] = result, f"{leads_to}; the resume then lets the queue go on"

    def _stopped(self, wanted: StopTurn) -> None:
        """A living agent's turn ends as a person wishes; what is told allows for an agent that is faster."""
        self._close(wanted.turn, Ending(stop=wanted.stop))
        self.at_work = False
        request = wanted.stop.request_id or ""
        if request in self.told:
            result, leads_to = self.told[request]
            self.told[request] = result, f"{leads_to}, unless its agent ends it first"

    def held(self) -> dict[str, StaysParked]:
        """Inputs that are parked as soon as the turn at work has ended, before any of them begins."""
        waiting = (e for e in self.around.pending if e.kind == "hold" and e.request_id not in self.settled)
        requests = (decode(HoldRequest, entry.body) for entry in waiting)
        return {
            turn: StaysParked(turn, request.reason)
            for request in requests
            for turn in request.inputs
            if turn in self.state.queue
        }

    def _closed(self, entry: Entry, stop: StopTurn | None) -> None:
        running = self.state.running
        if running is not None:
            wish = Stop("closed", entry.actor) if stop is None else stop.stop
            self._close(running.turn, Ending(stop=wish))
        earlier = [
            e
            for e in self.around.pending
            if e.kind == "input" and e.order < entry.order and e.request_id not in self.settled
        ]
        if earlier:
            self._write(self._accept(self.state, earlier))
        self._write(closed(self.state, entry))

    def _accept(self, state: State, entries: Sequence[Entry]) -> Proposal:
        return accepted(state, entries, at_work=self.at_work, steers=self.around.steers)

    def _write(self, proposal: Proposal) -> None:
        """Add the records; what those that settle a command lead to is told of it."""
        before = len(self.on.records)
        gates = self.state.gates
        self.on.add(proposal.drafts)
        records = self.on.records[before:]
        for request, _ in proposal.settle:
            self.settled.add(request)
            about = [r for r in records if r.cause == request or _settles(r.body, request)]
            runtime = {gate for gate, asked in gates.items() if asked.opened.resolver == "runtime"}
            self.told[request] = (_result(about, request), "; ".join(_leads_to(about, runtime)))

    # --- what is told ----------------------------------------------------------------------------

    def commands(self) -> Iterator[PlannedCommand]:
        """All that waited, in their order."""
        running = self.state.running
        for asked in waiting_commands(self.around.pending):
            until = "it is kept for an owner that has what its turn owes"
            if running is not None and not self.visits:
                until = f"it waits until turn {running.turn} has ended"
            result, leads_to = self.told.get(asked.request_id, ("waits", until))
            yield PlannedCommand(asked, result, leads_to)


def _fence(state: State) -> Draft:
    return Draft(body=Fence(epoch=state.epoch + 1, holder="", previous_epoch=state.epoch))


def _kept(pending: Sequence[Entry], why: str) -> tuple[PlannedCommand, ...]:
    return tuple(PlannedCommand(asked, "waits", why) for asked in waiting_commands(pending))


def _settles(body: object, request: str) -> bool:
    return isinstance(body, CommandSettled) and body.request_id == request


def _result(records: Sequence[Record], request: str) -> Result:
    for record in records:
        if isinstance(record.body, CommandSettled) and record.body.request_id == request:
            return record.body.outcome
    return "done"


def _leads_to(records: Sequence[Record], of_runtime: set[str]) -> Iterator[str]:
    """In words, each part of a sentence."""
    for record in records:
        match record.body:
            case CommandSettled() as body:
                said = _settled(record, body)
            case GateResolved() as body:
                said = _answered(body, of_runtime)
            case _:
                said = _told_of(record)
        if said:
            yield said


def _settled(record: Record, body: CommandSettled) -> str:
    if body.command == "answer" and body.outcome == "done" and not body.detail:
        return "the question has that answer already"
    if body.detail or record.turn is None or body.outcome != "done":
        return body.detail
    done = {"skip": "is left as it is", "retry": "is tried now"}.get(body.command)
    return f"turn {record.turn} {done}" if done else ""


def _answered(body: GateResolved, of_runtime: set[str]) -> str:
    if body.reason != "answered":
        return ""
    return f"the question is answered {body.answer}" + (
        "" if body.gate in of_runtime else ", which the agent is told"
    )


def _told_of(record: Record) -> str:
    match record.body:
        case AgentSessionDecided(choice=choice):
            return _SESSIONS[choice]
        case TurnRetried(mode=mode):
            return f"turn {record.turn} {'runs again' if mode == 'again' else 'goes on'}"
        case InputCancelled(request_id=request):
            return f"input {request} is taken back"
        case TurnInterrupted(reason=reason):
            return f"turn {record.turn} ends: it was {reason}"
        case TurnParked():
            return f"turn {record.turn} is parked"
        case SessionStopped():
            return "the session is closed"
        case LoopChanged(state="active"):
            return "the queue goes on"
        case _:
            return ""


def _parked(state: State) -> Iterator[StaysParked]:
    for turn, closed_as in state.parked.items():
        yield StaysParked(turn, closed_as.reason)


def _runs(state: State) -> Iterator[str]:
    running = state.running
    if state.stopped is not None:
        return
    if running is not None:
        yield running.turn
    if not state.loops[state.root or ""].held:
        yield from state.queue


def _stays(state: State) -> Literal["", "held", "held_by_loss", "closed"]:
    """Why inputs that wait then do not run."""
    root = state.root or ""
    if state.stopped is not None:
        return "closed"
    if held_by_loss(state, root):
        return "held_by_loss"
    return "held" if state.loops[root].held else ""
