"""What a conversation shows, message by message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from outlast.clock import isoformat
from outlast.records.types import Content


def text_of(content: list[Content]) -> str:
    """The text of an input's blocks, joined by newlines."""
    return "\n".join(block.text for block in content)


def _block_json(block: Content) -> dict[str, object]:
    """A block without the bytes of an image: they are in the journal."""
    shown: dict[str, object] = msgspec.to_builtins(block)
    shown.pop("data", None)
    return shown


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a user sent; it stands where its turn began or the running turn took it in."""

    seq: int
    """Of its InputAccepted."""
    at: int
    turn: str
    request_id: str
    content: list[Content]

    def to_json(self) -> dict[str, object]:
        return {
            **_head("user", self.seq, self.at, self.turn),
            "request_id": self.request_id,
            "text": text_of(self.content),
            "content": [_block_json(block) for block in self.content],
        }


@dataclass(slots=True)
class AgentMessage:
    """What the agent said, thought or plans."""

    seq: int
    at: int
    turn: str | None
    role: Literal["assistant", "thought", "plan"]
    attempt: int
    pieces: list[str]
    """Of one text; a long one comes in several records."""
    cut: bool = False
    """The reply was cut off here."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def to_json(self) -> dict[str, object]:
        return {
            **_head(self.role, self.seq, self.at, self.turn),
            "attempt": self.attempt,
            "text": self.text,
            "cut": self.cut,
        }


@dataclass(slots=True)
class ToolMessage:
    """A tool call and its outcome; `unknown` where the turn ended before one came."""

    seq: int
    at: int
    turn: str | None
    attempt: int
    call: str
    name: str
    status: Literal["started", "completed", "failed", "unknown"]
    input: str = ""
    output: str = ""

    def to_json(self) -> dict[str, object]:
        return {
            **_head("tool", self.seq, self.at, self.turn),
            "attempt": self.attempt,
            "call": self.call,
            "name": self.name,
            "status": self.status,
            "input": self.input,
            "output": self.output,
        }


@dataclass(frozen=True, slots=True)
class TurnMessage:
    """What became of a turn that did not simply end as done, and why."""

    seq: int
    at: int
    turn: str | None
    kind: Literal["failed", "interrupted", "parked", "retried"]
    reason: str
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        return {
            **_head(self.kind, self.seq, self.at, self.turn),
            "reason": self.reason,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class OwnerMessage:
    """A new process took the session over."""

    seq: int
    at: int
    epoch: int
    holder: str

    def to_json(self) -> dict[str, object]:
        return {**_head("owner", self.seq, self.at, None), "epoch": self.epoch, "holder": self.holder}


Message: TypeAlias = UserMessage | AgentMessage | ToolMessage | TurnMessage | OwnerMessage


def _head(kind: str, seq: int, at: int, turn: str | None) -> dict[str, object]:
    return {"kind": kind, "seq": seq, "at": isoformat(at), "turn": turn}
