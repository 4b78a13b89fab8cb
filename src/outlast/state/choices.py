"""Which of a gate's choices is meant by what a person or a program calls it (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from outlast.records.agent_state import LostChoice
from outlast.records.types import Choice

LOST_CHOICES: frozenset[str] = frozenset(get_args(LostChoice))


def about_lost(choices: Sequence[Choice]) -> bool:
    """Whether a question with these choices asks what becomes of an agent's lost session: nothing goes on
    before it is answered."""
    return any(choice.id in LOST_CHOICES for choice in choices)


def chosen(name: str, choices: Sequence[Choice]) -> str | None:
    """The id of the choice that is meant: the one with this id, else the only one of this kind
    (`allow_once`, for instance); a gate without choices takes any text but an empty one."""
    if not choices:
        return name or None
    if any(choice.id == name for choice in choices):
        return name
    of_kind = [choice.id for choice in choices if choice.kind == name]
    return of_kind[0] if len(of_kind) == 1 else None
