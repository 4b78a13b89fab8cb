"""Frames of `codex app-server`, decoded as far as the fold uses them.

Shapes are those that `codex app-server generate-json-schema` of 0.163 gives. Fields that a later version
adds are ignored; a frame that no longer has the shape decodes to None, and the fold treats it as output
that is not of the protocol."""

from __future__ import annotations

import msgspec

from outlast.agents.shapes import decode

RpcId = int | str


class RpcError(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class Frame(msgspec.Struct, frozen=True):
    """A request has an id and a method, a notification a method, a response an id."""

    id: RpcId | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: RpcError | None = None
    outlast: Sent | None = None
    emitted_at_ms: int = msgspec.field(default=0, name="emittedAtMs")


class Sent(msgspec.Struct, frozen=True):
    """What we add to a prompt's frame for our own fold; codex ignores the field (measured)."""

    attempt: int = 1


class Item(msgspec.Struct, frozen=True, rename="camel"):
    """A thread item: `type` says which of the fields it has."""

    type: str
    id: str
    client_id: str | None = None
    text: str = ""
    status: str = ""
    summary: tuple[str, ...] | str = ()
    content: msgspec.Raw = msgspec.Raw(b"null")
    command: str = ""
    aggregated_output: str | None = None
    exit_code: int | None = None
    changes: tuple[FileChange, ...] = ()
    server: str = ""
    tool: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")
    query: str = ""


class FileChange(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    diff: str = ""
    kind: msgspec.Raw = msgspec.Raw(b"null")


class TurnError(msgspec.Struct, frozen=True, rename="camel"):
    message: str = ""
    codex_error_info: str | dict[str, HttpStatus] | None = None


class HttpStatus(msgspec.Struct, frozen=True, rename="camel"):
    http_status_code: int | None = None


class ErrorNotice(msgspec.Struct, frozen=True, rename="camel"):
    error: TurnError
    will_retry: bool = False
    thread_id: str = ""


class Turn(msgspec.Struct, frozen=True):
    id: str
    status: str = ""
    items: tuple[Item, ...] = ()
    error: TurnError | None = None


class TurnResult(msgspec.Struct, frozen=True):
    turn: Turn


class TurnNotice(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    turn: Turn


class ItemNotice(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    turn_id: str
    item: Item


class DeltaNotice(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    item_id: str
    delta: str


class PlanStep(msgspec.Struct, frozen=True):
    step: str
    status: str = ""


class PlanNotice(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    plan: tuple[PlanStep, ...] = ()


class TokenCounts(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class TokenUsage(msgspec.Struct, frozen=True):
    total: TokenCounts
    last: TokenCounts


class UsageNotice(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    turn_id: str
    token_usage: TokenUsage


class LimitWindow(msgspec.Struct, frozen=True, rename="camel"):
    used_percent: float = 0
    resets_at: int | None = None
    """Seconds since 1970."""


class RateLimits(msgspec.Struct, frozen=True):
    primary: LimitWindow | None = None
    secondary: LimitWindow | None = None


class LimitsNotice(msgspec.Struct, frozen=True, rename="camel"):
    rate_limits: RateLimits


class ResolvedNotice(msgspec.Struct, frozen=True, rename="camel"):
    request_id: RpcId


class Thread(msgspec.Struct, frozen=True):
    """`path` is that of its rollout."""

    id: str
    path: str | None = None


class SandboxPolicy(msgspec.Struct, frozen=True):
    type: str


class TurnsPage(msgspec.Struct, frozen=True):
    data: tuple[Turn, ...] = ()


class ThreadResult(msgspec.Struct, frozen=True, rename="camel"):
    thread: Thread
    approval_policy: msgspec.Raw = msgspec.Raw(b"null")
    sandbox: SandboxPolicy | None = None
    initial_turns_page: TurnsPage | None = None


class OpenParams(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str | None = None


class PromptParams(msgspec.Struct, frozen=True, rename="camel"):
    client_user_message_id: str | None = None


class SteerParams(msgspec.Struct, frozen=True, rename="camel"):
    expected_turn_id: str
    client_user_message_id: str | None = None


class InterruptParams(msgspec.Struct, frozen=True, rename="camel"):
    turn_id: str


def decode_frame(line: bytes) -> Frame | None:
    """The frame in a line, or None when the line holds none."""
    return decode(line, Frame)
