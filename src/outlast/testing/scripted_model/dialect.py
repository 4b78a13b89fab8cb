"""The seam between the server and an API: a dialect is pure, the server does the waiting and the writing."""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from outlast.testing.scripted_model.conversation import HttpError, Item, Json, JsonObject, Reply
from outlast.testing.scripted_model.pairing import PairingFault


class MalformedRequestError(Exception):
    """The body is not a request of this API; the text says what is wrong. Answered with status 400."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parts of a request body that the server and scripts use."""

    model: str
    stream: bool
    items: tuple[Item, ...]
    tools: tuple[str, ...]
    usage_in_stream: bool = True


@dataclass(frozen=True, slots=True)
class Identity:
    """Names for one reply, unique over all servers, so that no history ever holds a call id twice."""

    nonce: str
    number: int

    def name(self, prefix: str, index: int = 0) -> str:
        """An id such as `call_3f2a_7_0`."""
        return f"{prefix}_{self.nonce}_{self.number}_{index}"


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event. An empty name sends the data alone; a text is sent as it is, not as JSON."""

    name: str
    data: JsonObject | str


@dataclass(frozen=True, slots=True)
class Pause:
    """The stream waits here for these seconds, or until this is set."""

    seconds: float = 0.0
    until: threading.Event | None = None


class Dialect(Protocol):
    """One model API."""

    @property
    def api(self) -> str:
        """The API's name, as `ModelRequest.api` shows it."""
        ...

    @property
    def failed_document_status(self) -> int:
        """The status of a document whose reply is a `StreamError`."""
        ...

    def serves(self, path: str) -> bool:
        """Whether a POST to this path (without its query) belongs to this API."""
        ...

    def parse(self, body: JsonObject) -> Parsed:
        """Read a request body. Raises `MalformedRequestError`."""
        ...

    def is_side_request(self, body: JsonObject, headers: Mapping[str, str]) -> bool:
        """Whether the agent asks this beside its conversation. No script is asked for the answer."""
        ...

    def count(self, path: str, body: JsonObject) -> JsonObject | None:
        """The answer to a request that only counts tokens, or None when the path asks for something else.
        Raises `MalformedRequestError`."""
        ...

    def refusal(self, fault: PairingFault) -> str:
        """What this API says of a history whose calls and results don't pair up."""
        ...

    def stream(self, request: Parsed, reply: Reply, identity: Identity) -> Iterator[Event | Pause]:
        """The reply as server-sent events."""
        ...

    def document(self, request: Parsed, reply: Reply, identity: Identity) -> JsonObject:
        """The reply as one JSON document."""
        ...

    def error(self, error: HttpError) -> JsonObject:
        """The body of an answer with an error status."""
        ...


def pieces(text: str, reply: Reply) -> Iterator[str | Pause]:
    """Cut a text into the pieces in which it is streamed, with the pauses between them."""
    if reply.halfway is not None:
        half = (len(text) + 1) // 2
        yield text[:half]
        yield Pause(until=reply.halfway)
        yield text[half:]
        return
    if not reply.slow_seconds:
        yield text
        return
    size = max(1, -(-len(text) // 10))
    parts = [text[at : at + size] for at in range(0, len(text), size)] or [""]
    for part in parts:
        yield part
        yield Pause(reply.slow_seconds / len(parts))


def text_in(value: Json) -> str:
    """The text in a string, a content part or a list of them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(text for text in map(text_in, value) if text)
    if isinstance(value, Mapping):
        for key in ("text", "output", "content"):
            if key in value:
                return text_in(value[key])
    return ""


def picture(address: str) -> str:
    """What is kept of a picture: type, size and digest of a `data:` URL, else the address itself."""
    head, comma, data = address.partition(";base64,")
    if not comma or not head.startswith("data:"):
        return address
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise MalformedRequestError("the data of an image is not base64") from None
    return f"{head.removeprefix('data:')} {len(raw)} bytes sha256:{hashlib.sha256(raw).hexdigest()}"


def tokens(*texts: str) -> int:
    """A count of tokens that grows with the conversation: four characters each."""
    return 1 + sum(map(len, texts)) // 4


def openai_error(code: str, message: str) -> JsonObject:
    """The body of an error, as both APIs of OpenAI write it."""
    return {"error": {"message": message, "type": code, "code": code, "param": None}}
