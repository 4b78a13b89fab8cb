"""The OpenAI Responses API, streamed and as one document: what coding agents use of it.

State on the server (`previous_response_id`, stored conversations) is refused: a request carries its whole
history, which is what makes it possible to see and check what the model was told."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping

from outlast.testing.scripted_model.conversation import (
    HttpError,
    Item,
    ItemKind,
    Json,
    JsonObject,
    Reply,
    StreamError,
    ToolCall,
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

_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_MESSAGE_KINDS: Mapping[str, ItemKind] = {
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


class ResponsesDialect:
    """Speaks `POST …/responses`."""

    failed_document_status = 200

    @property
    def api(self) -> str:
        """The API's name."""
        return "responses"

    def serves(self, path: str) -> bool:
        """Whether the path is that of the Responses API."""
        return path.endswith("/responses")

    def parse(self, body: JsonObject) -> Parsed:
        """Read a request body. Raises `MalformedRequestError`."""
        if body.get("previous_response_id") or body.get("conversation"):
            raise MalformedRequestError(
                "the scripted model keeps no state: send the whole history in `input`"
            )
        instructions = body.get("instructions")
        head = (Item("system", instructions),) if isinstance(instructions, str) and instructions else ()
        return Parsed(
            model=text_in(body.get("model")),
            stream=body.get("stream") is True,
            items=head + _items(body.get("input")),
            tools=_tool_names(body.get("tools")),
        )

    def is_side_request(self, body: JsonObject, headers: Mapping[str, str]) -> bool:
        """No agent is known that asks for something beside its conversation here."""
        return False

    def count(self, path: str, body: JsonObject) -> JsonObject | None:
        """The number of tokens of a request that is not made, when the path asks for it."""
        if not path.endswith("/responses/input_tokens"):
            return None
        read = tokens(*(item.text for item in self.parse(body).items))
        return {"object": "response.input_tokens", "input_tokens": read}

    def stream(self, request: Parsed, reply: Reply, identity: Identity) -> Iterator[Event | Pause]:
        """The reply as server-sent events."""
        numbers = itertools.count()

        def event(kind: str, **fields: Json) -> Event:
            return Event(kind, {"type": kind, "sequence_number": next(numbers), **fields})

        begun = _response(request, identity, "in_progress", [])
        yield event("response.created", response=begun)
        if reply.hang_seconds:
            yield Pause(reply.hang_seconds)
        if isinstance(reply.error, StreamError):
            error: JsonObject = {"code": reply.error.code, "message": reply.error.message}
            yield event("response.failed", response={**begun, "status": "failed", "error": error})
            return
        output = _output(reply, identity)
        for index, item in enumerate(output):
            for step in _item_events(item, reply):
                yield step if isinstance(step, Pause) else event(step[0], output_index=index, **step[1])
        done = _response(request, identity, "completed", output)
        yield event("response.completed", response={**done, "usage": _usage(request, reply)})

    def document(self, request: Parsed, reply: Reply, identity: Identity) -> JsonObject:
        """The reply as one JSON document."""
        if isinstance(reply.error, StreamError):
            failed = _response(request, identity, "failed", [])
            return {**failed, "error": {"code": reply.error.code, "message": reply.error.message}}
        done = _response(request, identity, "completed", _output(reply, identity))
        return {**done, "usage": _usage(request, reply)}

    def error(self, error: HttpError) -> JsonObject:
        """The body of an answer with an error status."""
        return openai_error(error.code or "scripted_error", error.message)

    def refusal(self, fault: PairingFault) -> str:
        """What this API says of a history whose calls and results don't pair up."""
        return fault.sentence


def _items(value: Json) -> tuple[Item, ...]:
    if isinstance(value, str):
        return (Item("user", value),)
    if not isinstance(value, list):
        raise MalformedRequestError("`input` must be a text or a list of items")
    return tuple(item for one in value for item in (*_images(one), _item(one)))


