"""What became of inputs, agent sessions and restores, one line each (`show`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from outlast.clock import isoformat
from outlast.records import types as t
from outlast.state.delays import delay_json
from outlast.state.messages import text_of
from outlast.state.model import Delay

Outcome: TypeAlias = Literal["queued", "running", "done", "failed", "interrupted", "cancelled", "parked"]


@dataclass(slots=True)
class EffectShown:
    """An effect around a turn. `outcome`: intended, begun, done, absent or unknown."""

    effect: str
    name: str
    phase: str
    key: str
    outcome: str = "intended"
    bodies: int = 0
    by: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, object]:
        return {
            "effect": self.effect,
            "name": self.name,
            "phase": self.phase,
            "key": self.key,
            "outcome": self.outcome,
            "bodies": self.bodies,
            "by": self.by or None,
            "reason": self.reason,
        }


@dataclass(slots=True)
class TurnSummary:
    """One accepted input and what became of it."""

    turn: str
    seq: int
    """Of its InputAccepted."""
    accepted_at: int
    content: list[t.Content]
    index: int | None = None
    outcome: Outcome = "queued"
    attempts: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    before_parked: Outcome | None = None
    """How it had ended when it was parked; None when it was parked in mid turn."""
    attempt_open: bool = False
    """An attempt has begun since the turn was opened: a return takes it back."""
    reopened: bool = False
    receipt: t.Receipt | None = None
    """Of its last failed attempt; of a parked turn only where it is parked for that."""
    evidence: str = ""
    """Of what cut it off."""
    parked: str = ""
    """What it is parked for."""
    attempt: t.TurnAttemptStarted | None = None
    """The newest one."""
    effects: dict[str, EffectShown] = field(default_factory=dict)
    """What runs around it, of the newest attempt whose host step is done."""
    delay: Delay | None = None
    """It failed, and is tried again by itself then."""

    @property
    def reason(self) -> str:
        """Why it was cut off, or is parked; of a failed one the receipt says it."""
        return {"interrupted": self.evidence, "parked": self.parked}.get(self.outcome, "")

    @property
    def input(self) -> str:
        """The text of the input."""
        return text_of(self.content)

    def to_json(self) -> dict[str, object]:
        shape: dict[str, object] = {
            "turn": self.turn,
            "index": self.index,
            "input": self.input,
            "outcome": self.outcome,
            "attempts": self.attempts,
            "started_at": _time(self.started_at),
            "ended_at": _time(self.ended_at),
        }
        if self.reason:
            shape["reason"] = self.reason
        if self.effects:
            shape["effects"] = [effect.to_json() for effect in self.effects.values()]
        if self.outcome in ("failed", "parked") and self.receipt is not None:
            shape["receipt"] = msgspec.to_builtins(self.receipt)
        if self.delay is not None:
            shape["waits"] = delay_json(self.delay)
        return shape


@dataclass(frozen=True, slots=True)
class WentBack:
    """An agent's own session goes on from what was captured of it after a turn; what came after that is told
    with the next prompt."""

    at: int
    through_turn: str | None
    reason: str

    def to_json(self) -> dict[str, object]:
        return {"at": _time(self.at), "through_turn": self.through_turn, "reason": self.reason}


@dataclass(slots=True)
class AgentSession:
    """A provider's own session that a loop has used."""

    loop: str
    provider: str
    provider_session: str
    acknowledged: bool = False
    """A turn has ended on it."""
    current: bool = True
    """It is the loop's; of two, the other was given up for it."""
    lost: bool = False
    """It could not be resumed as it was, and has not been since."""
    instead_of: str | None = None
    """The one that it was begun in place of."""
    went_back: WentBack | None = None
    """The newest time."""

    @property
    def confirmed(self) -> bool:
        return self.acknowledged and not self.lost

    def to_json(self) -> dict[str, object]:
        shape: dict[str, object] = {
            "loop": self.loop,
            "provider": self.provider,
            "provider_session": self.provider_session,
            "confirmed": self.confirmed,
            "current": self.current,
            "lost": self.lost,
            "instead_of": self.instead_of,
        }
        if self.went_back is not None:
            shape["went_back"] = self.went_back.to_json()
        return shape


@dataclass(slots=True)
class Restore:
    """One restore: `cut` when its process ended before it did."""

    seq: int
    epoch: int
    holder: str
    from_seq: int
    started_at: int
    turns: list[t.PlannedTurn]
    verified_from: int = 0
    """The record of the snapshot that it began at; 0: it read the whole journal."""
    outcome: Literal["running", "done", "errored", "cut"] = "running"
    ended_at: int | None = None
    took_ms: int | None = None
    actions: list[str] = field(default_factory=list)
    error: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "seq": self.seq,
            "epoch": self.epoch,
            "holder": self.holder,
            "from_seq": self.from_seq,
            "verified_from": self.verified_from,
            "started_at": _time(self.started_at),
            "ended_at": _time(self.ended_at),
            "outcome": self.outcome,
            "took_ms": self.took_ms,
            "turns": msgspec.to_builtins(self.turns),
            "actions": list(self.actions),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class GateShown:
    """An open gate."""

    gate: str
    turn: str | None
    opened_at: int
    opened: t.GateOpened

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.gate,
            "turn": self.turn,
            "kind": self.opened.kind,
            "question": self.opened.question,
            "choices": msgspec.to_builtins(self.opened.choices),
            "opened_at": _time(self.opened_at),
        }


def _time(at: int | None) -> str | None:
    return None if at is None else isoformat(at)
