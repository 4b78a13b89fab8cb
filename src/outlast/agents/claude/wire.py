"""Frames of Claude Code's stream-json, decoded as far as the fold uses them.

Shapes are those that 2.1.332 speaks (measured, and the schemas in the program). Fields that a later version
adds are ignored; a frame that no longer has the shape decodes to None, and the fold treats it as output that
is not of the protocol."""

from __future__ import annotations

import msgspec

from outlast.agents.shapes import decode

EMPTY = msgspec.Raw(b"null")


class Sent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What we add to a message's frame for our own fold; Claude Code ignores the field (measured)."""

    request: str
    attempt: int = 1
    steer: bool = False


class Frame(msgspec.Struct, frozen=True):
    """A line in either direction: `type` says which of the fields it has."""

    type: str
    subtype: str = ""
    uuid: str = ""
    session_id: str = ""
    parent_tool_use_id: str | None = None
    message: msgspec.Raw = EMPTY
    is_replay: bool = msgspec.field(default=False, name="isReplay")
    aborted: bool = False
    error: msgspec.Raw = EMPTY
    is_api_error_message: bool = False
    api_error: msgspec.Raw = EMPTY
    api_error_params: msgspec.Raw = EMPTY
    rate_limit_info: msgspec.Raw = EMPTY
    timestamp: msgspec.Raw = EMPTY
    event: msgspec.Raw = EMPTY
    entries: tuple[msgspec.Raw, ...] = ()
    command_uuid: str = ""
    state: str = ""
    request_id: str = ""
    request: msgspec.Raw = EMPTY
    response: msgspec.Raw = EMPTY
    outlast: Sent | None = None


class Block(msgspec.Struct, frozen=True):
    """A content block of a message."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = EMPTY
    tool_use_id: str = ""
    content: msgspec.Raw = EMPTY
    is_error: bool | None = False


class Message(msgspec.Struct, frozen=True):
    content: tuple[Block, ...] = ()
    model: str = ""


class DeltaPart(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class StreamEvent(msgspec.Struct, frozen=True):
    type: str
    delta: DeltaPart = DeltaPart()


class Attachment(msgspec.Struct, frozen=True):
    type: str = ""
    source_uuid: str = ""


class Entry(msgspec.Struct, frozen=True):
    """A line of the transcript, as the mirror gives it."""

    type: str = ""
    uuid: str = ""
    attachment: Attachment = Attachment()


class ModelUsage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    thinking_tokens: int = 0
    web_search_requests: int = 0
    cost_usd: float = msgspec.field(default=0.0, name="costUSD")


class Origin(msgspec.Struct, frozen=True):
    kind: str = ""


class Result(msgspec.Struct, frozen=True):
    """The end of a turn. `origin` is there when Claude Code had begun the turn by itself."""

    subtype: str = ""
    is_error: bool = False
    result: str = ""
    errors: tuple[str, ...] = ()
    stop_reason: str | None = None
    terminal_reason: str = ""
    api_error_status: int | None = None
    api_error_type: str = ""
    api_error: str = ""
    user_message_uuid: str = ""
    user_message_uuids: tuple[str, ...] = ()
    origin: Origin | None = None
    model_usage_since_last_result: dict[str, ModelUsage] = {}

    @property
    def answers(self) -> frozenset[str]:
        """The messages that the turn has taken in."""
        return frozenset(filter(None, (self.user_message_uuid, *self.user_message_uuids)))


class Server(msgspec.Struct, frozen=True):
    name: str = ""
    status: str = ""


class Init(msgspec.Struct, frozen=True):
    """What Claude Code says of itself when a turn begins."""

    mcp_servers: tuple[Server, ...] = ()


class Retry(msgspec.Struct, frozen=True):
    """Of a model call, by Claude Code itself. Delays are in milliseconds."""

    attempt: int = 0
    max_retries: int = 0
    retry_delay_ms: int = 0
    error_status: int | None = None
    error: str = ""


class LimitInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What the provider said of a limit. `resets_at` is UTC in seconds since 1970."""

    status: str = ""
    resets_at: int | None = None


class ErrorParams(msgspec.Struct, frozen=True):
    rate_limit_info: LimitInfo = LimitInfo()


class ControlRequest(msgspec.Struct, frozen=True):
    """Of either side: `subtype` says which."""

    subtype: str
    message_uuid: str = ""
    tool_name: str = ""


class ControlResponse(msgspec.Struct, frozen=True):
    subtype: str = ""
    request_id: str = ""
    error: str = ""


def decode_frame(line: bytes) -> Frame | None:
    """The frame in a line, or None when the line holds none."""
    return decode(line, Frame)
