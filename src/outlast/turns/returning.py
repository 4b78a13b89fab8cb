"""The input of a turn that has not come to be goes back to its place in the queue (pure)."""

from __future__ import annotations

from outlast.records.envelope import Draft
from outlast.records.types import Body, GateResolved, InputReturned
from outlast.state.model import State


def returned(state: State, turn_id: str, evidence: str, by: str = "runtime") -> list[Draft]:
    """The records that put the input of the open turn back: what was asked in it is asked no more."""
    gates = [gate.gate for gate in state.gates.values() if gate.turn == turn_id]
    bodies: list[Body] = [GateResolved(gate=gate, reason="abandoned", by=by) for gate in gates]
    bodies.append(InputReturned(request_id=turn_id, evidence=evidence))
    loop = state.open_turns[turn_id].loop
    return [Draft(body=body, loop=loop, turn=turn_id) for body in bodies]
