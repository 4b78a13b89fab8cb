"""outlast keeps AI agent sessions alive.

A session comes back after its client, its agent, its runtime or its machine died: with the same id, the same
history, the same queue and the same files, and nothing that already happened happens again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.journal import CaughtUp
    from outlast.records.envelope import Record
    from outlast.records.types import Content
    from outlast.runtime.backing import Delta
    from outlast.runtime.client import connect
    from outlast.runtime.handles import Answer, Session, Settled, Turn
    from outlast.runtime.images import image
    from outlast.runtime.outcome import Outcome
    from outlast.runtime.policy import allow, ask, deny
    from outlast.runtime.runtime import Runtime
    from outlast.runtime.view import View
    from outlast.turns.effects import EffectContext, TurnEffect

__all__ = [
    "Answer",
    "CaughtUp",
    "Content",
    "Delta",
    "EffectContext",
    "Outcome",
    "Record",
    "Runtime",
    "Session",
    "Settled",
    "Turn",
    "TurnEffect",
    "View",
    "allow",
    "ask",
    "connect",
    "deny",
    "image",
]

_HOMES = {
    "Answer": "outlast.runtime.handles",
    "CaughtUp": "outlast.journal",
    "Content": "outlast.records.types",
    "Delta": "outlast.runtime.backing",
    "EffectContext": "outlast.turns.effects",
    "Outcome": "outlast.runtime.outcome",
    "Record": "outlast.records.envelope",
    "Runtime": "outlast.runtime.runtime",
    "Session": "outlast.runtime.handles",
    "Settled": "outlast.runtime.handles",
    "Turn": "outlast.runtime.handles",
    "TurnEffect": "outlast.turns.effects",
    "View": "outlast.runtime.view",
    "allow": "outlast.runtime.policy",
    "ask": "outlast.runtime.policy",
    "connect": "outlast.runtime.client",
    "deny": "outlast.runtime.policy",
    "image": "outlast.runtime.images",
}


def __getattr__(name: str) -> object:
    # Each name is imported with its first use: `outlast ls` must not pay for an event loop.
    from importlib import import_module

    if name == "blocking":
        return import_module("outlast.blocking")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "blocking"])
