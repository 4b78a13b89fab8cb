"""A turn whose agent lived before it and died before it had read any of the turn's input (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from outlast.journal import Proposal
from outlast.keep import GenerationFacts, never_read
from outlast.keep import Landing as KeepLanding
from outlast.records.envelope import Cursor
from outlast.state.lookup import steered_into
from outlast.state.model import OpenTurn, State
from outlast.turns.landing import Landing, landing_of
from outlast.turns.merge import Merger
from outlast.turns.returning import returned
from outlast.turns.terminal import Ending

_EVIDENCE = {
    KeepLanding.NEVER_WRITTEN: "its agent had ended before it could be given it",
    KeepLanding.NEVER_READ: "its agent had ended before it had read any of it",
}

_OF_SPOOL: Mapping[Landing, str] = {
    "none": "its agent's shim died before it was given it",
    "never_written": "its agent's shim died before it was written",
    "never_read": "its agent had ended before it had read any of it",
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


def shim_died(ending: Ending, merger: Merger) -> bool:
    """Whether a turn is over because its agent's shim is gone: nobody, or its guard, which knows nothing of
    inputs, has told how the agent ended."""
    said = merger.ended is not None and not merger.ended_by_exit
    if said or any(one is not None for one in (ending.stop, ending.failure, ending.interrupted)):
        return False
    return ending.exit is None or (ending.exit.last_input is None and not ending.exit.killed)


def proof_of_spool(turn: OpenTurn, seen: GenerationFacts, cursor: Cursor | None) -> str:
    """How it is known that no byte of the open turn's input was written, from what a shim has left that died,
    and with it all of its tree; empty where that is not proven. As a restore judges it."""
    return _OF_SPOOL.get(landing_of(turn, seen, cursor), "")


def back_to_its_place(state: State, turn_id: str, evidence: str) -> Proposal | None:
    """The records that put the input of the open turn back, to be given to a new agent; None where others
    were to join the turn: what is to become of those is decided as it is closed."""
    if turn_id not in state.open_turns or steered_into(state, turn_id):
        return None
    return Proposal(tuple(returned(state, turn_id, evidence)))
