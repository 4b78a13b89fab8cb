"""How a turn ended, as a caller sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from outlast.agents.failure import TAXONOMY, what_to_do
from outlast.errors import (
    TurnCancelledError,
    TurnFailedError,
    TurnInterruptedError,
    TurnParkedError,
)
from outlast.records.types import (
    InputCancelled,
    Receipt,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
)
from outlast.state.turn_ends import End

DAMAGED = "it was damaged where it waited, and was not carried out: send it again, under another key"

Kind = Literal["done", "failed", "interrupted", "parked", "cancelled"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one turn. `text` is what the assistant said in its last attempt; `usage` counts tokens as
    the agent reported them; `receipt` is there when it failed, also where it is parked for that; `reason`
    says why it did not end as done."""

    session: str
    turn: str
    outcome: Kind
    text: str = ""
    stop_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    receipt: Receipt | None = None
    reason: str = ""

    def raise_for_failure(self) -> None:
        """Raise TurnFailedError, TurnInterruptedError, TurnCancelledError or TurnParkedError unless the turn
        is done."""
        if self.outcome == "done":
            return
        error = self.receipt.error if self.receipt and self.receipt.error.code in TAXONOMY else None
        step = what_to_do(error.code, error.message, self.session) if error else None
        match self.outcome:
            case "failed":
                raise TurnFailedError(
                    f"the turn failed: {self.reason}",
                    hint=step,
                    turn=self.turn,
                    session_id=self.session,
                )
            case "interrupted":
                hint = "`outlast retry` runs it again, which may repeat what it had done"
                raise TurnInterruptedError(
                    f"the turn was cut off: {self.reason}", hint=hint, turn=self.turn, session_id=self.session
                )
            case "cancelled":
                raise TurnCancelledError("the turn was cancelled", turn=self.turn, session_id=self.session)
            case "parked":
                hint = step or "`outlast retry` or `outlast skip` decides"
                raise TurnParkedError(
                    f"the turn is parked: {self.reason}", hint=hint, turn=self.turn, session_id=self.session
                )


def outcome_of(session: str, end: End, text: str = "") -> Outcome:
    """The outcome that an end stands for. Without `text` it is for those who show the text by themselves."""
    turn, body = end.turn, end.body
    match body:
        case TurnDone():
            return Outcome(session, turn, "done", text, body.stop_reason, dict(body.usage))
        case TurnFailed(receipt=receipt):
            error = receipt.error
            return Outcome(
                session, turn, "failed", text, receipt=receipt, reason=f"{error.code}: {error.message}"
            )
        case TurnInterrupted():
            cancelled = body.reason in ("cancelled", "killed")
            return Outcome(
                session, turn, "cancelled" if cancelled else "interrupted", text, reason=body.evidence
            )
        case TurnParked():
            reason = body.detail or body.reason
            return Outcome(session, turn, "parked", text, receipt=end.failed, reason=reason)
        case InputCancelled(reason="damaged"):
            return Outcome(session, turn, "failed", text, "damaged", reason=DAMAGED)
        case InputCancelled():
            lost = "lost" if body.reason == "lost" else None
            return Outcome(session, turn, "cancelled", text, lost, reason=body.reason)


def to_json(outcome: Outcome) -> dict[str, object]:
    """The last line of `run --json`: a contract."""
    shape: dict[str, object] = {
        "outcome": outcome.outcome,
        "stop_reason": outcome.stop_reason,
        "text": outcome.text,
    }
    if outcome.receipt is not None:
        shape["receipt"] = msgspec.to_builtins(outcome.receipt)
    return shape
