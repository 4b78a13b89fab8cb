"""From a plan to the records that carry it out (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.errors import InvalidRecordError
from outlast.records.effects import TurnResumed
from outlast.records.envelope import Draft
from outlast.records.types import GateResolved, PlannedTurn
from outlast.restore.facts import AgentFacts
from outlast.restore.plan import RestorePlan
from outlast.state.model import State
from outlast.store.contract import Entry
from outlast.turns.effects import phase_of
from outlast.turns.requests import StopRequest, decode
from outlast.turns.returning import returned
from outlast.turns.terminal import Ending, Stop


def quick_repairs(state: State, chosen: RestorePlan) -> list[Draft]:
    """Those that need nobody outside the journal: they go into the fence's own batch."""
    drafts: list[Draft] = []
    for turn in chosen.turns:
        if turn.action == "return" and turn.turn in state.open_turns:
            drafts += returned(state, turn.turn, turn.evidence, "restore")
    for turn in chosen.turns:
        if turn.action == "resume" and turn.turn in state.open_turns:
            phase = phase_of(state.open_turns[turn.turn])
            resumed = TurnResumed(phase=phase, evidence=turn.evidence)
            drafts.append(Draft(body=resumed, loop=turn.loop, turn=turn.turn))
    return drafts


def closing_gates(state: State, chosen: RestorePlan) -> list[Draft]:
    """The gates whose agent is dead and that no terminal has closed yet."""
    return [
        Draft(
            body=GateResolved(gate=planned.gate, reason="abandoned", by="restore"),
            loop=state.gates[planned.gate].loop,
            turn=state.gates[planned.gate].turn,
        )
        for planned in chosen.gates
        if planned.action == "close" and planned.gate in state.gates
    ]


def slow_ending(planned: PlannedTurn, facts: AgentFacts, stop: Stop | None = None) -> Ending:
    """How a turn is closed after its agent's spool has been read to the end, unless the agent says there that
    it had ended it. A person's wish to stop it counts more than what was planned for a crash."""
    then = planned.then if planned.action == "interrupt" else "none"
    return Ending(interrupted=planned.evidence, exit=facts.exit, then=then, stop=stop)


def stop_asked_for(entries: Sequence[Entry], turn: str) -> Stop | None:
    """The cancel or kill of `turn` that waits in the inbox: its owner died before the turn had ended."""
    for entry in entries:
        if entry.kind in ("cancel", "kill") and _names(entry, turn):
            return Stop("killed" if entry.kind == "kill" else "cancelled", entry.actor, entry.request_id)
    return None


def stops_among(entries: Sequence[Entry]) -> frozenset[str]:
    """The ids of the cancels and kills."""
    return frozenset(entry.request_id for entry in entries if entry.kind in ("cancel", "kill"))


def end_asked_for(entries: Sequence[Entry]) -> bool:
    """Whether a person wants the agent ended: a kill or a close waits in the inbox."""
    return any(entry.kind in ("kill", "close") for entry in entries)


def _names(entry: Entry, turn: str) -> bool:
    try:
        return decode(StopRequest, entry.body).turn == turn
    except InvalidRecordError:
        return False
