"""What a restore will do: a pure, total function of the folded journal and the facts.

`outlast plan`, the restore itself and its `RestoreStarted` record all show the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from outlast.clock import Micros, isoformat
from outlast.records.types import PlannedRetry, PlannedTurn
from outlast.restore.ahead import Ahead
from outlast.restore.facts import AgentFacts, Facts, describe, describe_session
from outlast.state.delays import delay_json, delays
from outlast.state.lookup import steered_into
from outlast.state.model import Delay, Loop, OpenGate, OpenTurn, State
from outlast.turns.budget import spent
from outlast.turns.cut import Then, what_then, with_open_calls
from outlast.turns.effects import told
from outlast.turns.lost import by_itself, held_by_loss, ways_on
from outlast.turns.recovery import NextSession, drives, next_session
from outlast.turns.retrying import Judging, in_words, judged

ASKED_ITSELF = "the runtime asked it itself"


@dataclass(frozen=True, slots=True)
class PlannedLoop:
    """What happens to the agent process of a loop that has no turn to decide it."""

    loop: str
    action: Literal["attach", "end", "none"]
    generation: str | None
    evidence: str


@dataclass(frozen=True, slots=True)
class PlannedGate:
    gate: str
    action: Literal["keep", "close"]
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedWait:
    """A turn that failed and is not tried again before its time."""

    turn: str
    delay: Delay

    @property
    def line(self) -> str:
        """For people."""
        delay = self.delay
        return (
            f"turn {self.turn}: waits until {isoformat(delay.until)} because {delay.message or 'it failed'} "
            f"({delay.code}); retry {delay.retry} of {delay.of}"
        )


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Everything that a restore of `session` from journal position `tip` will do, with its reasons."""

    session: str
    tip: int
    starts: bool
    """The journal is empty: the session is started, not restored."""
    turns: tuple[PlannedTurn, ...] = ()
    loops: tuple[PlannedLoop, ...] = ()
    gates: tuple[PlannedGate, ...] = ()
    next_sessions: tuple[NextSession, ...] = ()
    """What the next start of each loop's agent does with the provider's session, where none lives on."""
    queued: int = 0
    inbox: int = 0
    held: bool = False
    held_by_loss: bool = False
    """No resume lets the queue go on: a person is to choose what becomes of the agent's session."""
    facts: tuple[str, ...] = ()
    verified_from: int = 0
    """As in the facts."""
    waits: tuple[PlannedWait, ...] = ()
    ahead: Ahead | None = None
    """Of a look around that changes nothing; a restore itself leaves the inbox to its owner."""

    def lines(self) -> list[str]:
        """For people, one sentence a line."""
        ahead = self.ahead or Ahead(inputs=self.queued + self.inbox)
        commands = [command.line for command in ahead.commands]
        if self.starts:
            new = f"session {self.session} is new: it is started with {ahead.inputs} waiting input(s)"
            return [new, *commands]
        lines = [f"session {self.session}, journal at {self.tip}"]
        for turn in self.turns:
            after = "" if turn.then == "none" else f", then {turn.then}"
            lines.append(f"turn {turn.turn}: {turn.action}{after}: {turn.evidence}")
        lines += [wait.line for wait in self.waits]
        lines += [parked.line(self.session) for parked in ahead.parked]
        for loop in self.loops:
            lines.append(f"loop {loop.loop}: {loop.action}: {loop.evidence}")
        lines += [f"loop {session.loop}: {session.line()}" for session in self.next_sessions]
        for gate in self.gates:
            lines.append(f"gate {gate.gate}: {gate.action}: {gate.reason}")
        lines += commands
        if ahead.lacks:
            lines.append(f"a resume here is refused: this process does not have {', '.join(ahead.lacks)}")
        if not self.turns:
            lines.append("no turn is open")
        if ahead.inputs:
            fresh = ahead.inputs - self.queued
            told = f" ({fresh} not accepted yet)" if fresh else ""
            lines.append(f"inputs that wait: {ahead.inputs}{told}: {self._goes_on}")
        else:
            lines.append("nothing is queued")
        if commands:
            lines.append(ahead.run_line)
        return lines

    @property
    def _goes_on(self) -> str:
        """What becomes of the inputs that wait."""
        stays = self.ahead.stays if self.ahead else "held_by_loss" if self.held_by_loss else ""
        if stays == "held_by_loss":
            return "held until a person has chosen what becomes of the agent's session"
        if stays == "closed":
            return "the session is closed before they run"
        if stays == "held":
            return "held until a person resumes"
        first = self.next_sessions[0].action if self.next_sessions else "resume"
        if first == "ask":
            return "the first is parked with that question, the others are held until it is answered"
        if first == "refuse":
            return "the first is parked for that, the others are held"
        if self.held and self.ahead is None:
            return "held until a person resumes"
        return "run in their order"

    def to_json(self) -> dict[str, object]:
        """The shape of `outlast plan --json`."""
        return {
            "session": self.session,
            "tip": self.tip,
            "starts": self.starts,
            "turns": [
                {
                    "turn": t.turn,
                    "loop": t.loop,
                    "action": t.action,
                    "then": t.then,
                    "evidence": t.evidence,
                    "seq": t.seq,
                }
                for t in self.turns
            ],
            "loops": [
                {"loop": x.loop, "action": x.action, "generation": x.generation, "evidence": x.evidence}
                for x in self.loops
            ],
            "gates": [{"gate": g.gate, "action": g.action, "reason": g.reason} for g in self.gates],
            "next_sessions": [session.to_json() for session in self.next_sessions],
            "queued": self.queued,
            "inbox": self.inbox,
            "held": self.held or self.held_by_loss,
            "facts": list(self.facts),
            "verified_from": self.verified_from,
            "waits": [{"turn": w.turn} | delay_json(w.delay) for w in self.waits],
        } | (self.ahead or Ahead()).to_json()


