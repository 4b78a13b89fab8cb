"""The Anthropic Messages API, streamed and as one document: what coding agents use of it.

Claude Code asks for more than its turns: names for sessions, a probe of the quota, summaries by a small
model. Such side requests are told apart here, so that no script is used up by them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from outlast.testing.scripted_model.conversation import (
    HttpError,
    Item,
    Json,
    JsonObject,
    Reply,
    StreamError,
    user_kind,
)
from outlast.testing.scripted_model.dialect import (
    Event,
    Identity,
    MalformedRequestError,
    Parsed,
    Pause,
    picture,
    pieces,
    text_in,
    tokens,
)
from outlast.testing.scripted_model.pairing import PairingFault

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SIDE_MODEL = "haiku"


class AnthropicDialect:
    """Speaks `POST …/messages` and `POST …/messages/count_tokens`."""

    failed_document_status = 500

    @property
    def api(self) -> str:
        """The API's name."""
        return "anthropic"

    def serves(self, path: str) -> bool:
        """Whether the path is that of the Messages API."""
        return path.endswith("/messages")

    def parse(self, body: JsonObject) -> Parsed:
        """Read a request body. Raises `MalformedRequestError`."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise MalformedRequestError("messages: at least one message is required")
        system = tuple(Item("system", text) for text in _texts(body.get("system")))
        offered = body.get("tools")
        tools = offered if isinstance(offered, list) else []
        named = (tool.get("name") for tool in tools if isinstance(tool, Mapping))
        return Parsed(
            model=text_in(body.get("model")),
            stream=body.get("stream") is True,
            items=system + tuple(item for at, one in enumerate(messages) for item in _message(at, one)),
            tools=tuple(name for name in named if isinstance(name, str)),
        )

    def is_side_request(self, body: JsonObject, headers: Mapping[str, str]) -> bool:
        """Whether Claude Code asks this beside the conversation: it offers no tool, and wants one token (the
        quota), a small model or an answer of a given form (a title)."""
        agent = next((value for name, value in headers.items() if name.lower() == "user-agent"), "")
        if body.get("tools") or not agent.startswith("claude-cli/"):
            return False
        output = body.get("output_config")
        formed = body.get("output_format") or (isinstance(output, Mapping) and output.get("format"))
        return bool(body.get("max_tokens") == 1 or formed or _SIDE_MODEL in text_in(body.get("model")))

    def count(self, path: str, body: JsonObject) -> JsonObject | None:
        """The number of tokens of a request that is not made, when the path asks for it."""
        if not path.endswith("/messages/count_tokens"):
            return None
        return {"input_tokens": tokens(*(item.text for item in self.parse(body).items))}

    def stream(self, request: Parsed, reply: Reply, identity: Identity) -> Iterator[Event | Pause]:
        """The reply as server-sent events."""

        def event(kind: str, **fields: Json) -> Event:
            return Event(kind, {"type": kind, **fields})

        yield event("message_start", message=_head(request, identity))
        yield event("ping")
        if reply.hang_seconds:
            yield Pause(reply.hang_seconds)
        if isinstance(reply.error, StreamError):
            yield Event("error", _error(reply.error.code, reply.error.message))
            return
        for index, block in enumerate(_content(reply, identity)):
            for step in _block_events(block, reply):
                yield step if isinstance(step, Pause) else event(step[0], index=index, **step[1])
        delta: JsonObject = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
        yield event("message_delta", delta=delta, usage={"output_tokens": _written(reply)})
        yield event("message_stop")

    def document(self, request: Parsed, reply: Reply, identity: Identity) -> JsonObject:
        """The reply as one JSON document."""
        if isinstance(reply.error, StreamError):
            return _error(reply.error.code, reply.error.message)
        head = _head(request, identity)
        usage = {**_usage(request), "output_tokens": _written(reply)}
        content = _content(reply, identity)
        return {**head, "content": content, "stop_reason": _stop_reason(reply), "usage": usage}

    def error(self, error: HttpError) -> JsonObject:
        """The body of an answer with an error status."""
        return _error(error.code or _ERROR_TYPES.get(error.status, "api_error"), error.message)

    def refusal(self, fault: PairingFault) -> str:
        """What this API says of a history whose calls and results don't pair up."""
        match fault.kind:
            case "unanswered":
                return (
                    f"messages: `tool_use` ids were found without `tool_result` blocks immediately after: "
                    f"{fault.call}. Each `tool_use` block must have a corresponding `tool_result` block in "
                    f"the next message."
                )
            case "orphan":
                return (
                    f"messages: unexpected `tool_use_id` found in `tool_result` blocks: {fault.call}. Each "
                    f"`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
            case "result_twice":
                return (
                    f"messages: each tool_use must have a single result. Found multiple `tool_result` "
                    f"blocks with id: {fault.call}"
                )
            case "call_twice":
                return f"messages: `tool_use` ids must be unique: {fault.call}"
            case _:
                return f"messages: {fault.sentence}"


def _texts(value: Json) -> list[str]:
    blocks = value if isinstance(value, list) else [value]
    return [text for text in map(text_in, blocks) if text]


def _message(at: int, message: Json) -> list[Item]:
    if not isinstance(message, Mapping):
        raise MalformedRequestError(f"messages.{at}: must be an object")
    role = text_in(message.get("role"))
    content = message.get("content")
    if role not in ("user", "assistant", "system"):
        raise MalformedRequestError(f"messages.{at}.role: {role!r} is not 'user' or 'assistant'")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    items: list[Item] = []
    for number, block in enumerate(blocks):
        if not isinstance(block, Mapping):
            raise MalformedRequestError(f"messages.{at}.content.{number}: must be an object")
        items += _block(f"messages.{at}.content.{number}", role, block)
    return _joined(items)


def _block(place: str, role: str, block: JsonObject) -> list[Item]:
    kind = text_in(block.get("type"))
    if kind == "text":
        text = text_in(block.get("text"))
        if not text.strip():
            raise MalformedRequestError(f"{place}: text content blocks must contain non-whitespace text")
        if role == "user":
            return [Item(user_kind(text), text)]
        return [Item("assistant" if role == "assistant" else "system", text)]
    if kind == "tool_use":
        call = text_in(block.get("id")) or None
        return [Item("call", json.dumps(block.get("input")), call, text_in(block.get("name")))]
    if kind == "tool_result":
        content = block.get("content")
        parts = content if isinstance(content, list) else []
        return [
            Item("result", text_in(content), text_in(block.get("tool_use_id")) or None),
            *(_image(part) for part in parts if isinstance(part, Mapping) and part.get("type") == "image"),
        ]
    return [_image(block) if kind == "image" else Item("other", kind)]


def _image(block: JsonObject) -> Item:
    source = block.get("source")
    if not isinstance(source, Mapping):
        return Item("other", "image")
    data = text_in(source.get("data"))
    address = (
        f"data:{text_in(source.get('media_type'))};base64,{data}" if data else text_in(source.get("url"))
    )
    return Item("image", picture(address))


def _joined(items: list[Item]) -> list[Item]:
    """What a person said in one message is one text, however many blocks it came in."""
    joined: list[Item] = []
    for item in items:
        if item.kind == "user" and joined and joined[-1].kind == "user":
            joined[-1] = Item("user", f"{joined[-1].text}\n{item.text}")
        else:
            joined.append(item)
    return joined


def _head(request: Parsed, identity: Identity) -> dict[str, Json]:
    return {
        "id": identity.name("msg"),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(request),
    }


def _content(reply: Reply, identity: Identity) -> list[Json]:
    content: list[Json] = []
    if reply.text or not reply.calls:
        content.append({"type": "text", "text": reply.text})
    for index, call in enumerate(reply.calls):
        content.append(
            {
                "type": "tool_use",
                "id": identity.name("toolu", index),
                "name": call.name,
                "input": call.arguments,
            }
        )
    return content


def _block_events(block: Json, reply: Reply) -> Iterator[tuple[str, dict[str, Json]] | Pause]:
    assert isinstance(block, Mapping)
    if block["type"] == "tool_use":
        yield "content_block_start", {"content_block": {**block, "input": {}}}
        delta: JsonObject = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield "content_block_delta", {"delta": delta}
    else:
        yield "content_block_start", {"content_block": {"type": "text", "text": ""}}
        for piece in pieces(reply.text, reply):
            if isinstance(piece, Pause):
                yield piece
            else:
                yield "content_block_delta", {"delta": {"type": "text_delta", "text": piece}}
    yield "content_block_stop", {}


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


def _error(code: str, message: str) -> JsonObject:
    return {"type": "error", "error": {"type": code, "message": message}}


def _usage(request: Parsed) -> dict[str, Json]:
    read = tokens(*(item.text for item in request.items))
    return {
        "input_tokens": read,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
    }


def _written(reply: Reply) -> int:
    return tokens(reply.text, *(json.dumps(call.arguments) for call in reply.calls))
