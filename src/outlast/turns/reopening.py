"""The closed turns that a person's word, still in the inbox, opens again (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from outlast.errors import InvalidRecordError
from outlast.state.choices import LOST_CHOICES, chosen
from outlast.state.effect_rules import settleable
from outlast.state.model import Closed, OpenGate, State
from outlast.store.contract import Entry
from outlast.turns.effects import TurnEffect, lacking, still_owed
from outlast.turns.requests import AnswerRequest, SettleRequest, TurnRequest, decode


def retryable(state: State, wanted: str | None = None) -> Closed | None:
    """The turn that `retry` means: `wanted`, else the newest parked one, else the newest that did not end as
    done."""
    last = {closed.turn: closed for closed in state.last_unsuccessful.values()}
    if wanted is not None:
        return state.parked.get(wanted) or last.get(wanted) or state.retryable.get(wanted)
    for newest in (state.parked, last, state.retryable):
        if newest:
            return next(reversed(newest.values()))
    return None


def of_parked(state: State, gate: OpenGate) -> bool:
    """Whether it is a question of the runtime itself about a parked turn."""
    return gate.opened.resolver == "runtime" and gate.turn in state.parked


def reopens(state: State, gate: OpenGate, choice: str) -> bool:
    return of_parked(state, gate) and choice in ("retry", "continue", *LOST_CHOICES)


def reopened(state: State, entry: Entry) -> Closed | None:
    """The turn that the command would run again. None also for a command that nobody can read: its owner
    refuses it."""
    try:
        return _reopened(state, entry)
    except InvalidRecordError:
        return None


def _reopened(state: State, entry: Entry) -> Closed | None:
    if entry.kind == "retry":
        return retryable(state, decode(TurnRequest, entry.body).turn or "")
    if entry.kind == "settle":
        request = decode(SettleRequest, entry.body)
        closed = settleable(state, request.turn)
        effect = None if closed is None else closed.effects.get(request.effect)
        return closed if effect is not None and effect.outcome != "done" else None
    if entry.kind == "answer":
        said = decode(AnswerRequest, entry.body)
        gate = state.gates.get(said.gate)
        choice = None if gate is None else chosen(said.choice, gate.choices)
        if gate is not None and choice is not None and reopens(state, gate, choice):
            return state.parked[gate.turn or ""]
    return None


def reopening(state: State, pending: Sequence[Entry]) -> str | None:
    """The turn that the newest command among `pending` would run again; None where none would."""
    found = (reopened(state, entry) for entry in reversed(pending))
    return next((closed.turn for closed in found if closed is not None), None)


@dataclass(frozen=True, slots=True)
class Unable:
    """A command that an owner would have to refuse: its turn owes effects that are not known there."""

    entry: Entry
    turn: str
    missing: tuple[str, ...]


def unable(state: State, pending: Sequence[Entry], known: Mapping[str, TurnEffect]) -> Iterator[Unable]:
    """Those among `pending`, in their order."""
    for entry in pending:
        closed = reopened(state, entry)
        # Asked again, an agent gives another reply, around which all is done anew.
        owed = () if closed is None else still_owed(closed) if entry.kind == "settle" else closed.owed
        missing = tuple(lacking(owed, known))
        if closed is not None and missing:
            yield Unable(entry, closed.turn, missing)


def needs(state: State, pending: Sequence[Entry], known: Mapping[str, TurnEffect]) -> tuple[str, ...]:
    """Names of the effects without which no owner can go on with the session now."""
    owed = [name for turn in state.open_turns.values() for name in lacking(still_owed(turn), known)]
    for waiting in unable(state, pending, known):
        owed += waiting.missing
    return tuple(dict.fromkeys(owed))
