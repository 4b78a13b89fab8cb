"""Records of effects: what a turn asks for outside of its agent's own words, and what became of it.

Named effects run around a turn's host step (`kind` is their phase); an effect is intended, dispatched right
before its body, and settled.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from outlast.records.types import Body, EffectPhase, EffectReplay

EffectOutcome = Literal["done", "absent", "unknown"]
"""`absent`: proven not to have happened."""


class HostDone(Body, frozen=True, kw_only=True):
    """The agent has done its part of the turn, which goes on with the effects around it: the host step is
    never executed again by a recovery."""

    stop_reason: str
    usage: dict[str, int] = msgspec.field(default_factory=dict)


class EffectIntended(Body, frozen=True, kw_only=True):
    """It is to be done, and was not begun. `key` is what an outside service can know it again by: the same
    in every body of it."""

    effect: str
    kind: EffectPhase
    name: str
    arguments_digest: str
    """SHA-256 of what it is given, in hex."""
    replay: EffectReplay
    key: str


class EffectDispatched(Body, frozen=True, kw_only=True):
    """Right before body number `body`, from 1 on: from here on it may have happened."""

    effect: str
    body: int


class EffectSettled(Body, frozen=True, kw_only=True):
    """What became of it. A later one counts more: what is unknown can be found out, what is absent be
    done."""

    effect: str
    outcome: EffectOutcome
    by: Literal["run", "check", "person"]
    result: str | None = None
    """JSON, bounded."""
    reason: str = ""


class TurnResumed(Body, frozen=True, kw_only=True):
    """A later owner goes on with a turn whose host step is done, at the first phase that is not recorded."""

    phase: str
    evidence: str = ""
