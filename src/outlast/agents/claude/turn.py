"""How a turn of Claude Code ends, in one place: what is still open is closed, then the end is told.

An input that was to join the turn and came too late for its last model call is worked on by Claude Code
right after it, by itself. So a turn is over when a result has come and no such input is open any more."""

from __future__ import annotations

from outlast.agents.claude.state import State, Steer
from outlast.agents.contract import AgentEvent, Failure, Landed, Message, NotLanded, TurnEnded
from outlast.agents.turnwise import Ended, close_gates, failed


def end_turn(state: State, ended: Ended) -> list[AgentEvent]:
    """A result of the running turn has come: it is told, or held back until no input is open any more."""
    events = close_gates(state.gates) + cut_reply(state)
    state.calls.clear()
    state.ended = ended
    return events + tell_end(state)


def tell_end(state: State) -> list[AgentEvent]:
    """Tell the end that has come, once nothing keeps it."""
    ended, turn = state.ended, state.turn
    if ended is None or turn is None or state.steers:
        return []
    usage = dict(state.usage)
    state.ended = state.turn = None
    state.uuid = ""
    state.interrupted = state.begun = state.queued = False
    state.usage.clear()
    return [TurnEnded(turn, ended.stop_reason, ended.failure, ended.cancelled, usage)]


def end_with_process(state: State, failure: Failure) -> list[AgentEvent]:
    """Claude Code is gone: what had not ended never will, and what it had taken in can't be said any more."""
    events = close_gates(state.gates) + cut_reply(state)
    state.calls.clear()
    ended, turn = state.ended or failed(failure), state.turn
    usage = dict(state.usage)
    state.ended = state.turn = None
    if turn is None:
        return events
    return [*events, TurnEnded(turn, ended.stop_reason, ended.failure, ended.cancelled, usage)]


def joined(state: State, uuid: str) -> list[AgentEvent]:
    """An input has joined the turn: Claude Code's own record holds it, or a finished turn has taken it."""
    steer = state.steers.pop(uuid, None)
    return [] if steer is None else [Landed(steer.key)]


def dropped(state: State, uuid: str) -> list[AgentEvent]:
    """Claude Code has dropped a message; one that a model may have seen has joined all the same."""
    steer: Steer | None = state.steers.pop(uuid, None)
    if steer is None:
        return []
    if steer.begun:
        return [Landed(steer.key), *tell_end(state)]
    return [NotLanded(steer.key, "claude dropped it before its turn ended"), *tell_end(state)]


def cut_reply(state: State) -> list[AgentEvent]:
    """Tell what had arrived of a message that will never be whole."""
    text, state.partial = state.partial, ""
    return [Message("assistant", text, cut=True)] if text else []
