"""How records of inputs, turns and gates change the state."""

from __future__ import annotations

from msgspec.structs import replace

from outlast.records import types as t
from outlast.records.envelope import Record
from outlast.state.effect_rules import note_failed_host, refuse_after_host, refuse_owing
from outlast.state.lookup import Rules, loop_of, open_turn, refuse, steered_into, unsuccessful
from outlast.state.model import Answered, Closed, ClosedAs, Delay, OpenGate, OpenTurn, Queued, State
from outlast.state.title import one_line

RETRYABLE = 20
"""Older unsuccessful turns that can be retried: the state's size must not follow the history."""

MESSAGE_KEPT = 300
"""Characters of what a turn waits for."""

# --- input -------------------------------------------------------------------------------------


def _input_accepted(state: State, record: Record, body: t.InputAccepted) -> None:
    request = body.request_id
    if request in state.queue or request in state.open_turns or request in state.parked:
        refuse(state, record, f"request {request} was accepted before")
    if unsuccessful(state, request) is not None:
        refuse(state, record, f"request {request} was accepted before and its turn has ended")
    state.queue[request] = Queued(request, record.seq, body.on_interrupt, joins=body.joins)
    state.stopped = None
    if not state.title and body.content:
        state.title = one_line(body.content[0].text)


def _input_returned(state: State, record: Record, body: t.InputReturned) -> None:
    steered = state.queue.get(body.request_id)
    if steered is not None:
        state.queue[body.request_id] = replace(steered, joins=None, reserved=None)
        return
    turn = open_turn(state, record, body.request_id)
    _refuse_asking(state, record, turn.turn)
    refuse_after_host(state, record, turn)
    del state.open_turns[turn.turn]
    taken_back = 0 if turn.attempt is None else 1
    not_given = 0 if turn.reserved is None else 1
    loop = state.loops[turn.loop]
    loop.inputs = max(0, loop.inputs - not_given)
    state.queue[turn.turn] = Queued(
        request_id=turn.turn,
        seq=turn.input_seq,
        on_interrupt=turn.on_interrupt,
        index=turn.index,
        attempts=turn.attempts - taken_back,
        given=turn.given - not_given,
        since_progress=max(0, turn.since_progress - not_given),
        retried=None if turn.mode == "first" else turn.mode,
        retries=turn.retries,
        delay=turn.delay,
        asked=turn.asked if turn.asked < turn.attempt_seq else 0,
        begun_anew=turn.begun_anew,
    )


def _input_joined(state: State, record: Record, body: t.InputJoined) -> None:
    open_turn(state, record)
    if body.request_id not in state.queue:
        refuse(state, record, f"request {body.request_id} does not wait in the queue")
    del state.queue[body.request_id]


def _input_cancelled(state: State, record: Record, body: t.InputCancelled) -> None:
    # A request that was never accepted (`when_busy="reject"`) is settled by this record alone.
    if body.request_id in state.open_turns:
        refuse(state, record, f"request {body.request_id} is an open turn by now")
    state.queue.pop(body.request_id, None)


def _command_settled(state: State, record: Record, body: t.CommandSettled) -> None:
    turn = record.turn or ""
    if body.command == "retry" and body.outcome == "done":
        _wait_no_more(state, turn)
    if body.command != "skip" or body.outcome != "done":
        return
    closed = unsuccessful(state, turn)
    if turn not in state.parked and closed is None:
        refuse(state, record, f"turn {record.turn} is not parked")
    left = state.parked.pop(turn, None) or closed
    if closed is not None:
        del state.last_unsuccessful[closed.loop]
    if left is not None:
        _keep(state, left)


def _wait_no_more(state: State, turn: str) -> None:
    """A person lets a turn that waits for its time be tried now."""
    if turn in state.open_turns:
        state.open_turns[turn].delay = None
    elif turn in state.queue:
        state.queue[turn] = replace(state.queue[turn], delay=None)


# --- turns -------------------------------------------------------------------------------------


def _turn_started(state: State, record: Record, body: t.TurnStarted) -> None:
    loop = loop_of(state, record)
    request = body.request_id
    if record.turn != request:
        refuse(state, record, f"turn {record.turn} does not bear the id of its request {request}")
    entry = state.queue.get(request)
    if entry is None:
        refuse(state, record, f"request {request} does not wait in the queue")
    if entry.reserved is None:
        # A steer of unknown landing is told as a turn of its own, and parked, before the end of the other.
        _refuse_second(state, record, loop.loop)
    index = loop.turns + 1 if entry.index is None else entry.index
    if body.index != index:
        refuse(state, record, f"turn {request} has index {body.index} instead of {index}")
    del state.queue[request]
    state.open_turns[request] = OpenTurn(
        turn=request,
        index=index,
        loop=loop.loop,
        seq=record.seq,
        input_seq=entry.seq,
        on_interrupt=entry.on_interrupt,
        started_at=record.at,
        epoch=record.epoch,
        attempts=entry.attempts,
        given=entry.given,
        since_progress=entry.since_progress,
        mode=entry.retried or "first",
        owed=body.effects,
        retries=entry.retries,
        delay=entry.delay,
        asked=entry.asked,
        begun_anew=entry.begun_anew,
    )
    if entry.index is None:
        loop.turns = index
        state.turns += 1