def plan(state: State, facts: Facts) -> RestorePlan:
    """Total: every prefix of every valid journal has a plan."""
    if state.root is None:
        return RestorePlan(state.session, state.seq, starts=True, inbox=facts.inbox)
    turns = tuple(_planned_turn(state, turn, _agent(facts, turn.loop)) for turn in state.open_turns.values())
    decided = {turn.loop for turn in turns if turn.action not in ("return", "resume")}
    loops = tuple(
        _plan_loop(state.loops[loop], _agent(facts, loop)) for loop in state.loops if loop not in decided
    )
    attached = {t.loop for t in turns if t.action == "attach"} | {
        x.loop for x in loops if x.action == "attach"
    }
    root = state.loops[state.root]
    return RestorePlan(
        session=state.session,
        tip=state.seq,
        starts=False,
        turns=turns,
        loops=tuple(x for x in loops if x.action != "none"),
        gates=tuple(_plan_gate(gate, attached, facts) for gate in state.gates.values()),
        next_sessions=tuple(
            _next_session(state, loop, _agent(facts, loop)) for loop in state.loops if loop not in attached
        ),
        queued=len(state.queue),
        inbox=facts.inbox,
        held=root.held,
        held_by_loss=held_by_loss(state, state.root),
        facts=tuple(facts.lines()),
        verified_from=facts.verified_from,
        waits=tuple(PlannedWait(turn, delay) for turn, delay in delays(state)),
    )


def looked_ahead(chosen: RestorePlan, after: State, facts: Facts, ahead: Ahead) -> RestorePlan:
    """The plan with what it leads to. `after` is the state before the first turn begins then; `facts` are
    those of an agent that is started then."""
    if after.root is None:
        return replace(chosen, ahead=ahead)
    living = {gate.gate for gate in chosen.gates if gate.action == "keep"}
    answers = {x.asked.gate: x.asked for x in reversed(ahead.commands) if x.result == "done"}
    gates = tuple(
        replace(gate, reason=_given(gate, answers[gate.gate].choice or ""))
        if gate.gate in living and gate.gate in answers
        else gate
        for gate in chosen.gates
    )
    shown = {session.loop for session in chosen.next_sessions}
    sessions = tuple(_next_session(after, loop, _agent(facts, loop)) for loop in after.loops if loop in shown)
    if sessions and sessions[0].action in ("ask", "refuse"):
        ahead = replace(ahead, runs=ahead.runs[:1])
    return replace(chosen, gates=gates, next_sessions=sessions, ahead=ahead)


def _given(gate: PlannedGate, choice: str) -> str:
    asked = ASKED_ITSELF if gate.reason == ASKED_ITSELF else "its agent lives"
    return f"{asked} and is given the answer {choice}"


def _agent(facts: Facts, loop: str) -> AgentFacts:
    return facts.agents.get(loop) or AgentFacts(loop=loop, known=False)


def _next_session(state: State, loop_id: str, agent: AgentFacts) -> NextSession:
    """What the launch makes of the provider's session: as it stands, unless somebody else drives it."""
    chosen = _as_it_stands(state, loop_id, agent)
    if not agent.driven_by or chosen.action not in ("resume", "put_back"):
        return chosen
    return replace(chosen, action="refuse", in_use=True, reason=agent.driven_by)


def _as_it_stands(state: State, loop_id: str, agent: AgentFacts) -> NextSession:
    """The same where what its program keeps of it was looked at."""
    chosen, found = next_session(state, loop_id, agent.kind), agent.session
    said = describe_session(agent)
    if chosen.action == "refuse" or not said:
        return chosen
    loop = state.loops[loop_id]
    if found is None:
        return replace(chosen, action="refuse", reason=said)
    match found.verdict:
        case "put_back" if loop.captured is None or not loop.captured.pieces:
            return _lost(
                chosen, "session_missing", f"{found.why}, and nothing of it was captured", loop, agent
            )
        case "put_back":
            return replace(chosen, action="put_back", reason=f"{said}{_captured(loop)}")
        case "lost":
            return _lost(chosen, found.code, found.why, loop, agent)
        case "as_is":
            return replace(chosen, reason=f"a person chose it as it is; {said}")
        case _:
            return replace(chosen, reason=f"{chosen.reason}; {said}")


def _captured(loop: Loop) -> str:
    captured = loop.captured
    through = None if captured is None else captured.through_turn
    return "" if through is None else f"; what was captured is as it was after turn {through}"


