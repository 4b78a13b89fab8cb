"""The seam between the server and an API: a dialect is pure, the server does the waiting and the writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from outlast.testing.scripted_model.conversation import HttpError, Item, JsonObject, Reply


class MalformedRequestError(Exception):
    """The body is not a request of this API; the text says what is wrong. Answered with status 400."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parts of a request body that the server and scripts use."""

    model: str
    stream: bool
    items: tuple[Item, ...]
    tools: tuple[str, ...]


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
    """The stream waits here."""

    seconds: float


class Dialect(Protocol):
    """One model API. Chat completions and Anthropic messages would each be one more of these."""

    @property
    def api(self) -> str:
        """The API's name, as `ModelRequest.api` shows it."""
        ...

    def serves(self, path: str) -> bool:
        """Whether a POST to this path (without its query) belongs to this API."""
        ...

    def parse(self, body: JsonObject) -> Parsed:
        """Read a request body. Raises `MalformedRequestError`."""
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
    if not reply.slow_seconds:
        yield text
        return
    size = max(1, -(-len(text) // 10))
    parts = [text[at : at + size] for at in range(0, len(text), size)] or [""]
    for part in parts:
        yield part
        yield Pause(reply.slow_seconds / len(parts))
