"""A turn whose agent lived before it and died before it had read any of the turn's input (pure)."""

from __future__ import annotations

from outlast.journal import Proposal
from outlast.keep import Landing, never_read
from outlast.state.lookup import steered_into
from outlast.state.model import OpenTurn, State
from outlast.turns.merge import Merger
from outlast.turns.returning import returned
from outlast.turns.terminal import Ending

_EVIDENCE = {
    Landing.NEVER_WRITTEN: "its agent had ended before it could be given it",
    Landing.NEVER_READ: "its agent had ended before it had read any of it",
}


def proof(turn: OpenTurn, ending: Ending, merger: Merger) -> str:
    """How it is known that no byte of the open turn's input was read, by an agent that ended without being
    told to; empty where that is not proven, or something else has ended the turn."""
    ended, said = ending.exit, merger.ended is not None and not merger.ended_by_exit
    if ended is None or ended.killed or said or ending.stop is not None or ending.failure is not None:
        return ""
    if turn.reserved is None:
        return "its agent had ended before it was given it"
    proven = never_read(ended, turn.reserved.seq)
    return "" if proven is None else _EVIDENCE[proven]


def back_to_its_place(state: State, turn_id: str, evidence: str) -> Proposal | None:
    """The records that put the input of the open turn back, to be given to a new agent; None where others
    were to join the turn: what is to become of those is decided as it is closed."""
    if turn_id not in state.open_turns or steered_into(state, turn_id):
        return None
    return Proposal(tuple(returned(state, turn_id, evidence)))
