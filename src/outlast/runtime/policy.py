"""Who decides permissions: a person, everybody's friend, nobody, or the embedding program."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from outlast.records.types import GateOpened
from outlast.turns.conversation import GatePolicy

GateChoice = str | None
"""A choice's id, or None to leave the gate to a person."""


def ask(gate: GateOpened) -> GateChoice:
    """Leave every gate to a person."""
    return None


def allow(gate: GateOpened) -> GateChoice:
    """Allow each permission once; questions stay open."""
    return _of_kind(gate, "allow_once")


def deny(gate: GateOpened) -> GateChoice:
    """Reject each permission once; questions stay open."""
    return _of_kind(gate, "reject_once")


def _of_kind(gate: GateOpened, kind: str) -> GateChoice:
    if gate.kind != "permission":
        return None
    return next((choice.id for choice in gate.choices if choice.kind == kind), None)


def policy_of(decide: Callable[[GateOpened], GateChoice | Awaitable[GateChoice]]) -> GatePolicy:
    """The driver's form of `decide`. A choice that the gate does not have leaves it to a person."""

    async def policy(_: str, gate: GateOpened) -> str | None:
        choice = decide(gate)
        if inspect.isawaitable(choice):
            choice = await choice
        return choice if choice in {known.id for known in gate.choices} else None

    return policy
