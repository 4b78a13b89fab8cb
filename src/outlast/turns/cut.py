"""A turn that was cut off with its outcome unknown: what is known of it, and what `on_interrupt` makes of
it (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from outlast.records.types import OnInterrupt
from outlast.state.model import OpenTurn
from outlast.turns.budget import spent

Then = Literal["none", "retry", "continue", "hold", "ask", "quarantine"]

NAMED_CALLS = 10
"""Names of open calls in the evidence; the others are counted."""
NAME_SHOWN = 80
"""Characters of one of them."""

_THEN: Mapping[OnInterrupt, Then] = {
    "skip": "none",
    "retry": "retry",
    "continue": "continue",
    "hold": "hold",
    "ask": "ask",
}


def what_then(turn: OpenTurn, on_interrupt: OnInterrupt, *, gone: bool) -> Then:
    """What follows the interruption of `turn`; `on_interrupt` is its agent's, which its own comes before.
    `gone`: the agent's process tree is proven dead."""
    then: Then = "quarantine" if spent(turn) else _THEN[turn.on_interrupt or on_interrupt]
    # A second agent beside a first that may live is never started by itself.
    return "hold" if not gone and then in ("retry", "continue") else then


def with_open_calls(evidence: str, turn: OpenTurn) -> str:
    """`evidence`, and the calls of which the outcome is not known."""
    names = sorted({name[:NAME_SHOWN] for name in turn.open_calls.values()})
    if not names:
        return evidence
    calls = len(turn.open_calls) + turn.more_calls
    shown = ", ".join(names[:NAMED_CALLS])
    # Several calls may bear one name.
    count = f" ({calls} calls)" if calls > len(names[:NAMED_CALLS]) else ""
    return f"{evidence}, calls without outcome: {shown}{count}"
