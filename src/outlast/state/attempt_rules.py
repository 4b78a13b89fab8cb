"""How records of an agent's lives, of what it is given and of what it says change the state."""

from __future__ import annotations

from msgspec.structs import replace

from outlast.records import types as t
from outlast.records.envelope import Record
from outlast.state.effect_rules import refuse_after_host
from outlast.state.lookup import Rules, loop_of, open_turn, refuse, same_life
from outlast.state.model import OpenTurn, State

OPEN_CALLS = 1_000
"""Calls of a turn that are known by name; the others are counted."""


def _turn_attempt_started(state: State, record: Record, body: t.TurnAttemptStarted) -> None:
    turn = open_turn(state, record)
    refuse_after_host(state, record, turn)
    loop = state.loops[turn.loop]
    turn.attempts += 1
    turn.attempt = body
    turn.attempt_seq = record.seq
    turn.delay = None
    turn.reserved = None
    turn.reserved_seq = 0
    if loop.attempt is None or not same_life(loop.attempt, body):
        loop.launched = loop.launches
        loop.cursor = loop.folded = None
        loop.life_since = record.seq
    loop.attempt = body


def _input_reserved(state: State, record: Record, body: t.InputReserved) -> None:
    turn = open_turn(state, record)
    refuse_after_host(state, record, turn)
    steered = state.queue.get(body.key)
    if steered is not None:
        state.queue[body.key] = replace(steered, joins=turn.turn, reserved=body)
        return
    _refuse_twice(state, record, turn, body)
    loop = state.loops[turn.loop]
    if turn.reserved is None:
        turn.given += 1
        turn.since_progress += 1
        loop.inputs += 1
    if not body.continues:
        turn.asked = record.seq
    turn.reserved = body
    turn.reserved_seq = record.seq
    loop.failed = None  # Its agent is at work again, whatever had failed before.


def _refuse_twice(state: State, record: Record, turn: OpenTurn, body: t.InputReserved) -> None:
    """Another line may be named in the place of one that was never written; not once the agent's spool has
    shown an input there."""
    before, cursor = turn.reserved, state.loops[turn.loop].cursor
    if before is None:
        return
    if body.generation != before.generation:
        refuse(state, record, f"the input of turn {turn.turn} was reserved for {before.generation}")
    if cursor is not None and cursor.generation == before.generation and cursor.last_input >= before.seq:
        refuse(state, record, f"the input of turn {turn.turn} was given to its agent before")


def _turn_attached(state: State, record: Record, body: t.TurnAttached) -> None:
    turn = open_turn(state, record)
    turn.epoch = record.epoch


def _agent_event_recorded(state: State, record: Record, body: t.AgentEventRecorded) -> None:
    # An agent may say something after its terminal: then there is no turn that could have progressed.
    turn = state.open_turns.get(record.turn or "")
    if turn is not None and body.kind == "message":
        _progressed(turn)


def _call_observed(state: State, record: Record, body: t.CallObserved) -> None:
    turn = state.open_turns.get(record.turn or "")
    if turn is None:
        return
    if body.status == "started":
        turn.calls += 1
        if body.call in turn.open_calls or len(turn.open_calls) < OPEN_CALLS:
            turn.open_calls[body.call] = body.name
        else:
            turn.more_calls += 1
        return
    if turn.open_calls.pop(body.call, None) is None and turn.more_calls:
        turn.more_calls -= 1
    if body.status == "completed":
        _progressed(turn)


def _progressed(turn: OpenTurn) -> None:
    """A turn that was given its input again from the start only repeats what it had come to: its retries stay
    counted."""
    turn.since_progress = 0
    if turn.reserved is not None and turn.reserved.continues:
        turn.retries = 0


def _agent_state_folded(state: State, record: Record, body: t.AgentStateFolded) -> None:
    loop_of(state, record).folded = body


RULES: Rules = {
    t.TurnAttemptStarted: _turn_attempt_started,
    t.InputReserved: _input_reserved,
    t.TurnAttached: _turn_attached,
    t.AgentEventRecorded: _agent_event_recorded,
    t.CallObserved: _call_observed,
    t.AgentStateFolded: _agent_state_folded,
}
