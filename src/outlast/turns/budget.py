"""The recovery budget, counted by progress and not by the clock (agents.md, "Recovery budget")."""

from __future__ import annotations

from outlast.state.model import OpenTurn

ATTEMPTS_SINCE_PROGRESS = 3
ATTEMPTS_TOTAL = 20


def spent(turn: OpenTurn) -> bool:
    """Whether another attempt of `turn` is refused: it is quarantined instead."""
    return turn.since_progress >= ATTEMPTS_SINCE_PROGRESS or turn.given >= ATTEMPTS_TOTAL
