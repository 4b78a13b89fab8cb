"""How a turn of codex ends, in one place: what is still open is closed, then the end is told."""

from __future__ import annotations

from outlast.agents.codex.state import State
from outlast.agents.contract import AgentEvent, Message, NotLanded, TurnEnded
from outlast.agents.turnwise import Ended, close_gates


def end_turn(state: State, ended: Ended, *, died: bool = False) -> list[AgentEvent]:
    """End the running turn; `died`: with codex itself, which can't say any more what it had taken.

    After an interrupt the end is held back until the commands that the turn left behind are stopped: a turn
    that is told as cancelled has stopped working.
    """
    events = close_gates(state.gates) + cut_replies(state)
    if not died:
        # Codex tells every steer that it takes before it tells the turn's end; what it had only accepted
        # is dropped with the turn (measured: 120 of 120 at ends, interrupts and after them).
        for key in list(state.steers):
            events += not_landed(state, key, "codex ended the turn without it")
    state.calls.clear()
    state.codex_turn = None
    state.requests = {seq: kind for seq, kind in state.requests.items() if kind not in ("turn", "interrupt")}
    state.ended = ended
    return events if state.interrupted else events + tell_end(state)


def not_landed(state: State, key: str, reason: str) -> list[AgentEvent]:
    """Tell that a steer was not taken."""
    state.requests.pop(state.steers.pop(key), None)
    return [NotLanded(key, reason)]


def cut_replies(state: State, but: str = "") -> list[AgentEvent]:
    """Tell what had arrived of the messages that will never be whole: all but the item `but`."""
    cut = {item: text for item, text in state.partial.items() if item != but}
    for item in cut:
        del state.partial[item]
    return [Message("assistant", text, cut=True) for text in cut.values() if text]


def tell_end(state: State) -> list[AgentEvent]:
    """Tell the end that `end_turn` prepared."""
    ended, turn = state.ended, state.turn
    state.ended = state.turn = None
    state.interrupted = state.cleaning = False
    if ended is None or turn is None:
        return []
    return [TurnEnded(turn, ended.stop_reason, ended.failure, ended.cancelled, state.turn_usage())]
