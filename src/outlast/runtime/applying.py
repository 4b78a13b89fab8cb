"""Whether a decision about a turn finds anything to decide (pure). A session without owner would keep one
that finds nothing until its next owner refuses it, and nobody who asked would hear of that."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.state.delays import delayed
from outlast.state.model import State
from outlast.store.contract import Entry
from outlast.turns.reopening import retryable


def nothing_to_retry(state: State, pending: Sequence[Entry], turn: str) -> str | None:
    """Why `turn` cannot be retried; None where it can, or where that shows only later."""
    if _undecided(state, pending, turn) or retryable(state, turn) is not None:
        return None
    if turn in state.queue or any(entry.request_id == turn for entry in pending):
        return "that turn has not run yet"
    return "that turn was done, or is too long ago"


def nothing_to_skip(state: State, pending: Sequence[Entry], turn: str) -> str | None:
    """Why there is nothing of `turn` to skip; None where there is, or where that shows only later."""
    if _undecided(state, pending, turn) or turn in state.parked:
        return None
    return "no such turn is parked"


def _undecided(state: State, pending: Sequence[Entry], turn: str) -> bool:
    """What waits may change how things are, and so may whoever closes the turn that is open."""
    asked = any(entry.kind != "input" for entry in pending)
    return asked or turn in state.open_turns or delayed(state, turn) is not None
