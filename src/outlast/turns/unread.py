"""A turn whose agent lived before it and died before it had read any of the turn's input (pure)."""

from __future__ import annotations

from outlast.journal import Proposal
from outlast.records.envelope import Draft
from outlast.records.types import Body, GateResolved, InputReturned
from outlast.state.lookup import steered_into
from outlast.state.model import OpenTurn, State
from outlast.turns.merge import Merger
from outlast.turns.terminal import Ending


def proof(turn: OpenTurn, ending: Ending, merger: Merger) -> str:
    """How it is known that no byte of the open turn's input was read, by an agent that ended without being
    told to; empty where that is not proven, or something else has ended the turn."""
    ended, said = ending.exit, merger.ended is not None and not merger.ended_by_exit
    if ended is None or ended.killed or said or ending.stop is not None or ending.failure is not None:
        return ""
    if turn.reserved is None:
        return "its agent had ended before it was given it"
    if ended.read_input is not None and turn.reserved.seq > ended.read_input:
        return "its agent had ended before it had read any of it"
    return ""


def back_to_its_place(state: State, turn_id: str, evidence: str) -> Proposal | None:
    """The records that put the input of the open turn back, to be given to a new agent; None where others
    were to join the turn: what is to become of those is decided as it is closed."""
    turn = state.open_turns.get(turn_id)
    if turn is None or steered_into(state, turn_id):
        return None
    gates = [gate.gate for gate in state.gates.values() if gate.turn == turn_id]
    bodies: list[Body] = [GateResolved(gate=gate, reason="abandoned", by="runtime") for gate in gates]
    bodies.append(InputReturned(request_id=turn_id, evidence=evidence))
    return Proposal(tuple(Draft(body=body, loop=turn.loop, turn=turn_id) for body in bodies))
