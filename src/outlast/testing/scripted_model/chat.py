"""OpenAI chat completions, streamed and as one document: what most agents and frameworks use of them."""

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
    openai_error,
    picture,
    pieces,
    text_in,
    tokens,
)
from outlast.testing.scripted_model.pairing import PairingFault


class ChatDialect:
    """Speaks `POST …/chat/completions`."""

    failed_document_status = 500

    @property
    def api(self) -> str:
        """The API's name."""
        return "chat"

    def serves(self, path: str) -> bool:
        """Whether the path is that of chat completions."""
        return path.endswith("/chat/completions")

    def parse(self, body: JsonObject) -> Parsed:
        """Read a request body. Raises `MalformedRequestError`."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise MalformedRequestError("`messages` must be a list that is not empty")
        options = body.get("stream_options")
        return Parsed(
            model=text_in(body.get("model")),
            stream=body.get("stream") is True,
            items=tuple(item for at, one in enumerate(messages) for item in _message(at, one)),
            tools=_tool_names(body.get("tools")),
            usage_in_stream=isinstance(options, Mapping) and options.get("include_usage") is True,
        )

    def is_side_request(self, body: JsonObject, headers: Mapping[str, str]) -> bool:
        """No agent is known that asks for something beside its conversation here."""
        return False

    def count(self, path: str, body: JsonObject) -> JsonObject | None:
        """This API counts no tokens ahead."""
        return None

    def stream(self, request: Parsed, reply: Reply, identity: Identity) -> Iterator[Event | Pause]:
        """The reply as server-sent events, closed by `[DONE]`."""
        head = _head(request, identity, "chat.completion.chunk")

        def chunk(delta: JsonObject, finish: str | None = None) -> Event:
            return Event("", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

        yield chunk({"role": "assistant", "content": ""})
        if reply.hang_seconds:
            yield Pause(reply.hang_seconds)
        if isinstance(reply.error, StreamError):
            yield Event("", openai_error(reply.error.code, reply.error.message))
            return
        for piece in pieces(reply.text, reply) if reply.text else ():
            yield piece if isinstance(piece, Pause) else chunk({"content": piece})
        for index, call in enumerate(_calls(reply, identity)):
            yield chunk({"tool_calls": [{"index": index, **call}]})
        yield chunk({}, _finish(reply))
        if request.usage_in_stream:
            yield Event("", {**head, "choices": [], "usage": _usage(request, reply)})
        yield Event("", "[DONE]")

    def document(self, request: Parsed, reply: Reply, identity: Identity) -> JsonObject:
        """The reply as one JSON document."""
        if isinstance(reply.error, StreamError):
            return openai_error(reply.error.code, reply.error.message)
        message: dict[str, Json] = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = list(_calls(reply, identity))
        choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        head = _head(request, identity, "chat.completion")
        return {**head, "choices": [choice], "usage": _usage(request, reply)}

    def error(self, error: HttpError) -> JsonObject:
        """The body of an answer with an error status."""
        return openai_error(error.code or "scripted_error", error.message)

    def refusal(self, fault: PairingFault) -> str:
        """What this API says of a history whose calls and results don't pair up."""
        match fault.kind:
            case "unanswered":
                return (
                    f"An assistant message with 'tool_calls' must be followed by tool messages responding to "
                    f"each 'tool_call_id'. The following tool_call_ids did not have response messages: "
                    f"{fault.call}"
                )
            case "orphan":
                return (
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceding message "
                    f"with 'tool_calls': {fault.call}"
                )
            case _:
                return fault.sentence


def _message(at: int, message: Json) -> Iterator[Item]:
    if not isinstance(message, Mapping):
        raise MalformedRequestError(f"messages[{at}] must be an object")
    role = text_in(message.get("role"))
    content = message.get("content")
    text = text_in(content)
    if role == "tool":
        yield Item("result", text, text_in(message.get("tool_call_id")) or None)
    elif role == "user":
        parts = content if isinstance(content, list) else []
        for part in parts:
            if isinstance(part, Mapping) and part.get("type") == "image_url":
                yield Item("image", picture(_address(part.get("image_url"))))
        yield Item(user_kind(text), text)
    elif role == "assistant":
        calls = message.get("tool_calls")
        asked = calls if isinstance(calls, list) else []
        if text or not asked:
            yield Item("assistant", text)
        yield from (_call(at, call) for call in asked)
    elif role in ("system", "developer"):
        yield Item("system", text)
    else:
        raise MalformedRequestError(f"messages[{at}] has the unknown role {role!r}")


def _address(image: Json) -> str:
    return text_in(image.get("url")) if isinstance(image, Mapping) else text_in(image)


def _call(at: int, call: Json) -> Item:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise MalformedRequestError(f"messages[{at}] has a tool call without a function")
    return Item(
        "call",
        text_in(function.get("arguments")),
        text_in(call.get("id")) or None,
        text_in(function.get("name")),
    )


def _tool_names(value: Json) -> tuple[str, ...]:
    tools = value if isinstance(value, list) else []
    functions = (tool.get("function") for tool in tools if isinstance(tool, Mapping))
    names = (function.get("name") for function in functions if isinstance(function, Mapping))
    return tuple(name for name in names if isinstance(name, str))


def _head(request: Parsed, identity: Identity, kind: str) -> dict[str, Json]:
    return {"id": identity.name("chatcmpl"), "object": kind, "created": 0, "model": request.model}


def _calls(reply: Reply, identity: Identity) -> Iterator[dict[str, Json]]:
    for index, call in enumerate(reply.calls):
        function: JsonObject = {"name": call.name, "arguments": json.dumps(call.arguments)}
        yield {"id": identity.name("call", index), "type": "function", "function": function}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(request: Parsed, reply: Reply) -> JsonObject:
    read = tokens(*(item.text for item in request.items))
    written = tokens(reply.text, *(json.dumps(call.arguments) for call in reply.calls))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
