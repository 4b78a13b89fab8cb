"""Every line that we write to Claude Code. The id of a request names the input's own sequence number."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from outlast.agents.claude.wire import Sent
from outlast.agents.contract import InputLine, Prompt
from outlast.agents.peer import encode_line
from outlast.agents.turnwise import CONTINUE
from outlast.ids import derived_id
from outlast.records.types import Content

_PREFIX = "outlast-"


def initialize(seq: int) -> InputLine:
    """The handshake: answered once the session is there and can be given a message."""
    return _request(seq, {"subtype": "initialize", "hooks": None})


def message(session: str, prompt: Prompt, *, steer: bool = False) -> InputLine:
    """A message of the user: a prompt, or one that is to join the running turn."""
    content = [Content(text=CONTINUE)] if prompt.continues else list(prompt.content)
    if prompt.notice:
        content.insert(0, Content(text=prompt.notice))
    frame = {
        "type": "user",
        "uuid": message_key(session, prompt, steer=steer),
        "message": {"role": "user", "content": _blocks(content)},
        "parent_tool_use_id": None,
        "session_id": session,
        "outlast": Sent(prompt.request_id, prompt.attempt, steer),
    }
    return InputLine(encode_line(frame), carries=prompt.request_id)


def message_key(session: str, prompt: Prompt, *, steer: bool) -> str:
    """The message's uuid. Claude Code takes each uuid in a session once and says nothing to a second one, so
    it is the same for the same attempt and another one for a retry that somebody asked for. An input that
    was withdrawn before it joined a turn can be given again under another one only."""
    if steer:
        return derived_id("claude message", session, prompt.request_id, prompt.attempt, "steer")
    return prompt_key(session, prompt.request_id, prompt.attempt)


def prompt_key(session: str, request: str, attempt: int) -> str:
    """The uuid of a message that is a turn's own prompt."""
    return derived_id("claude message", session, request, attempt, "prompt")


def interrupt(seq: int) -> InputLine:
    """Ask Claude Code to end its turn, and to drop what waits to join it."""
    return _request(seq, {"subtype": "interrupt", "cancel_queued": True})


def withdraw(seq: int, uuid: str) -> InputLine:
    """Take back a message that may not have been begun yet."""
    return _request(seq, {"subtype": "cancel_async_message", "message_uuid": uuid})


def answer(request: str, response: msgspec.Raw) -> InputLine:
    """Answer a request of Claude Code."""
    return _respond({"subtype": "success", "request_id": request, "response": response})


def refuse(request: str) -> InputLine:
    """Tell Claude Code that its request can't be answered here, so that it never waits for it. Of a question
    the model is told the same."""
    return _respond({"subtype": "error", "request_id": request, "error": "not supported by this client"})


def is_ours(request: str, seq: int) -> bool:
    """Whether `request` is the id of the request that was input `seq`."""
    return request == f"{_PREFIX}{seq}"


def _blocks(content: Iterable[Content]) -> list[dict[str, object]]:
    return [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": part.media_type, "data": part.data},
        }
        if part.type == "image"
        else {"type": "text", "text": part.text}
        for part in content
    ]


def _request(seq: int, request: dict[str, object]) -> InputLine:
    frame = {"type": "control_request", "request_id": f"{_PREFIX}{seq}", "request": request}
    return InputLine(encode_line(frame))


def _respond(response: dict[str, object]) -> InputLine:
    return InputLine(encode_line({"type": "control_response", "response": response}))
