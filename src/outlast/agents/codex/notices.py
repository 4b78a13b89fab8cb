"""Codex's notifications and its requests to us."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import msgspec

from outlast.agents.codex import items
from outlast.agents.codex.failures import turn_failure
from outlast.agents.codex.gates import gate_name, gate_request, is_asking
from outlast.agents.codex.state import State
from outlast.agents.codex.turn import cut_replies, end_turn
from outlast.agents.codex.wire import (
    DeltaNotice,
    ErrorNotice,
    ItemNotice,
    LimitsNotice,
    PlanNotice,
    ResolvedNotice,
    RpcId,
    Turn,
    TurnNotice,
    UsageNotice,
)
from outlast.agents.contract import (
    AgentEvent,
    Delta,
    Failure,
    GateClosed,
    Landed,
    Message,
    Notice,
    SessionConfirmed,
)
from outlast.agents.failure import tidy
from outlast.agents.retry import TIME_MOST, sensible
from outlast.agents.shapes import decode
from outlast.agents.turnwise import Ended, bounded, failed

Events = list[AgentEvent] | None
"""None: the notification has another shape than the one known."""

_CHANGES_LIMIT = 4 * 1024
_NOTICE_LIMIT = 300
_OPEN_LIMIT = 1_000
"""Calls that are followed at a time: what bounds the state."""


def apply_notice(state: State, method: str, params: msgspec.Raw) -> Events:
    """Read a notification; kinds without a meaning for a session are left alone."""
    reader = _READERS.get(method)
    return [] if reader is None else reader(state, params)


class _About(msgspec.Struct, frozen=True, rename="camel"):
    item_id: str = ""


def apply_server_request(state: State, request: RpcId, method: str, params: msgspec.Raw) -> list[AgentEvent]:
    """Read a request of codex: a gate for a person, or one that `next` refuses."""
    name, digest = gate_name(request), hashlib.sha256(b"\0".join((method.encode(), params))).hexdigest()
    if name in state.asked:
        return _asked_again(state, request, name, same=state.asked[name] == digest)
    about = decode(params, _About)
    gate = gate_request(request, method, params, state.calls.get(about.item_id, "") if about else "")
    if gate is None:
        state.refuse.append(request)
        told = f"codex asked what no choice can answer, and is told so: {method}, {len(params)} bytes"
        return [Notice(told)] if is_asking(method) else []
    state.asked[name] = digest
    if len(state.asked) > _OPEN_LIMIT:
        del state.asked[next(iter(state.asked))]
    state.gates[gate.gate] = False
    return [gate]


def _asked_again(state: State, request: RpcId, name: str, *, same: bool) -> list[AgentEvent]:
    """A gate is answered once: the same question under its id gets the answer that it got, and no answer is
    one to another question."""
    if same and name in state.gates:
        state.gates[name] = False
        return []
    if state.gates.get(name) is False:
        return [Notice(f"codex asked something else under the id {name}, which waits for an answer: ignored")]
    state.refuse.append(request)
    return [Notice(f"codex asked again under the id {name}, which was answered or is over: refused")]


def _turn_started(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, TurnNotice)
    if notice is None:
        return None
    if notice.thread_id != state.thread or notice.turn.id == state.codex_turn:
        return []
    if state.turn is not None and state.codex_turn is None and "turn" in state.requests.values():
        state.codex_turn = notice.turn.id
    else:
        state.other_turn = notice.turn.id
    return []


def _turn_completed(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, TurnNotice)
    if notice is None:
        return None
    if notice.turn.id == state.other_turn:
        state.other_turn = None
    if notice.turn.id != state.codex_turn or state.turn is None:
        return []
    return [*_confirmation(state), *end_turn(state, _ended(state, notice.turn))]


def _ended(state: State, turn: Turn) -> Ended:
    if turn.status == "completed":
        return Ended("end_turn")
    if turn.status != "interrupted":
        return failed(_renewed(state, replace(turn_failure(turn.error), retry=_taken_up(state))))
    if state.interrupted:
        return Ended("cancelled", cancelled=True)
    return failed(Failure("cancelled", "codex interrupted the turn by itself"))


def _taken_up(state: State) -> Literal["again", "continue"] | None:
    """Codex tells each call before it runs and stores the prompt before it calls the model (measured): a
    failed turn's prompt stays in the thread, and what was done for it with it."""
    if state.calls:
        return None
    return "continue" if state.landed else "again"


def _renewed(state: State, failure: Failure) -> Failure:
    """With the time after which a used-up quota is there again, as far as codex has told its end."""
    seconds = sensible(state.renewed_at - state.told_at)
    if failure.code != "quota_exhausted" or failure.retry_after is not None or not seconds:
        return failure
    return replace(failure, retry_after=float(seconds))


