"""Every line that we write to codex. The id of a request is the input's own sequence number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from outlast.agents.codex.wire import RpcId
from outlast.agents.contract import InputLine, Prompt
from outlast.agents.peer import encode_line
from outlast.agents.turnwise import CONTINUE
from outlast.records.types import Content

Sandbox = Literal["read-only", "workspace-write", "danger-full-access"]
Approval = Literal["untrusted", "on-request", "never"]

_METHOD_NOT_FOUND = -32601


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """What a thread runs under. It is sent whole on every start and resume, so that a resumed thread never
    falls back to the defaults of the program or of the user's configuration."""

    cwd: str
    sandbox: Sandbox
    approval: Approval
    model: str | None
    mcp_servers: Mapping[str, Mapping[str, object]]


def initialize(seq: int, version: str) -> InputLine:
    """The handshake. The experimental API has the method that ends background commands."""
    client = {"name": "outlast", "title": "outlast", "version": version}
    capabilities = {"experimentalApi": True, "requestAttestation": False}
    return _request(seq, "initialize", {"clientInfo": client, "capabilities": capabilities})


def initialized() -> InputLine:
    """The notification that ends the handshake."""
    return InputLine(encode_line({"method": "initialized"}))


def open_thread(seq: int, settings: ThreadSettings, resume: str | None) -> InputLine:
    """Start a thread, or resume one without its history but with what its last turn was asked."""
    params: dict[str, object] = {
        "cwd": settings.cwd,
        "sandbox": settings.sandbox,
        "approvalPolicy": settings.approval,
    }
    if settings.model is not None:
        params["model"] = settings.model
    if settings.mcp_servers:
        # Codex keeps none of them with the thread: a resume without them is a thread without them.
        params["config"] = {"mcp_servers": settings.mcp_servers}
    if resume is None:
        return _request(seq, "thread/start", params)
    page = {"limit": 1, "itemsView": "summary", "sortDirection": "desc"}
    params |= {"threadId": resume, "excludeTurns": True, "initialTurnsPage": page}
    return _request(seq, "thread/resume", params)


def start_turn(seq: int, thread: str, prompt: Prompt) -> InputLine:
    """Send a prompt. `outlast` in the frame is for our own fold: codex does not look at it."""
    content = (Content(text=CONTINUE),) if prompt.continues else prompt.content
    if prompt.notice:
        content = (Content(text=prompt.notice), *content)
    params = {"threadId": thread, "clientUserMessageId": prompt.request_id, "input": _input(content)}
    frame = {"id": seq, "method": "turn/start", "params": params, "outlast": {"attempt": prompt.attempt}}
    return InputLine(encode_line(frame), carries=prompt.request_id)


def steer(seq: int, thread: str, turn: str, prompt: Prompt) -> InputLine:
    """Add an input to codex's running turn; refused by codex when another turn runs, or none."""
    params = {
        "threadId": thread,
        "expectedTurnId": turn,
        "clientUserMessageId": prompt.request_id,
        "input": _input(prompt.content),
    }
    frame = {"id": seq, "method": "turn/steer", "params": params}
    return InputLine(encode_line(frame), carries=prompt.request_id)


def _input(content: Iterable[Content]) -> list[dict[str, object]]:
    return [
        {"type": "image", "url": f"data:{part.media_type};base64,{part.data}"}
        if part.type == "image"
        else {"type": "text", "text": part.text, "text_elements": []}
        for part in content
    ]


def interrupt(seq: int, thread: str, turn: str) -> InputLine:
    """Ask codex to end its turn. The turn's commands may go on: `clean` ends them."""
    return _request(seq, "turn/interrupt", {"threadId": thread, "turnId": turn})


def clean(seq: int, thread: str) -> InputLine:
    """End the commands that an interrupted turn left behind."""
    return _request(seq, "thread/backgroundTerminals/clean", {"threadId": thread})


def answer(request: RpcId, result: msgspec.Raw) -> InputLine:
    """Answer a request of codex."""
    return InputLine(encode_line({"id": request, "result": result}))


def refuse(request: RpcId) -> InputLine:
    """Tell codex that its request can't be answered here, so that it never waits for it."""
    error = {"code": _METHOD_NOT_FOUND, "message": "not supported by this client"}
    return InputLine(encode_line({"id": request, "error": error}))


def _request(seq: int, method: str, params: Mapping[str, object]) -> InputLine:
    return InputLine(encode_line({"id": seq, "method": method, "params": params}))