def _lost(chosen: NextSession, code: str, why: str, loop: Loop, agent: AgentFacts) -> NextSession:
    """By the rules by which the turn ends that finds it so."""
    by = by_itself(loop, None, agent.on_lost)
    if by is not None:
        reason = f"{why} ({by.choice}, by {by.by})"
        return replace(chosen, action="start_new", provider_session=None, confirmed=False, reason=reason)
    choices = tuple(ways_on(loop, code, why))
    return replace(
        chosen, action="refuse" if agent.on_lost == "refuse" else "ask", reason=why, choices=choices
    )


def _planned_turn(state: State, turn: OpenTurn, agent: AgentFacts) -> PlannedTurn:
    return _with_steers(state, _with_retry(state, _plan_turn(turn, agent), agent))


def _plan_turn(turn: OpenTurn, agent: AgentFacts) -> PlannedTurn:
    """restore.md, "Open turns": the first that holds."""
    if turn.host_done is not None:
        return _planned(turn, "resume", told(turn))
    if turn.attempt is None:
        # Started or reopened, and no agent was given it yet: it simply begins.
        again = f" since it was reopened (attempt {turn.attempts} was before)" if turn.attempts else ""
        return _planned(turn, "return", f"no attempt had started{again}")
    if agent.alive and agent.started:
        return _planned(turn, "attach", describe(agent))
    if agent.terminal is not None:
        return _planned(turn, "settle", describe(agent))
    if agent.landing in ("none", "never_written", "never_read") and (agent.found or turn.reserved is None):
        unreserved = ", no input was reserved" if agent.landing == "none" else ""
        return _planned(turn, "return", describe(agent) + unreserved)
    if agent.stored is False and agent.gone and not _worked_on(turn) and not spent(turn):
        # No model was told of a prompt that its agent had not stored.
        return _planned(turn, "return", describe(agent))
    then = what_then(turn, agent.on_interrupt, gone=agent.gone)
    return _planned(turn, "interrupt", with_open_calls(describe(agent), turn), then)


def _worked_on(turn: OpenTurn) -> bool:
    """Whether its agent has shown work on it. Then its own transcript is not what it was, if the prompt is
    not in it."""
    return bool(turn.calls or turn.open_calls)


def _with_retry(state: State, planned: PlannedTurn, agent: AgentFacts) -> PlannedTurn:
    """What a policy makes of a turn that its agent has ended as failed."""
    if planned.action != "settle" or agent.failure is None:
        return planned
    judging = Judging(Micros(0), agent.retry_attempts)  # When is told by its receipt.
    verdict = judged(state.session, state.open_turns[planned.turn], agent.failure, judging)
    said = f"{planned.evidence}, it failed of {agent.failure.code}"
    if isinstance(verdict, PlannedRetry):
        then: Then = "retry" if verdict.mode == "again" else "continue"
        said = f"{said} and waits {in_words(verdict.wait)}"
        return msgspec.structs.replace(planned, then=then, evidence=said)
    return planned if verdict is None else msgspec.structs.replace(planned, then="hold", evidence=said)


def _with_steers(state: State, planned: PlannedTurn) -> PlannedTurn:
    """Inputs that were to join a turn are decided as it is closed, by what its agent's spool shows."""
    names = ", ".join(entry.request_id for entry in steered_into(state, planned.turn))
    if not names or planned.action == "attach":
        return planned
    return msgspec.structs.replace(planned, evidence=f"{planned.evidence}, it was to be joined by {names}")


def _planned(
    turn: OpenTurn,
    action: Literal["attach", "settle", "return", "interrupt", "resume"],
    evidence: str,
    then: Then = "none",
) -> PlannedTurn:
    seq = turn.reserved_seq or turn.attempt_seq or turn.seq
    seq = max([seq, *(effect.seq for effect in turn.effects.values())])
    return PlannedTurn(turn=turn.turn, loop=turn.loop, action=action, then=then, evidence=evidence, seq=seq)


def _plan_loop(loop: Loop, agent: AgentFacts) -> PlannedLoop:
    """An agent between turns: one that serves many is adopted, any other has nothing left to do. Nor has the
    one of another program than its name stands for today: nobody here speaks its language."""
    if not agent.alive:
        return PlannedLoop(loop.loop, "none", agent.generation, describe(agent))
    understood = agent.known and (agent.kind is None or drives(agent.kind, loop))
    if agent.many_turns and agent.started and understood:
        return PlannedLoop(loop.loop, "attach", agent.generation, describe(agent))
    return PlannedLoop(loop.loop, "end", agent.generation, describe(agent))


def _plan_gate(gate: OpenGate, attached: set[str], facts: Facts) -> PlannedGate:
    if gate.opened.resolver == "runtime":
        return PlannedGate(gate.gate, "keep", ASKED_ITSELF)
    agent = _agent(facts, gate.loop)
    if gate.loop in attached and agent.generation == gate.generation:
        return PlannedGate(gate.gate, "keep", "its agent lives and waits for the answer")
    return PlannedGate(gate.gate, "close", "the agent that asked is dead")
