"""Where turns end and where their text lies, by the records alone.

Whoever follows a session holds these places and not the text: what an agent says in one turn has no bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outlast.records.envelope import Record
from outlast.records.types import (
    AgentEventRecorded,
    InputCancelled,
    Receipt,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
    TurnStarted,
)
from outlast.state.model import State

TERMINALS = (TurnDone, TurnFailed, TurnInterrupted, TurnParked)
Terminal = TurnDone | TurnFailed | TurnInterrupted | TurnParked | InputCancelled
BEGINNINGS = (TurnStarted, TurnRetried, TurnAttemptStarted)
"""What begins the text of a turn anew, but for a turn that only goes on (`begins_anew`)."""


def begins_anew(record: Record) -> bool:
    """Whether the text of the record's turn begins anew with it. A turn that goes on behind its host step has
    said what it says; one whose agent goes on begins with that attempt."""
    body = record.body
    return isinstance(body, BEGINNINGS) and not (isinstance(body, TurnRetried) and body.mode == "continue")


@dataclass(frozen=True, slots=True)
class End:
    """The end of a turn, or of an input that became none."""

    turn: str
    body: Terminal
    seq: int
    begun: int | None
    """The record with which its last attempt began: its text lies between that and `seq`. None: somewhere
    before what was read."""
    failed: Receipt | None = None
    """Of a parked one: the failure that it was parked for, in the same batch."""


class Ends:
    """The turns that end in a stream of records. `begun` names those that are open where it begins, with the
    record that their last attempt began with."""

    def __init__(self, begun: Mapping[str, int] | None = None) -> None:
        self._begun = dict(begun or {})
        self._ended: dict[str, End] = {}

    def apply(self, record: Record) -> None:
        """Take one record in."""
        turn, body = record.turn, record.body
        if isinstance(body, InputCancelled) and body.reason == "damaged":
            # It became no turn and should have: who follows the turns is told of it as of one.
            self._ended[body.request_id] = End(body.request_id, body, record.seq, record.seq)
            return
        if turn is None:
            return
        if isinstance(body, BEGINNINGS):
            if begins_anew(record):
                self._begun[turn] = record.seq
            elif (end := self._ended.get(turn)) is not None and end.begun is not None:
                self._begun[turn] = end.begun
            self._ended.pop(turn, None)
        elif isinstance(body, TERMINALS):
            before = self._ended.get(turn) if isinstance(body, TurnParked) else None
            failed = before.body.receipt if before and isinstance(before.body, TurnFailed) else None
            self._ended[turn] = End(turn, body, record.seq, self._begun.get(turn), failed)

    def __contains__(self, turn: object) -> bool:
        return turn in self._ended

    def get(self, turn: str) -> End | None:
        """The end of the turn, as far as was read: what follows may take it back."""
        return self._ended.get(turn)

    def __bool__(self) -> bool:
        return bool(self._ended)

    def take(self) -> dict[str, End]:
        """What has ended, once each, by turn. To be called where a batch is complete: the rest of a batch may
        take an end back (a turn that is sent again at once) or give it another name (parked)."""
        taken, self._ended = self._ended, {}
        for turn in taken:
            self._begun.pop(turn, None)
        return taken


def begun_in(state: State) -> dict[str, int]:
    """The turns that are open in `state`, each with the record that its last attempt began with."""
    return {
        turn.turn: max(turn.seq, turn.attempt_seq) if turn.host_done is None else turn.attempt_seq
        for turn in state.open_turns.values()
    }


class TurnText:
    """Joins a turn's text: the assistant's messages in its last attempt, by newlines. Feed it the records of
    that attempt in order; others are passed over."""

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self._begun = False
        self._more = False

    def piece(self, record: Record) -> str:
        """What the record adds to the text."""
        body = record.body
        if record.turn != self.turn or not isinstance(body, AgentEventRecorded) or body.kind != "message":
            return ""
        separated = self._begun and not self._more
        self._begun, self._more = True, body.more
        return f"\n{body.text}" if separated else body.text
