"""How records of effects change the state: intended, dispatched, settled, in this order and no other."""

from __future__ import annotations

from msgspec.structs import replace

from outlast.records import effects as e
from outlast.records import types as t
from outlast.records.envelope import Record
from outlast.state.lookup import Rules, open_turn, refuse, unsuccessful
from outlast.state.model import Closed, Effect, FailedHost, OpenTurn, State

BODIES = 3
"""Bodies of one effect that are begun without a person's word."""


def may_begin(effect: Effect) -> bool:
    """Whether another body of it breaks no rule: the first, one after a proof that it has not happened, or
    one of an effect that may run again."""
    if effect.outcome == "absent":
        return effect.by == "person" or (effect.by == "check" and effect.bodies < BODIES)
    if effect.outcome:
        return False
    return effect.bodies == 0 or (effect.replay == "safe" and effect.bodies < BODIES)


def _host_done(state: State, record: Record, body: e.HostDone) -> None:
    turn = open_turn(state, record)
    if turn.host_done is not None:
        refuse(state, record, f"the host step of turn {turn.turn} was done before")
    if turn.attempt is None:
        refuse(state, record, f"no agent was given turn {turn.turn}")
    turn.host_done = body
    turn.epoch = record.epoch


def _effect_intended(state: State, record: Record, body: e.EffectIntended) -> None:
    turn = open_turn(state, record)
    if turn.host_done is None:
        refuse(state, record, f"the host step of turn {turn.turn} is not done")
    if body.effect in turn.effects:
        refuse(state, record, f"effect {body.effect} was intended before")
    turn.effects[body.effect] = Effect(
        body.effect, body.name, body.kind, body.replay, body.key, body.arguments_digest, record.seq
    )


def _effect_dispatched(state: State, record: Record, body: e.EffectDispatched) -> None:
    turn = open_turn(state, record)
    effect = turn.effects.get(body.effect)
    if effect is None:
        refuse(state, record, f"effect {body.effect} was not intended")
    if body.body != effect.bodies + 1:
        refuse(state, record, f"body {body.body} of effect {body.effect} follows body {effect.bodies}")
    if not may_begin(effect):
        refuse(state, record, f"effect {body.effect} has begun, and nothing says that it may begin again")
    turn.effects[body.effect] = replace(
        effect, bodies=body.body, seq=record.seq, outcome="", by="", result=None, reason=""
    )


def _effect_settled(state: State, record: Record, body: e.EffectSettled) -> None:
    effects = _effects(state, record)
    effect = effects.get(body.effect)
    if effect is None:
        refuse(state, record, f"effect {body.effect} was not intended")
    if effect.bodies == 0 and body.by != "person":
        refuse(state, record, f"effect {body.effect} was not dispatched")
    if effect.outcome == "done":
        refuse(state, record, f"effect {body.effect} is done")
    effects[body.effect] = replace(
        effect, outcome=body.outcome, by=body.by, result=body.result, reason=body.reason, seq=record.seq
    )


def _effects(state: State, record: Record) -> dict[str, Effect]:
    """Of the open turn that the record names, or of one that a person may still settle: a copy takes the
    place of what others may hold."""
    turn = state.open_turns.get(record.turn or "")
    if turn is not None:
        return turn.effects
    closed = settleable(state, record.turn or "")
    if closed is None:
        refuse(state, record, f"turn {record.turn} is neither open nor one that a person may go on with")
    fresh = replace(closed, effects=dict(closed.effects))
    if closed.turn in state.parked:
        state.parked[closed.turn] = fresh
    else:
        state.last_unsuccessful[closed.loop] = fresh
    return fresh.effects


def settleable(state: State, turn: str) -> Closed | None:
    """The closed turn of this name that can go on behind its host step."""
    closed = state.parked.get(turn) or unsuccessful(state, turn)
    return closed if closed is not None and closed.host_done is not None else None


def _turn_resumed(state: State, record: Record, body: e.TurnResumed) -> None:
    turn = open_turn(state, record)
    if turn.host_done is None:
        refuse(state, record, f"the host step of turn {turn.turn} is not done")
    turn.epoch = record.epoch


# --- what the rules of turns ask ---------------------------------------------------------------


def refuse_after_host(state: State, record: Record, turn: OpenTurn) -> None:
    """A turn whose host step is done is given to no agent, and goes back to no queue."""
    if turn.host_done is not None:
        refuse(state, record, f"the host step of turn {turn.turn} is done")


def refuse_owing(state: State, record: Record, turn: OpenTurn) -> None:
    """A turn is done when all that was to run around it is."""
    if turn.owed and turn.host_done is None:
        refuse(state, record, f"the effects of turn {turn.turn} were left out")
    left = next((effect for effect in turn.effects.values() if effect.outcome != "done"), None)
    if left is not None:
        refuse(state, record, f"effect {left.effect} ({left.name}) is not done")


def note_failed_host(state: State, record: Record, loop_id: str, receipt: t.Receipt) -> None:
    """What a recovery of the loop's agent session goes by."""
    if receipt.failed_phase == "host_execute":
        loop = state.loops[loop_id]
        loop.failed = FailedHost(
            record.turn or "",
            receipt.error.code,
            receipt.failed_phase,
            receipt.host_recovery,
            loop.provider,
            loop.provider_session,
        )


RULES: Rules = {
    e.HostDone: _host_done,
    e.EffectIntended: _effect_intended,
    e.EffectDispatched: _effect_dispatched,
    e.EffectSettled: _effect_settled,
    e.TurnResumed: _turn_resumed,
}
