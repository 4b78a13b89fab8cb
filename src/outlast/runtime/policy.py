"""Who decides permissions: a person, everybody's friend, nobody, or the embedding program."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import msgspec

from outlast.errors import UsageError
from outlast.records.types import GateOpened
from outlast.turns.deciding import GatePolicy

GateChoice = str | None
"""A choice's id, or None to leave the gate to a person."""
OnGate = Callable[[GateOpened], GateChoice | Awaitable[GateChoice]]


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


def policy_of(decide: OnGate) -> GatePolicy:
    """The driver's form of `decide`, which is the embedding program's: whatever it does, the gate has one of
    its choices afterwards or is left to a person. Raises UsageError for what cannot be called; the policy
    raises what `decide` raises, and UsageError for a choice that the gate does not have."""
    if not callable(decide):
        raise UsageError(
            "on_gate cannot be called", hint="pass outlast.ask, outlast.allow, outlast.deny or a function"
        )

    async def policy(_: str, gate: GateOpened) -> str | None:
        known = [choice.id for choice in gate.choices]
        choice = await _asked(decide, msgspec.structs.replace(gate, choices=list(gate.choices)))
        if choice is None:
            return None
        for each in known:
            if choice == each:
                return each  # not `choice` itself: it may be of a type that merely equals a text
        raise UsageError(
            f"on_gate chose {choice!r:.100}, which the gate does not have", hint=f"it has {', '.join(known)}"
        )

    return policy


async def _asked(decide: OnGate, gate: GateOpened) -> GateChoice:
    try:
        choice = decide(gate)
        return await choice if inspect.isawaitable(choice) else choice
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UsageError("on_gate was cancelled by something of its own") from error
