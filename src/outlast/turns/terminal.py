"""How a turn is closed: from what happened to the records that say so (pure).

The same function closes a live turn, one settled from a dead agent's spool and one that a crash cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlast.agents.contract import ExitInfo, Failure, TurnEnded
from outlast.agents.failure import classify_exit, without
from outlast.ids import derived_id
from outlast.journal import Proposal
from outlast.records.effects import HostDone
from outlast.records.envelope import Draft
from outlast.records.types import (
    BY_ON_INTERRUPT,
    BY_POLICY,
    Body,
    Choice,
    CommandSettled,
    GateOpened,
    GateResolved,
    InputCancelled,
    LoopChanged,
    PlannedRetry,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
)
from outlast.state.model import OpenTurn, State
from outlast.turns.cut import Then
from outlast.turns.effects import intents
from outlast.turns.receipt import receipt
from outlast.turns.retrying import Judging, Parked, judged
from outlast.turns.steering import Unlanded, decided, unknown

AfterFailure = Literal["continue", "hold", "withdraw"]

ASK_CHOICES = (
    Choice(id="skip", label="Leave the turn as it is and go on with the queue"),
    Choice(id="continue", label="Let the agent go on from where its own transcript ends"),
    Choice(id="retry", label="Send the input again"),
    Choice(id="hold", label="Keep it parked"),
)


@dataclass(frozen=True, slots=True)
class Stop:
    """A person's wish to end the running turn. `request_id` is the inbox entry that it settles, if any.
    `skipped`: a turn that waits to be tried again is not, and the queue goes on."""

    reason: Literal["cancelled", "killed", "closed", "skipped"]
    actor: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """All that is known of how the host step ended."""

    ended: TurnEnded | None = None
    exit: ExitInfo | None = None
    stop: Stop | None = None
    failure: Failure | None = None
    """What the runtime itself saw fail: a launch, a deadline, the shim."""
    phase: str = "host_execute"
    parked: str = ""
    """Why only a person can go on with the turn, behind its failure."""
    interrupted: str | None = None
    """Evidence of a crash that cut the turn off; a restore closes it."""
    then: Then = "none"
    unlanded: Unlanded = None
    """Of the inputs that were to join the turn."""
    judging: Judging | None = None
    """What a failure is judged by; None: it is a failure, and that is all."""
    secrets: tuple[str, ...] = ()
    """Values that no record may hold, whatever they look like."""


def close(state: State, turn_id: str, ending: Ending, after_failure: AfterFailure = "continue") -> Proposal:
    """The records that close the open turn `turn_id` of `state`; they settle the request that ended it."""
    turn = state.open_turns[turn_id]
    drafts = _undecided(state, turn, ending)
    bodies = _bodies(state, turn, ending, after_failure)
    stop = ending.stop
    settle: list[tuple[str, int]] = []
    for body in bodies:
        by_person = stop is not None and not isinstance(body, TurnDone)
        if by_person and stop is not None and isinstance(body, TurnInterrupted | CommandSettled):
            if stop.request_id is not None:
                settle.append((stop.request_id, len(drafts)))
            drafts.append(_draft(turn, body, cause=stop.request_id, actor=stop.actor))
        else:
            drafts.append(_draft(turn, body))
    return Proposal(tuple(drafts), tuple(settle))


def _undecided(state: State, turn: OpenTurn, ending: Ending) -> list[Draft]:
    """What must stand before the end of a turn or of its host step."""
    gates = [gate.gate for gate in state.gates.values() if gate.turn == turn.turn]
    abandoned = [GateResolved(gate=gate, reason="abandoned", by="runtime") for gate in gates]
    return [_draft(turn, body) for body in abandoned] + decided(state, turn, ending.unlanded)


def host_done(state: State, turn_id: str, ending: Ending) -> Proposal | None:
    """The records that end the host step of a turn which owes effects, in one batch with what is intended
    now; None where the turn is to be closed."""
    turn, ended = state.open_turns[turn_id], ending.ended
    good = ended is not None and ended.failure is None and not ended.cancelled
    if not turn.owed or turn.host_done is not None or ended is None or not good:
        return None
    done = HostDone(stop_reason=ended.stop_reason, usage=dict(ended.usage))
    bodies: list[Body] = [done, *intents(state.session, turn, done)]
    return Proposal((*_undecided(state, turn, ending), *(_draft(turn, body) for body in bodies)))


def _bodies(state: State, turn: OpenTurn, ending: Ending, after_failure: AfterFailure) -> list[Body]:
    ended, stop = ending.ended, ending.stop
    if ended is not None and ended.failure is None and not ended.cancelled:
        bodies: list[Body] = [TurnDone(stop_reason=ended.stop_reason, usage=dict(ended.usage))]
        if stop is not None and stop.request_id is not None:
            bodies.append(_came_after(stop))
        return bodies
    if stop is not None:
        reason = "cancelled" if stop.reason == "skipped" else stop.reason
        interrupted = TurnInterrupted(index=turn.index, reason=reason, evidence=_how(ending))
        held = state.loops[turn.loop].held or stop.reason in ("closed", "skipped")
        return [interrupted] if held else [interrupted, LoopChanged(state="held", reason=stop.reason)]
    if ending.interrupted is not None:
        return [
            TurnInterrupted(index=turn.index, reason="crash", evidence=ending.interrupted),
            *then_bodies(turn, ending.then),
        ]
    if ended is not None and ended.cancelled:
        evidence = "the agent ended the turn as cancelled, nobody here asked for it"
        return [TurnInterrupted(index=turn.index, reason="cancelled", evidence=evidence)]
    return _failed(state, turn, ending, after_failure)


def _failed(state: State, turn: OpenTurn, ending: Ending, after_failure: AfterFailure) -> list[Body]:
    failure = without(_failure(ending), ending.secrets)
    verdict = None
    if ending.judging is not None and turn.host_done is None:  # An effect is never repeated by a policy.
        verdict = judged(state.session, turn, failure, ending.judging)
    planned = verdict if isinstance(verdict, PlannedRetry) else None
    failed = TurnFailed(receipt=receipt(max(turn.attempts, 1), ending.phase, failure, planned))
    if planned is not None:
        return [failed, TurnRetried(by=f"{BY_POLICY}{failure.code}", mode=planned.mode)]
    after = _after_failure(state, turn, ending, after_failure)
    if ending.parked:
        return [failed, TurnParked(reason="held", detail=ending.parked), *after]
    if isinstance(verdict, Parked):
        # What comes next would only fail of the same.
        after = after or [LoopChanged(state="held", reason=failure.code)]
        return [failed, TurnParked(reason="held", detail=verdict.why), *after]
    return [failed, *after]


def _came_after(stop: Stop) -> CommandSettled:
    """What a wish to end a turn came to that its agent has done first. A kill means the agent: no turn is
    closed for one before that has ended."""
    request = stop.request_id or ""
    if stop.reason == "killed":
        told = "the agent is gone, with everything that it had started; it had done its turn first"
        return CommandSettled(request_id=request, command="kill", outcome="done", detail=told)
    command = {"closed": "close", "skipped": "skip"}.get(stop.reason, "cancel")
    return CommandSettled(
        request_id=request, command=command, outcome="too_late", detail="the turn was done first"
    )


def _failure(ending: Ending) -> Failure:
    if ending.failure is not None:
        return ending.failure
    if ending.ended is not None and ending.ended.failure is not None:
        return ending.ended.failure
    if ending.exit is not None:
        return classify_exit(ending.exit)
    return Failure("transport_lost", "the agent's shim died and left no word of how the agent ended")


def _how(ending: Ending) -> str:
    if ending.interrupted is not None:
        return ending.interrupted
    if ending.exit is not None:
        return "the agent's process tree was ended" + (", verified" if ending.exit.verified else "")
    if ending.ended is not None:
        return "the agent confirmed it"
    return ""


def then_bodies(turn: OpenTurn, then: Then) -> list[Body]:
    """What follows the interruption of `turn` in the same batch."""
    match then:
        case "none":
            return []
        case "retry" | "continue":
            return [TurnRetried(by=BY_ON_INTERRUPT, mode="again" if then == "retry" else "continue")]
        case "quarantine":
            return [TurnParked(reason="quarantined", detail=f"{turn.given} attempts were cut off")]
        case "hold":
            return [TurnParked(reason="held")]
        case "ask":
            gate = GateOpened(
                gate=derived_id("ask", turn.turn, turn.attempts),
                kind="question",
                question="A crash cut this turn off and its outcome is unknown. What now?",
                choices=list(ASK_CHOICES),
                resolver="runtime",
                requested_by="outlast",
            )
            return [TurnParked(reason="held", detail="asked"), gate]


def _after_failure(state: State, turn: OpenTurn, ending: Ending, rule: AfterFailure) -> list[Body]:
    if rule == "hold":
        return [LoopChanged(state="held", reason="after a failed turn")]
    if rule == "withdraw":
        parked = unknown(state, turn, ending.unlanded)
        return [
            InputCancelled(request_id=queued, reason="withdrawn")
            for queued in state.queue
            if queued not in parked
        ]
    return []


def _draft(turn: OpenTurn, body: Body, cause: str | None = None, actor: str | None = None) -> Draft:
    return Draft(body=body, loop=turn.loop, turn=turn.turn, cause=cause, actor=actor)
