"""Codex's answers to our requests."""

from __future__ import annotations

from outlast.agents.codex.failures import prompt_failure, session_failure
from outlast.agents.codex.requests import ThreadSettings
from outlast.agents.codex.state import State
from outlast.agents.codex.turn import end_turn, not_landed, tell_end
from outlast.agents.codex.wire import Frame, RpcError, RpcId, ThreadResult, TurnResult
from outlast.agents.contract import (
    AgentEvent,
    Failure,
    Landed,
    SessionLost,
    SessionObserved,
    StartFailed,
)
from outlast.agents.failure import tidy
from outlast.agents.shapes import decode, plain
from outlast.agents.turnwise import failed

_RANK = {"readOnly": 0, "read-only": 0, "workspaceWrite": 1, "workspace-write": 1}
_FULL_ACCESS = 2
_REASON_LIMIT = 300


def apply_response(state: State, frame: Frame, settings: ThreadSettings) -> list[AgentEvent]:
    """Read a response; one that we don't wait for is left alone."""
    request = state.requests.pop(frame.id, None) if isinstance(frame.id, int) else None
    if request == "initialize":
        if frame.error is None:
            state.stage = "greeted"
            return []
        return _start_failed(state, Failure("version_unsupported", "codex refused the handshake"))
    if request == "open":
        return _opened(state, frame, settings)
    if request == "turn":
        return _turn_accepted(state, frame)
    if request == "steer" and frame.error is not None:
        return _steer_refused(state, frame.id, frame.error)
    if request == "clean" and state.ended is not None:
        return tell_end(state)
    return []


def _opened(state: State, frame: Frame, settings: ThreadSettings) -> list[AgentEvent]:
    if frame.error is not None:
        return _not_opened(state, frame.error)
    result = decode(frame.result, ThreadResult)
    if result is None:
        failure = Failure("version_unsupported", "codex opened a thread in an answer of an unknown shape")
        return _start_failed(state, failure)
    resumed, state.thread = state.resume, result.thread.id
    if resumed is not None and result.thread.id != resumed:
        another = f"codex resumed another thread: {result.thread.id}"
        return _lost(state, resumed, Failure("session_missing", another))
    weaker = _weaker(result, settings)
    if weaker is not None:
        return _start_failed(state, Failure("protocol_error", weaker))
    state.stage = "ready"
    state.rollout = result.thread.path or ""
    events: list[AgentEvent] = [SessionObserved(result.thread.id, "resumed" if resumed else "observed")]
    turns = result.initial_turns_page.data if result.initial_turns_page is not None else ()
    for turn in turns:
        events += [
            Landed(item.client_id) for item in turn.items if item.type == "userMessage" and item.client_id
        ]
    return events


def _not_opened(state: State, error: RpcError) -> list[AgentEvent]:
    failure = session_failure(error)
    if state.resume is None or failure.code not in ("session_missing", "session_corrupt"):
        return _start_failed(state, failure)
    return _lost(state, state.resume, failure)


def _lost(state: State, thread: str, failure: Failure) -> list[AgentEvent]:
    """The thread can't be resumed: a verdict, and nothing new begins under its name. What becomes of that is
    not decided here."""
    return [SessionLost(thread, failure.message), *_start_failed(state, failure)]


def _weaker(result: ThreadResult, settings: ThreadSettings) -> str | None:
    """Whether codex opened the thread with fewer limits than it was told."""
    if result.sandbox is not None:
        got, asked = (_RANK.get(name, _FULL_ACCESS) for name in (result.sandbox.type, settings.sandbox))
        if got > asked:
            return f"codex opened the thread with sandbox {result.sandbox.type} instead of {settings.sandbox}"
    approval = plain(result.approval_policy).strip('"')
    if approval and approval != settings.approval:
        return f"codex opened the thread with approval policy {approval} instead of {settings.approval}"
    return None


def _turn_accepted(state: State, frame: Frame) -> list[AgentEvent]:
    if frame.error is not None:
        return end_turn(state, failed(prompt_failure(frame.error)))
    result = decode(frame.result, TurnResult)
    if result is not None:
        state.codex_turn = result.turn.id
        if state.other_turn == state.codex_turn:
            state.other_turn = None
    return []


def _steer_refused(state: State, request: RpcId | None, error: RpcError) -> list[AgentEvent]:
    key = next((key for key, seq in state.steers.items() if seq == request), None)
    if key is None:
        return []
    return not_landed(state, key, f"codex refused it: {tidy(error.message)[:_REASON_LIMIT]}")


def _start_failed(state: State, failure: Failure) -> list[AgentEvent]:
    state.stage = "failed"
    return [StartFailed(failure)]
