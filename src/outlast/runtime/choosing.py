"""Finding the effect that a person means."""

from __future__ import annotations

from typing import NamedTuple

from outlast.errors import EffectNotFoundError
from outlast.state.effect_rules import settleable
from outlast.state.model import State


class Waiting(NamedTuple):
    """An effect of a closed turn that a person can settle."""

    turn: str
    effect: str
    name: str
    key: str
    seq: int
    """Of the newest record about it."""


def waiting_effects(state: State) -> list[Waiting]:
    """Those that are not done, of the turns that can go on behind their host step; the first of each turn
    comes first."""
    turns = [*state.parked, *(closed.turn for closed in state.last_unsuccessful.values())]
    return [
        Waiting(turn, effect.effect, effect.name, effect.key, effect.seq)
        for turn in turns
        if (closed := settleable(state, turn)) is not None
        for effect in closed.effects.values()
        if effect.outcome != "done"
    ]


def find_effect(state: State, typed: str, turn: str | None = None) -> Waiting:
    """The one that is meant by its id, a beginning of it, its key or its name. Raises EffectNotFoundError."""
    waiting = [each for each in waiting_effects(state) if turn in (None, each.turn)]
    fitting = [each for each in waiting if typed in (each.effect, each.key, each.name)]
    fitting = fitting or [each for each in waiting if typed and each.effect.startswith(typed)]
    if len(fitting) == 1:
        return fitting[0]
    there = ", ".join(f"{each.effect} ({each.name} of turn {each.turn})" for each in waiting) or "none"
    raise EffectNotFoundError(
        f"session {state.session} has {len(fitting) or 'no'} effect {typed!r:.200} that waits for a person",
        hint=f"those that wait: {there}",
        session_id=state.session,
    )
