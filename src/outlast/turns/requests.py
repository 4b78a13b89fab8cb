"""What travels through a session's inbox: commands as typed JSON (pure).

Everything but an input names its target, so that a command read late is settled as too late instead of
hitting something else.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from outlast.errors import InvalidRecordError
from outlast.records.agent_state import LostChoice
from outlast.records.types import Content, OnInterrupt, WhenBusy


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all commands."""


class InputRequest(Request, frozen=True):
    content: list[Content]
    on_interrupt: OnInterrupt | None = None
    when_busy: WhenBusy = "queue"


class StopRequest(Request, frozen=True):
    """Cancel or kill. `turn` is the turn that is meant; None: the one that runs when the owner reads it."""

    turn: str | None = None


class CloseRequest(Request, frozen=True):
    reason: str = "closed"


class AnswerRequest(Request, frozen=True):
    gate: str
    choice: str
    by: str | None = None


class TurnRequest(Request, frozen=True):
    """Retry or skip. `turn` None: the newest that the command applies to. `session`: what a retry does about
    the agent's own session."""

    turn: str | None = None
    session: LostChoice | None = None


class SettleRequest(Request, frozen=True):
    """What a person says of an effect whose outcome is not known. `result`: JSON. `seen`: the newest record
    about it at that time; one that has begun again since is another matter."""

    turn: str
    effect: str
    outcome: Literal["done", "absent"]
    result: str | None = None
    reason: str = ""
    seen: int | None = None


class AdoptRequest(Request, frozen=True):
    """The session's agent goes on with a session of its own that began elsewhere."""

    provider: str
    provider_session: str
    confirmed: bool
    reason: str


class HoldRequest(Request, frozen=True):
    """Park these inputs, if they wait: a person is to decide about each, because of `reason`."""

    inputs: list[str]
    reason: str


R = TypeVar("R", bound=Request)


def encode(request: Request) -> bytes:
    return msgspec.json.encode(request, order="deterministic")


def decode(kind: type[R], body: bytes) -> R:
    """Raises InvalidRecordError for bytes that are no such command."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise InvalidRecordError(f"an inbox entry is not a {kind.__name__}: {error}") from error
