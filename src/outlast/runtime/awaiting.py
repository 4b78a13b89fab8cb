"""Waiting for what becomes of an input or a command, whoever owns the session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from outlast.agents.failure import kind_of
from outlast.errors import BusyError, TurnHeldError, naming
from outlast.journal import load_state, read_records
from outlast.records.envelope import Record
from outlast.records.types import (
    GateResolved,
    InputAccepted,
    InputCancelled,
    InputJoined,
    TurnDone,
    TurnStarted,
)
from outlast.runtime.backing import Backing
from outlast.runtime.decisions import Decision, waiting_decisions
from outlast.runtime.outcome import Outcome, outcome_of
from outlast.runtime.texts import whole_text
from outlast.state.turn_ends import End, Ends
from outlast.store.contract import Store
from outlast.turns.holding import held_because
from outlast.turns.lost import held_by_loss

_BACK = 100
"""Records that are looked at first, from the end of a journal."""
LOOK_AGAIN = 1.0
"""Seconds after which a waiting caller looks whether the session still has an owner."""


async def outcome(backing: Backing, session: str, turn: str, after: int = 0) -> Outcome:
    """The end of `turn` with its text, however long that is. See `Turn.result`."""
    ended = await end(backing, session, turn, after)
    return outcome_of(session, ended, await whole_text(backing.store, session, ended))


async def end(backing: Backing, session: str, turn: str, after: int = 0) -> End:
    """The end of `turn`, whose first record lies after `after`, waiting for it. See `Turn.result`."""
    ends, cancelled = Ends(), None
    decided: Sequence[Decision] | None = None
    while True:
        async for record in read_records(backing.store, session, after, large="outline"):
            after, body = record.seq, record.body
            if isinstance(body, InputJoined) and body.request_id == turn:
                return await end(backing, session, record.turn or turn)
            if isinstance(body, InputCancelled) and body.request_id == turn:
                cancelled = End(turn, body, record.seq, record.seq)
            elif record.turn == turn:
                ends.apply(record)
        # A batch is atomic: what follows a terminal in its batch (a retry) has been read by now.
        found = ends.get(turn) or cancelled
        if found is None:
            decided = None
            await _more(backing, session, turn, after)
        elif isinstance(found.body, InputCancelled):
            if found.body.reason == "busy":
                raise BusyError("a turn was running", session_id=session)
            return found
        elif isinstance(found.body, TurnDone):
            return found
        elif decided is None:
            # In this order: what an owner takes meanwhile is in the journal, which is read once more.
            decided = await _decided(backing.store, session, turn)
        elif decided and await _taken(backing, session, decided[0].request_id):
            decided = None
        else:
            return found


async def _decided(store: Store, session: str, turn: str) -> Sequence[Decision]:
    """What people have said about how the closed `turn` goes on, and no owner has carried out yet."""
    pending = await store.pending(session)
    if all(entry.kind == "input" for entry in pending):
        return ()
    return waiting_decisions(await load_state(store, session), pending, turn)


async def _taken(backing: Backing, session: str, request_id: str) -> bool:
    """Wait until an owner has taken the command, one of this process where nobody else is there; False where
    nobody is, and this process owns nothing."""
    while True:
        if not backing.serving(session) and await backing.store.holder(session) is None:
            backing.serve(session)
        if await settling(backing, session, request_id) is not None:
            return True
        if not backing.serving(session) and await backing.store.holder(session) is None:
            return False


class Accepted(NamedTuple):
    """An input, and the record with which it was accepted."""

    turn: str
    seq: int


async def newest(store: Store, session: str) -> Accepted | None:
    """Of the inputs that were accepted the newest one that became a turn: it neither waits nor was taken back
    before it began, and joined no other's. It reads backwards, so that it costs what came after that one, and
    not the history."""
    state = await load_state(store, session)
    joined: set[str] = set()
    taken_back: set[str] = set()
    begun: set[str | None] = set()
    last, step = state.seq, _BACK
    while last > 0:
        found: list[Accepted] = []
        first = max(0, last - step)
        async for record in read_records(store, session, first, large="outline"):
            if record.seq > last:
                break
            body = record.body
            if isinstance(body, InputJoined):
                joined.add(body.request_id)
            elif isinstance(body, InputCancelled):
                taken_back.add(body.request_id)
            elif isinstance(body, TurnStarted):
                begun.add(record.turn)
            elif isinstance(body, InputAccepted) and body.request_id not in state.queue:
                found.append(Accepted(body.request_id, record.seq))
        for accepted in reversed(found):
            if accepted.turn not in joined | (taken_back - begun):
                return accepted
        last, step = first, step * 2
    return None


async def _more(backing: Backing, session: str, turn: str, after: int) -> None:
    store = backing.store
    with store.changes(session) as bell:
        if (await store.tip(session)).seq > after:
            return
        raise_if_unserved(backing, session)
        if await _goes_on(store, session, turn) and not backing.serving(session):
            backing.serve(session)
        await _rung(bell)


async def _goes_on(store: Store, session: str, turn: str) -> bool:
    """False for a closed session: that stays closed until somebody gives it an input, and waiting for one is
    none. Raises TurnHeldError where the input waits for a person, and nobody has let it go on by now."""
    entry = await store.entry(session)
    if entry is None or entry.state not in ("parked", "stopped"):
        return True
    row = await store.listed(session)
    if row is None or row.pending or row.decisions:
        return True  # An owner takes that first, and it may be what lets the queue go on.
    because = held_because(await load_state(store, session), turn)
    if because is not None:
        raise TurnHeldError(
            f"turn {turn} of session {session} has not begun: {because}",
            turn=turn,
            hint=await let_go_on(store, session),
            session_id=session,
        )
    return row.entry.state != "stopped"


async def let_go_on(store: Store, session: str) -> str:
    """How a person lets a held queue go on."""
    state = await load_state(store, session)
    if state.root is not None and held_by_loss(state, state.root):
        return naming(kind_of("session_missing").next_step, session)
    if await store.holder(session) is not None:
        return f"`outlast skip {quote(session)}` lets it go on"
    return f"`outlast resume {quote(session)}` goes on with it"


async def settling(backing: Backing, session: str, request_id: str) -> Record | None:
    """The record that settles a command; None when nobody owns the session."""
    store = backing.store
    with store.changes(session) as bell:
        while True:
            bell.clear()
            # Looked at first: an owner may settle it and leave between the two looks.
            owned = backing.serving(session) or await store.holder(session) is not None
            tombstone = await store.settled(session, request_id)
            if tombstone is not None:
                async for record in read_records(store, session, tombstone.seq - 1):
                    return record
            raise_if_unserved(backing, session)
            if not owned:
                return None
            await _rung(bell)


async def in_hands(store: Store, session: str, request_id: str) -> bool:
    """Whether an owner has taken a request, or one is there that will."""
    owned = await store.holder(session) is not None
    return owned or await store.settled(session, request_id) is not None


async def resolution(backing: Backing, session: str, gate: str) -> GateResolved | None:
    """How a gate that is not open any more was resolved; None if the session never had it."""
    async for record in read_records(backing.store, session, large="outline"):
        body = record.body
        if isinstance(body, GateResolved) and body.gate == gate:
            return body
    return None


def raise_if_unserved(backing: Backing, session: str) -> None:
    """Raises what kept this process from owning the session."""
    failed = backing.serving_failed(session)
    if failed is not None:
        raise failed


async def _rung(bell: asyncio.Event) -> None:
    """Until the bell rings; a look in between finds an owner that died without a word."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK_AGAIN):
            await bell.wait()
