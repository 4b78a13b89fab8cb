"""What Claude Code writes, frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal

from outlast.agents.claude import messages
from outlast.agents.claude.failures import is_abort, session_failure, turn_failure
from outlast.agents.claude.gates import UnaskableError, gate_requests, is_of
from outlast.agents.claude.requests import is_ours
from outlast.agents.claude.state import State
from outlast.agents.claude.turn import dropped, end_turn, joined
from outlast.agents.claude.wire import (
    ControlRequest,
    ControlResponse,
    Entry,
    ErrorParams,
    Frame,
    Init,
    LimitInfo,
    ModelUsage,
    Result,
    Retry,
    StreamEvent,
)
from outlast.agents.contract import (
    AgentEvent,
    Delta,
    Failure,
    GateClosed,
    Landed,
    Notice,
    SessionConfirmed,
    SessionLost,
    SessionObserved,
    StartFailed,
)
from outlast.agents.failure import tidy
from outlast.agents.retry import TIME_MOST
from outlast.agents.shapes import decode
from outlast.agents.turnwise import Ended, failed

Events = list[AgentEvent] | None
"""None: the frame has another shape than the one known."""

_NEVER = frozenset({"cancelled", "discarded", "refused"})
_NO_SERVER = frozenset({"failed", "needs-auth"})
_SERVERS_MOST, _NAME_LIMIT = 20, 200
_MICRO = 1_000_000


def apply_frame(state: State, frame: Frame, line: bytes) -> Events:
    """Read a frame; kinds without a meaning for a session are left alone."""
    reader = _READERS.get(frame.type)
    # Before its first message nothing has shown in which session it works.
    if not frame.session_id or frame.session_id == state.session or not state.sent:
        return [] if reader is None else reader(state, frame, line)
    if not state.resets:
        return _another(state, frame.session_id)
    begun = _succeeded(state, frame.session_id)
    told = [] if reader is None else reader(state, frame, line)
    return None if told is None else begun + told


def _succeeded(state: State, session: str) -> list[AgentEvent]:
    """The user has told it to forget the conversation: it goes on in a new session."""
    state.session, state.resets = session, False
    state.confirmed = state.landed = False
    return [SessionObserved(session)]


def _another(state: State, session: str) -> list[AgentEvent]:
    """It does not work in the session that it was given: what it says is no part of that."""
    failure = Failure("session_missing", f"claude works in another session: {session}")
    lost = SessionLost(state.session, failure.message)
    state.stage = "failed"
    return [lost, *_not_started(state, failure)]


def _not_started(state: State, failure: Failure) -> list[AgentEvent]:
    state.stage = "failed"
    if state.turn is None:
        return [StartFailed(failure)]
    return end_turn(state, failed(failure))


# --- the model -----------------------------------------------------------------------------------


def _assistant(state: State, frame: Frame, line: bytes) -> Events:
    if frame.is_api_error_message:
        # No word of the model: the result tells it again, as the turn's end.
        state.error = decode(frame.api_error, str) or decode(frame.error, str) or ""
        _note_limit(state, frame)
        return []
    state.pause = 0.0
    return messages.said(state, frame)


def _note_limit(state: State, frame: Frame) -> None:
    """When the limit ends that this error is about, as far as it was told."""
    params, told = decode(frame.api_error_params, ErrorParams), decode(frame.timestamp, datetime)
    resets_at = (params and params.rate_limit_info.resets_at) or state.renewed_at
    state.renewed_in = 0.0
    if told is not None and told.tzinfo is not None:
        state.renewed_in = max(0.0, min(resets_at, TIME_MOST) - told.timestamp())


def _limit(state: State, frame: Frame, line: bytes) -> Events:
    info = decode(frame.rate_limit_info, LimitInfo)
    if info is None:
        return None
    state.renewed_at = min(info.resets_at or 0, TIME_MOST) if info.status == "rejected" else 0
    return []


def _user(state: State, frame: Frame, line: bytes) -> Events:
    if not frame.is_replay:
        return messages.told(state, frame)
    if frame.uuid == state.uuid and state.turn is not None and not state.queued:
        return _known_already(state)
    return []


def _stream(state: State, frame: Frame, line: bytes) -> Events:
    event = decode(frame.event, StreamEvent)
    if event is None:
        return None
    if frame.parent_tool_use_id is not None or event.delta.type != "text_delta":
        return []
    state.add_partial(event.delta.text)
    return [Delta(event.delta.text)]


# --- a message of ours -----------------------------------------------------------------------------


def _lifecycle(state: State, frame: Frame, line: bytes) -> Events:
    steer = state.steers.get(frame.command_uuid)
    if steer is not None:
        return _of_steer(state, frame)
    if frame.command_uuid != state.uuid or state.turn is None:
        return []
    if frame.state == "queued":
        state.queued = True
    elif frame.state == "started":
        state.begun = True
    elif frame.state in _NEVER:
        return end_turn(state, _never(state, frame.state))
    elif frame.state == "completed" and not state.queued:
        return _known_already(state)
    return []


def _of_steer(state: State, frame: Frame) -> list[AgentEvent]:
    steer = state.steers[frame.command_uuid]
    if frame.state == "started":
        steer.begun = True
    elif frame.state == "completed":
        return joined(state, frame.command_uuid)
    elif frame.state in _NEVER:
        return dropped(state, frame.command_uuid)
    return []


def _never(state: State, how: str) -> Ended:
    if state.interrupted:
        return Ended("cancelled", cancelled=True)
    return failed(Failure("unknown", f"claude has not taken the message ({how})"))


def _known_already(state: State) -> list[AgentEvent]:
    """Claude Code has had a message with this uuid, and says no more to it: no result will ever come."""
    told = "claude had this very message in its session already and does not work on it again"
    return end_turn(state, failed(Failure("unknown", f"{told}: what came of it stands there")))


def _mirror(state: State, frame: Frame, line: bytes) -> Events:
    """Lines that Claude Code has written to its transcript: what is there is there after a crash, too."""
    events: list[AgentEvent] = []
    for raw in frame.entries:
        entry = decode(raw, Entry)
        if entry is None:
            continue
        mine = state.turn is not None and entry.type == "user" and entry.uuid == state.uuid
        if mine and not state.landed:
            state.landed = True
            events.append(Landed(state.turn or ""))
        key = entry.attachment.source_uuid if entry.type == "attachment" else entry.uuid
        if key in state.steers and not state.steers[key].late:
            events += joined(state, key)
    return events


def _result(state: State, frame: Frame, line: bytes) -> Events:
    result = decode(line, Result)
    if result is None:
        return None
    if state.stage != "ready":
        return _not_opened(state, session_failure(result))
    events: list[AgentEvent] = []
    for uuid in result.answers:
        events += joined(state, uuid)
    if state.turn is None or not _is_ours(state, result):
        return events
    state.add_usage(_usage(result.model_usage_since_last_result))
    return [*events, *_confirmation(state), *end_turn(state, _ended(state, result))]


def _is_ours(state: State, result: Result) -> bool:
    """Whether a result ends the running turn, or a part of it: one that Claude Code began by itself, when
    something in the background was done, is none of ours unless it took our message in."""
    if result.answers:
        return state.uuid in result.answers or state.ended is not None
    return state.begun and result.origin is None


def _ended(state: State, result: Result) -> Ended:
    if state.interrupted and (is_abort(result) or result.is_error):
        return Ended("cancelled", cancelled=True)
    if not result.is_error:
        return Ended(result.stop_reason or "end_turn")
    if is_abort(result):
        return failed(Failure("cancelled", "claude interrupted the turn by itself"))
    failure = turn_failure(result, state.error, pause=state.pause, renewed_in=state.renewed_in)
    return failed(replace(failure, retry=_taken_up(state)))


def _taken_up(state: State) -> Literal["continue"] | None:
    """A prompt that the transcript holds stays in the conversation: the turn can be gone on with."""
    return "continue" if state.landed and not state.calls else None


def _confirmation(state: State) -> list[AgentEvent]:
    """A session with a turn that landed and ended is one that Claude Code can resume."""
    if state.confirmed or not state.landed:
        return []
    state.confirmed = True
    return [SessionConfirmed(state.session)]


def _usage(by_model: Mapping[str, ModelUsage]) -> dict[str, int]:
    used: dict[str, int] = {}
    for usage in by_model.values():
        counts = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_input_tokens": usage.cache_read_input_tokens,
            "cache_creation_tokens": usage.cache_creation_input_tokens,
            "reasoning_output_tokens": usage.thinking_tokens,
            "web_search_requests": usage.web_search_requests,
            "cost_micro_usd": round(usage.cost_usd * _MICRO),
        }
        for name, count in counts.items():
            if count:
                used[name] = used.get(name, 0) + count
    return used


# --- the session -------------------------------------------------------------------------------------


def _control_response(state: State, frame: Frame, line: bytes) -> Events:
    response = decode(frame.response, ControlResponse)
    if response is None:
        return None
    if state.stage != "greeting" or not is_ours(response.request_id, state.hello):
        return []
    if response.subtype == "error":
        failure = Failure("version_unsupported", f"claude refused the handshake: {tidy(response.error)}")
        return _not_opened(state, failure)
    state.stage = "ready"
    return [SessionObserved(state.session, "resumed" if state.confirmed else "chosen")]


def _not_opened(state: State, failure: Failure) -> list[AgentEvent]:
    if state.stage == "failed":
        return []
    state.stage = "failed"
    lost: list[AgentEvent] = []
    if failure.code == "session_missing":
        lost.append(SessionLost(state.session, failure.message))
    return [*lost, StartFailed(failure)]


def _control_request(state: State, frame: Frame, line: bytes) -> Events:
    request = decode(frame.request, ControlRequest)
    if request is None or not frame.request_id:
        return None
    asks = request.subtype == "can_use_tool"
    if not asks:
        state.refuse.append(frame.request_id)
        return []
    try:
        gates = gate_requests(frame.request_id, frame.request)
    except UnaskableError as why:
        state.refuse.append(frame.request_id)
        tool = tidy(request.tool_name)
        return [Notice(f"claude asked what no choice can answer, and is told so: {tool}: {why}")]
    state.gates |= dict.fromkeys((gate.gate for gate in gates), False)
    return [*gates]


def _control_cancel(state: State, frame: Frame, line: bytes) -> Events:
    if frame.request_id in state.refuse:
        state.refuse.remove(frame.request_id)
    gone = {gate: state.gates.pop(gate) for gate in list(state.gates) if is_of(gate, frame.request_id)}
    return [GateClosed(gate) for gate, answered in gone.items() if not answered]


def _reset(state: State, frame: Frame, line: bytes) -> Events:
    state.resets = state.turn is not None
    return []


def _system(state: State, frame: Frame, line: bytes) -> Events:
    if frame.subtype == "init":
        return _servers(state, line)
    return _retry(state, line) if frame.subtype == "api_retry" else []


def _servers(state: State, line: bytes) -> Events:
    """Told at the beginning of each turn: a turn goes on without a server that does not start."""
    told = decode(line, Init)
    if told is None:
        return None
    failed = [server.name[:_NAME_LIMIT] for server in told.mcp_servers if server.status in _NO_SERVER]
    new = [name for name in failed[:_SERVERS_MOST] if name not in state.no_servers]
    state.no_servers = failed[:_SERVERS_MOST]
    return [Notice(f"the MCP server {tidy(name)} did not start") for name in new]


def _retry(state: State, line: bytes) -> Events:
    retry = decode(line, Retry)
    if retry is None:
        return None
    state.pause = retry.retry_delay_ms / 1000
    why = " ".join(str(part) for part in (retry.error_status, retry.error) if part)
    tries = f"try {retry.attempt} of {retry.max_retries}"
    return [Notice(f"claude: the model call failed ({why}); {tries} in {retry.retry_delay_ms / 1000:.1f} s")]


_READERS: Mapping[str, Callable[[State, Frame, bytes], Events]] = {
    "assistant": _assistant,
    "user": _user,
    "stream_event": _stream,
    "command_lifecycle": _lifecycle,
    "transcript_mirror": _mirror,
    "result": _result,
    "control_response": _control_response,
    "control_request": _control_request,
    "control_cancel_request": _control_cancel,
    "conversation_reset": _reset,
    "system": _system,
    "rate_limit_event": _limit,
}