def _confirmation(state: State) -> list[AgentEvent]:
    """A thread with a turn that landed and ended is one that codex can resume."""
    if state.confirmed or not state.landed or state.thread is None:
        return []
    state.confirmed = True
    return [SessionConfirmed(state.thread)]


def _item_started(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, ItemNotice)
    if notice is None:
        return None
    if notice.thread_id != state.thread:
        return []
    item = notice.item
    room = item.id in state.calls or len(state.calls) < _OPEN_LIMIT
    if item.type in items.CALLS and notice.turn_id == state.codex_turn and room:
        state.calls[item.id] = bounded(items.call_input(item), _CHANGES_LIMIT) if item.changes else ""
    if item.type == "agentMessage":
        # Messages come one after another: one that is still not whole was cut off by a steer or an error.
        return cut_replies(state, but=item.id)
    return items.started(item)


def _item_completed(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, ItemNotice)
    if notice is None:
        return None
    if notice.thread_id != state.thread:
        return []
    state.calls.pop(notice.item.id, None)
    state.partial.pop(notice.item.id, None)
    return [*_landing(state, notice), *items.completed(notice.item)]


def _landing(state: State, notice: ItemNotice) -> list[AgentEvent]:
    """Codex's own record holds the prompt once its item is completed; `item/started` can come before the
    prompt is stored (measured: 11 of 45 kills after it lost the prompt, none of 30 after
    `item/completed`)."""
    item = notice.item
    if item.type != "userMessage" or item.client_id is None:
        return []
    if item.client_id in state.steers:
        state.requests.pop(state.steers.pop(item.client_id), None)
        return [Landed(item.client_id)]
    if item.client_id != state.turn or state.landed:
        return []
    state.landed = True
    return [Landed(item.client_id)]


def _message_delta(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, DeltaNotice)
    if notice is None:
        return None
    if notice.thread_id != state.thread:
        return []
    state.add_partial(notice.item_id, notice.delta)
    return [Delta(notice.delta)]


def _plan(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, PlanNotice)
    if notice is None:
        return None
    if notice.thread_id != state.thread or not notice.plan:
        return []
    marks = {"completed": "x", "inProgress": ">"}
    lines = (f"[{marks.get(step.status, ' ')}] {step.step}" for step in notice.plan)
    return [Message("plan", "\n".join(lines))]


def _error(state: State, params: msgspec.Raw) -> Events:
    """One that codex does not try to mend is told again with the turn's end."""
    notice = decode(params, ErrorNotice)
    if notice is None:
        return None
    if notice.thread_id != state.thread or not notice.will_retry or not notice.error.message:
        return []
    return [Notice(f"codex: {tidy(notice.error.message)[:_NOTICE_LIMIT]}")]


class _ServerNotice(msgspec.Struct, frozen=True):
    name: str
    status: str = ""
    error: str | None = None


def _mcp_server(state: State, params: msgspec.Raw) -> Events:
    """The turn goes on without a server that does not start."""
    notice = decode(params, _ServerNotice)
    if notice is None:
        return None
    if notice.status != "failed":
        return []
    why = tidy(notice.error or "no reason was given")[:_NOTICE_LIMIT]
    return [Notice(f"the MCP server {notice.name} did not start: {why}")]


def _usage(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, UsageNotice)
    if notice is None:
        return None
    if notice.thread_id != state.thread:
        return []
    if notice.turn_id == state.codex_turn:
        state.count(notice.token_usage.total, notice.token_usage.last)
    else:
        state.count_before(notice.token_usage.total)
    return []


def _limits(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, LimitsNotice)
    if notice is None:
        return None
    windows = (notice.rate_limits.primary, notice.rate_limits.secondary)
    used_up = [min(w.resets_at or 0, TIME_MOST) for w in windows if w is not None and w.used_percent >= 100]
    state.renewed_at = max(used_up, default=0)
    return []


def _request_resolved(state: State, params: msgspec.Raw) -> Events:
    notice = decode(params, ResolvedNotice)
    if notice is None:
        return None
    name = gate_name(notice.request_id)
    answered = state.gates.get(name)
    if not answered or len(state.gates) > _OPEN_LIMIT:  # Else it is the same gate if it is asked again.
        state.gates.pop(name, None)
    if notice.request_id in state.refuse:
        state.refuse.remove(notice.request_id)
    return [GateClosed(name)] if answered is False else []


_READERS: Mapping[str, Callable[[State, msgspec.Raw], Events]] = {
    "error": _error,
    "account/rateLimits/updated": _limits,
    "turn/started": _turn_started,
    "turn/completed": _turn_completed,
    "turn/plan/updated": _plan,
    "item/started": _item_started,
    "item/completed": _item_completed,
    "item/agentMessage/delta": _message_delta,
    "thread/tokenUsage/updated": _usage,
    "mcpServer/startupStatus/updated": _mcp_server,
    "serverRequest/resolved": _request_resolved,
}
