"""How a turn of codex ends, in one place: what is still open is closed, then the end is told."""

from __future__ import annotations

from outlast.agents.codex.state import Ended, State
from outlast.agents.contract import AgentEvent, Failure, GateClosed, Message, TurnEnded


def failed(failure: Failure) -> Ended:
    """The end of a turn that failed."""
    return Ended("failed", failure)


def end_turn(state: State, ended: Ended) -> list[AgentEvent]:
    """End the running turn.

    After an interrupt the end is held back until the commands that the turn left behind are stopped: a turn
    that is told as cancelled has stopped working.
    """
    events = close_gates(state)
    events += [Message("assistant", text, more=True) for text in state.partial.values() if text]
    state.partial.clear()
    state.calls.clear()
    state.codex_turn = None
    state.requests = {seq: kind for seq, kind in state.requests.items() if kind not in ("turn", "interrupt")}
    state.ended = ended
    return events if state.interrupted else events + tell_end(state)


def tell_end(state: State) -> list[AgentEvent]:
    """Tell the end that `end_turn` prepared."""
    ended, turn = state.ended, state.turn
    state.ended = state.turn = None
    state.interrupted = state.cleaning = False
    if ended is None or turn is None:
        return []
    return [TurnEnded(turn, ended.stop_reason, ended.failure, ended.cancelled, state.turn_usage())]


def close_gates(state: State) -> list[AgentEvent]:
    """Close the gates that nobody answered: codex waits for them no more."""
    unanswered = [gate for gate, answered in state.gates.items() if not answered]
    state.gates.clear()
    return [GateClosed(gate) for gate in unanswered]