def _images(value: Json) -> Iterator[Item]:
    content = value.get("content") if isinstance(value, Mapping) else None
    for part in content if isinstance(content, list) else []:
        if isinstance(part, Mapping) and part.get("type") == "input_image":
            yield Item("image", picture(text_in(part.get("image_url"))))


def _item(value: Json) -> Item:
    if not isinstance(value, Mapping):
        raise MalformedRequestError("every entry of `input` must be an object")
    kind = text_in(value.get("type")) or "message"
    call = text_in(value.get("call_id")) or None
    if kind == "message":
        text = text_in(value.get("content"))
        role = text_in(value.get("role"))
        if role == "user":
            return Item(user_kind(text), text)
        if role not in _MESSAGE_KINDS:
            raise MalformedRequestError(f"a message has the unknown role {role!r}")
        return Item(_MESSAGE_KINDS[role], text)
    if kind in _CALLS:
        asked = value.get(_CALLS[kind])
        return Item(
            "call", asked if isinstance(asked, str) else json.dumps(asked), call, text_in(value.get("name"))
        )
    if kind.endswith("_output"):
        return Item("result", text_in(value.get("output")), call)
    return Item("other", kind)


def _tool_names(value: Json) -> tuple[str, ...]:
    tools = value if isinstance(value, list) else []
    named = (tool.get("name") or tool.get("type") for tool in tools if isinstance(tool, Mapping))
    return tuple(name for name in named if isinstance(name, str))


def _response(request: Parsed, identity: Identity, status: str, output: list[Json]) -> dict[str, Json]:
    return {
        "id": identity.name("resp"),
        "object": "response",
        "created_at": 0,
        "model": request.model,
        "status": status,
        "output": output,
    }


def _output(reply: Reply, identity: Identity) -> list[Json]:
    output: list[Json] = []
    if reply.text or not reply.calls:
        output.append(_message(reply.text, identity))
    output += [_call(call, identity, index) for index, call in enumerate(reply.calls)]
    return output


def _message(text: str, identity: Identity) -> JsonObject:
    return {
        "type": "message",
        "id": identity.name("msg"),
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _call(call: ToolCall, identity: Identity, index: int) -> JsonObject:
    namespace: JsonObject = {"namespace": call.namespace} if call.namespace else {}
    return {
        **namespace,
        "type": "function_call",
        "id": identity.name("fc", index),
        "call_id": identity.name("call", index),
        "name": call.name,
        "arguments": json.dumps(call.arguments),
        "status": "completed",
    }


def _item_events(item: Json, reply: Reply) -> Iterator[tuple[str, dict[str, Json]] | Pause]:
    assert isinstance(item, Mapping)
    item_id = item["id"]
    if item["type"] == "function_call":
        arguments = item["arguments"]
        yield "response.output_item.added", {"item": {**item, "arguments": "", "status": "in_progress"}}
        yield "response.function_call_arguments.delta", {"item_id": item_id, "delta": arguments}
        yield "response.function_call_arguments.done", {"item_id": item_id, "arguments": arguments}
    else:
        at: dict[str, Json] = {"item_id": item_id, "content_index": 0}
        empty: JsonObject = {"type": "output_text", "text": "", "annotations": []}
        yield "response.output_item.added", {"item": {**item, "content": [], "status": "in_progress"}}
        yield "response.content_part.added", {**at, "part": empty}
        for piece in pieces(reply.text, reply):
            yield (
                piece if isinstance(piece, Pause) else ("response.output_text.delta", {**at, "delta": piece})
            )
        yield "response.output_text.done", {**at, "text": reply.text}
        yield "response.content_part.done", {**at, "part": {**empty, "text": reply.text}}
    yield "response.output_item.done", {"item": item}


def _usage(request: Parsed, reply: Reply) -> JsonObject:
    read = tokens(*(item.text for item in request.items))
    written = tokens(reply.text, *(json.dumps(call.arguments) for call in reply.calls))
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
