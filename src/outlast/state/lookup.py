"""What the folding rules share: finding what a record names, and refusing a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from outlast.errors import IntegrityError
from outlast.records.envelope import Record
from outlast.records.types import Body, TurnAttemptStarted
from outlast.state.model import Closed, Loop, OpenTurn, Queued, State

# Each rule takes its own body type; the key it stands under is the proof, which no type can state.
Rule: TypeAlias = Callable[[State, Record, Any], None]
Rules: TypeAlias = Mapping[type[Body], Rule]


def refuse(state: State, record: Record, reason: str) -> NoReturn:
    raise IntegrityError(
        f"record {record.seq} ({record.type}) of session {state.session} contradicts the journal: {reason}",
        seq=record.seq,
        reason=reason,
        session_id=state.session,
        hint="`outlast verify` says how far it is good, `outlast repair` ends the journal before it",
    )


def loop_of(state: State, record: Record) -> Loop:
    """The loop that a record names; the root loop where it names none."""
    name = record.loop
    if name is None:
        turn = state.open_turns.get(record.turn or "")
        name = state.root if turn is None else turn.loop
    loop = state.loops.get(name or "")
    if loop is None:
        refuse(state, record, "no loop was started" if name is None else f"there is no loop {name}")
    return loop


def open_turn(state: State, record: Record, turn: str | None = None) -> OpenTurn:
    """The open turn that a record names."""
    name = record.turn if turn is None else turn
    found = state.open_turns.get(name or "")
    if found is None:
        refuse(state, record, "it names no turn" if name is None else f"turn {name} is not open")
    return found


def unsuccessful(state: State, turn: str) -> Closed | None:
    """The closed turn `turn` if it is some loop's newest and did not end as done."""
    for closed in state.last_unsuccessful.values():
        if closed.turn == turn:
            return closed
    return None


def same_life(one: TurnAttemptStarted, other: TurnAttemptStarted) -> bool:
    """Whether both attempts were given to one agent life. A folder that was lost and made anew gives the
    names of its first lives again; their shims differ."""
    if one.generation != other.generation:
        return False
    shims = [(of.boot_id, p) for of in (one, other) for p in of.processes if p.role == "shim"]
    return len(shims) < 2 or shims[0] == shims[1]


def blobs_needed(state: State) -> frozenset[str]:
    """Digests of the blobs that the session needs beside those of its records' bodies."""
    return frozenset(
        piece.digest
        for loop in state.loops.values()
        for captured in (loop.captured, loop.accepted)
        if captured is not None
        for piece in captured.pieces
    )


def steered_into(state: State, turn: str) -> list[Queued]:
    """The waiting inputs that were reserved for the agent while it worked on `turn`, and of which the journal
    does not yet say whether they landed there."""
    return [entry for entry in state.queue.marked() if entry.joins == turn and entry.reserved is not None]