def _refuse_second(state: State, record: Record, loop: str) -> None:
    for turn in state.open_turns.values():
        if turn.loop == loop:
            refuse(state, record, f"turn {turn.turn} of loop {loop} is open")


def _end(state: State, record: Record) -> OpenTurn:
    """Take the open turn that `record` names out of the state."""
    turn = open_turn(state, record)
    undecided = steered_into(state, turn.turn)
    if undecided:
        # It would be sent a second time, as a turn of its own.
        refuse(state, record, f"whether {undecided[0].request_id} landed in it is not decided")
    _refuse_asking(state, record, turn.turn)
    del state.open_turns[turn.turn]
    return turn


def _close(state: State, record: Record, outcome: ClosedAs, reason: str) -> Closed:
    """End the turn that `record` names: what `retry` would need of it."""
    turn = _end(state, record)
    loop = state.loops[turn.loop]
    if turn.calls and loop.called_since is None:
        loop.called_since = turn.seq
    return Closed(
        turn=turn.turn,
        index=turn.index,
        loop=turn.loop,
        seq=record.seq,
        input_seq=turn.input_seq,
        on_interrupt=turn.on_interrupt,
        outcome=outcome,
        attempts=turn.attempts,
        given=turn.given,
        reserved=turn.reserved is not None,
        reason=reason,
        since_progress=turn.since_progress,
        owed=turn.owed,
        host_done=turn.host_done,
        attempt_seq=turn.attempt_seq,
        effects=turn.effects,
        retries=turn.retries,
        asked=turn.asked,
    )


def _refuse_asking(state: State, record: Record, turn: str) -> None:
    """A turn's questions end with it. Those of the runtime about a parked turn are asked afterwards."""
    for gate in state.gates.values():
        if gate.turn == turn:
            refuse(state, record, f"its gate {gate.gate} is open")


def _displace(state: State, loop: str) -> None:
    """A newer turn has ended: what did not succeed before it is kept as an older one."""
    older = state.last_unsuccessful.pop(loop, None)
    if older is not None:
        _keep(state, older)


def _keep(state: State, closed: Closed) -> None:
    """What a person may still want, though nothing waits for it any more. What is left of its effects nobody
    can settle: it can only be run again."""
    state.retryable[closed.turn] = replace(closed, host_done=None, effects={})
    while len(state.retryable) > RETRYABLE:
        del state.retryable[next(iter(state.retryable))]


def _turn_done(state: State, record: Record, body: t.TurnDone) -> None:
    refuse_owing(state, record, open_turn(state, record))
    turn = _end(state, record)
    loop = state.loops[turn.loop]
    loop.untold = None  # Its prompt had told it.
    loop.called_since = turn.seq if turn.calls else None
    _displace(state, loop.loop)


def _turn_failed(state: State, record: Record, body: t.TurnFailed) -> None:
    error = body.receipt.error
    closed = _close(state, record, "failed", error.code)
    closed = replace(
        closed, planned=body.receipt.retry, message=error.message[:MESSAGE_KEPT], code=error.code
    )
    _displace(state, closed.loop)
    state.last_unsuccessful[closed.loop] = closed
    note_failed_host(state, record, closed.loop, body.receipt)


def _turn_interrupted(state: State, record: Record, body: t.TurnInterrupted) -> None:
    outcome: ClosedAs = "cancelled" if body.reason in ("cancelled", "killed") else "interrupted"
    closed = _close(state, record, outcome, body.reason)
    _displace(state, closed.loop)
    state.last_unsuccessful[closed.loop] = closed


def _turn_parked(state: State, record: Record, body: t.TurnParked) -> None:
    before = unsuccessful(state, record.turn or "")
    if before is None:
        closed = _close(state, record, "parked", body.reason)
    else:
        del state.last_unsuccessful[before.loop]
        closed = replace(before, seq=record.seq, outcome="parked", reason=body.reason)
    state.parked[closed.turn] = closed


