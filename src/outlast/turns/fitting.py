"""Which of an agent's records the journal can still take (pure).

An agent's output is read before it is appended, and read again by a later owner: meanwhile a person may have
answered a gate that the agent then closes by itself, or an input may have been decided. The fold refuses a
record that says it a second time, rightly; here it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlast.records.envelope import Draft
from outlast.records.types import Body, GateOpened, GatePrepared, GateResolved, InputJoined, InputReturned
from outlast.state.lookup import steered_into
from outlast.state.model import State


def fitting(state: State, drafts: Sequence[Draft]) -> tuple[Draft, ...]:
    """Those of `drafts` that say something new after `state`, in order."""
    asked = _Asked(state)
    undecided = {
        entry.request_id
        for turn in {draft.turn for draft in drafts if draft.turn is not None}
        for entry in steered_into(state, turn)
    }
    kept: list[Draft] = []
    for draft in drafts:
        body = draft.body
        if isinstance(body, InputJoined | InputReturned):
            if body.request_id not in undecided:
                continue
            undecided.remove(body.request_id)
        if asked.takes(body):
            kept.append(draft)
    return tuple(kept)


class _Asked:
    """The gates that are asked, as the records before have it."""

    def __init__(self, state: State) -> None:
        self._prepared = set(state.prepared)
        self._open = set(state.gates)

    def takes(self, body: Body) -> bool:
        match body:
            case GatePrepared(gate=gate):
                # An agent that asks twice under one name has asked once.
                new = gate not in self._prepared and gate not in self._open
                self._prepared.add(gate)
                return new
            case GateOpened(gate=gate):
                new = gate not in self._open
                self._prepared.discard(gate)
                self._open.add(gate)
                return new
            case GateResolved(gate=gate):
                known = gate in self._prepared or gate in self._open
                self._prepared.discard(gate)
                self._open.discard(gate)
                return known
            case _:
                return True
