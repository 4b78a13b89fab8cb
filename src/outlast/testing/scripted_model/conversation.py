"""What a model request carried and what is answered: the same words for every API.

A dialect (see `dialect`) turns the body of a request into `Item`s and a `Reply` into the events or the
document of its API, so that scripts and assertions never depend on the API that an agent happens to speak.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | bool | None"
JsonObject: TypeAlias = Mapping[str, Json]
ItemKind: TypeAlias = Literal["system", "user", "context", "assistant", "call", "result", "image", "other"]

# Texts that coding agents put into the conversation in the user's name. They are not what a person said, so
# they carry no markers and are not counted as user texts. Seen in codex and Claude Code requests.
_CONTEXT_OPENINGS = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<permissions",
    "<collaboration_mode>",
    "<skills",
    "<system-reminder>",
    "# AGENTS.md instructions",
    "[Request interrupted by user",
    "Continue from where you left off.",
    "<local-command-",
    "<command-name>",
    "<task-notification>",
)

# How each known shell tool takes its command.
_SHELL_ARGUMENTS: Mapping[str, Callable[[str], JsonObject]] = {
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["sh", "-c", command]},
    "local_shell": lambda command: {"command": ["sh", "-c", command]},
    "Bash": lambda command: {"command": command, "description": "scripted command"},
    "bash": lambda command: {"command": command, "description": "scripted command"},
    "run_shell_command": lambda command: {"command": command, "description": "scripted command"},
}


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the conversation, in the order in which the request carried it.

    `kind` is `user` for what a person said, `context` for what the agent added in the user's name, `system`
    for instructions, `call` and `result` for tool calls, `image` for a picture, `other` for kinds that a
    script has no use for (reasoning). `text` is the message, the arguments of a call as JSON, the output of a
    result, or of a picture its media type, size and digest (`image/png 68 bytes sha256:…`) or its address.
    `call` joins a result to its call; `name` is the tool's."""

    kind: ItemKind
    text: str
    call: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What one request carried. `headers` holds no secrets; `refused` says why the history was refused.
    `side` marks what an agent asks beside the conversation: a title, its quota."""

    number: int
    api: str
    model: str
    stream: bool
    items: tuple[Item, ...]
    tools: tuple[str, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    refused: str | None = None
    side: bool = False

    def of_kind(self, *kinds: ItemKind) -> tuple[Item, ...]:
        """The items of these kinds, in order."""
        return tuple(item for item in self.items if item.kind in kinds)

    def as_json(self) -> JsonObject:
        """The request as one line of the log file holds it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model asks for."""

    name: str
    arguments: JsonObject
    namespace: str = ""
    """Of the tools of an MCP server, where the API has such a thing (Responses)."""


@dataclass(frozen=True, slots=True)
class HttpError:
    """The request is answered with this status instead of a reply. `code` is the API's word for the
    reason (none: what the API says with this status); `retry_after` is sent as a header, in seconds, and
    `headers` are sent beside it."""

    status: int
    code: str = ""
    message: str = "scripted error"
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamError:
    """The reply begins well and then fails inside the stream."""

    code: str
    message: str = "scripted failure"


@dataclass(frozen=True, slots=True)
class StreamCut:
    """The reply is streamed up to this number of events, then the connection ends. A reply that is no stream
    is cut in its middle."""

    events: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answers: text, then calls (several are parallel calls of one reply), or an error.

    `slow_seconds` spreads the text over that time in ten pieces; `hang_seconds` stalls after the first event;
    `halfway` stops in the middle of the text until it is set. All end at once when the server closes.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    slow_seconds: float = 0.0
    hang_seconds: float = 0.0
    halfway: threading.Event | None = None
    error: HttpError | StreamError | StreamCut | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a script decides on: the conversation so far, as one request carried it."""

    request: ModelRequest

    @property
    def user_texts(self) -> tuple[str, ...]:
        """What the person said, oldest first."""
        return tuple(item.text for item in self.request.items if item.kind == "user")

    @property
    def last_user_text(self) -> str:
        """What the person said last, or an empty text."""
        return self.user_texts[-1] if self.user_texts else ""

    @property
    def results(self) -> tuple[str, ...]:
        """Outputs of the tool calls since the last user text."""
        items = self.request.items
        last = max((at for at, item in enumerate(items) if item.kind == "user"), default=-1)
        return tuple(item.text for item in items[last + 1 :] if item.kind == "result")

    def shell(self, command: str) -> ToolCall | None:
        """A call of the shell tool that the agent offers in this request, or None when it offers none."""
        for name, arguments in _SHELL_ARGUMENTS.items():
            if name in self.request.tools:
                return ToolCall(name, arguments(command))
        return None


Script: TypeAlias = Callable[[Conversation], Reply]


def user_kind(text: str) -> ItemKind:
    """Tell what a person said from what an agent added in the user's name."""
    opening = text.lstrip()
    if not opening or opening.startswith(_CONTEXT_OPENINGS):
        return "context"
    return "user"