def _turn_retried(state: State, record: Record, body: t.TurnRetried) -> None:
    name = record.turn or ""
    closed = state.parked.get(name) or unsuccessful(state, name) or state.retryable.get(name)
    if closed is None:
        refuse(state, record, f"turn {record.turn} is neither parked nor one that did not end as done")
    _refuse_second(state, record, closed.loop)
    delay = _delay(state, record, closed) if body.by.startswith(t.BY_POLICY) else None
    if state.parked.pop(name, None) is None and state.retryable.pop(name, None) is None:
        del state.last_unsuccessful[closed.loop]
    state.stopped = None
    state.open_turns[name] = OpenTurn(
        turn=closed.turn,
        index=closed.index,
        loop=closed.loop,
        seq=record.seq,
        input_seq=closed.input_seq,
        on_interrupt=closed.on_interrupt,
        started_at=record.at,
        epoch=record.epoch,
        attempts=closed.attempts,
        given=closed.given,
        since_progress=_since_progress(closed, body),
        mode=body.mode,
        owed=closed.owed if body.effects is None else body.effects,
        retries=_retries(closed, body, delay),
        delay=delay,
        asked=closed.asked,
    )
    if body.mode == "continue" and closed.host_done is not None:
        reopened = state.open_turns[name]
        reopened.attempt_seq = closed.attempt_seq
        reopened.host_done, reopened.effects = closed.host_done, dict(closed.effects)


def _delay(state: State, record: Record, closed: Closed) -> Delay:
    planned = closed.planned
    if planned is None or closed.outcome != "failed" or closed.seq != record.seq - 1:
        refuse(state, record, f"no receipt has planned this retry of turn {closed.turn}")
    until = record.at + int(planned.wait * 1_000_000)
    about = (planned.wait, planned.retry, planned.of, closed.reason, closed.message)
    return Delay(until, *about, planned.boot_id, planned.due)


def _retries(closed: Closed, body: t.TurnRetried, delay: Delay | None) -> int:
    if delay is not None:
        return delay.retry
    return closed.retries if body.by == t.BY_ON_INTERRUPT else 0


def _since_progress(closed: Closed, body: t.TurnRetried) -> int:
    """A person's retry begins anew. An attempt that a policy repeats is none that the turn is to blame for,
    and those before it stay counted."""
    if body.by.startswith(t.BY_POLICY):
        return max(0, closed.since_progress - closed.reserved)
    return closed.since_progress if body.by == t.BY_ON_INTERRUPT else 0


def _no_change(state: State, record: Record, body: t.Body) -> None:
    """For records that are history only."""


# --- gates -------------------------------------------------------------------------------------


def _gate_prepared(state: State, record: Record, body: t.GatePrepared) -> None:
    if body.gate in state.prepared or body.gate in state.gates:
        refuse(state, record, f"gate {body.gate} was prepared before")
    state.prepared[body.gate] = body


def _gate_opened(state: State, record: Record, body: t.GateOpened) -> None:
    if body.gate in state.gates:
        refuse(state, record, f"gate {body.gate} was opened before")
    loop = loop_of(state, record)
    prepared = state.prepared.pop(body.gate, None)
    asked_again = state.open_turns.get(record.turn or "")
    if asked_again is not None:
        # An agent may use a name again: the answer to the question before it is none to this one.
        asked_again.answers.pop(body.gate, None)
    state.gates[body.gate] = OpenGate(
        gate=body.gate,
        loop=loop.loop,
        turn=record.turn,
        seq=record.seq,
        opened_at=record.at,
        opened=body,
        name="" if prepared is None else prepared.name,
        generation="" if prepared is None else prepared.generation,
        payload=b"" if prepared is None else prepared.payload,
        choices=tuple(body.choices),
    )


def _gate_resolved(state: State, record: Record, body: t.GateResolved) -> None:
    if body.gate not in state.gates and body.gate not in state.prepared:
        refuse(state, record, f"gate {body.gate} is not open: it was answered before, or never asked")
    state.prepared.pop(body.gate, None)
    gate = state.gates.pop(body.gate, None)
    turn = None if gate is None else state.open_turns.get(gate.turn or "")
    if gate is not None and turn is not None and body.answer is not None:
        turn.answers[body.gate] = Answered(gate.name, gate.generation, gate.payload, body.answer)


RULES: Rules = {
    t.InputAccepted: _input_accepted,
    t.InputReturned: _input_returned,
    t.InputJoined: _input_joined,
    t.InputCancelled: _input_cancelled,
    t.CommandSettled: _command_settled,
    t.TurnStarted: _turn_started,
    t.TurnDone: _turn_done,
    t.TurnFailed: _turn_failed,
    t.TurnInterrupted: _turn_interrupted,
    t.TurnParked: _turn_parked,
    t.TurnRetried: _turn_retried,
    t.ReplyInterrupted: _no_change,
    t.GatePrepared: _gate_prepared,
    t.GateOpened: _gate_opened,
    t.GateResolved: _gate_resolved,
}
