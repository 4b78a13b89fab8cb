"""Waiting for what becomes of an input or a command, whoever owns the session."""

from __future__ import annotations

import asyncio
import contextlib

from outlast.errors import BusyError
from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.records.types import (
    GateResolved,
    InputCancelled,
    InputJoined,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
)
from outlast.runtime.backing import Backing
from outlast.runtime.outcome import Outcome, Terminal, outcome_of
from outlast.state.turn_text import TurnText

LOOK_AGAIN = 1.0
"""Seconds after which a waiting caller looks whether the session still has an owner."""
TERMINALS = (TurnDone, TurnFailed, TurnInterrupted, TurnParked)


async def outcome(backing: Backing, session: str, turn: str, after: int = 0) -> Outcome:
    """The end of `turn`, whose first record lies after `after`. See `Turn.result`."""
    text = TurnText(turn)
    found: Terminal | None = None
    while True:
        async for record in read_records(backing.store, session, after):
            after = record.seq
            text.apply(record)
            if isinstance(record.body, InputJoined) and record.body.request_id == turn:
                return await outcome(backing, session, record.turn or turn)
            found = _found(record, turn, found)
        if found is not None:
            # A batch is atomic: what follows a terminal in its batch (a retry) has been read by now.
            if isinstance(found, InputCancelled) and found.reason == "busy":
                raise BusyError("a turn was running", session_id=session)
            return outcome_of(session, turn, found, text.text)
        await _more(backing, session, after)


def _found(record: Record, turn: str, found: Terminal | None) -> Terminal | None:
    """The newest terminal of `turn`, or None when it goes on."""
    body = record.body
    if isinstance(body, InputCancelled):
        return body if body.request_id == turn else found
    if record.turn != turn:
        return found
    if isinstance(body, TurnRetried):
        return None
    return body if isinstance(body, TERMINALS) else found


async def _more(backing: Backing, session: str, after: int) -> None:
    store = backing.store
    with store.changes(session) as bell:
        if (await store.tip(session)).seq > after:
            return
        raise_if_unserved(backing, session)
        if not backing.serving(session):
            row = await store.listed(session)
            # A closed session stays closed until somebody gives it an input: waiting for one is none.
            if row is None or row.entry.state != "stopped" or row.pending:
                backing.serve(session)
        await _rung(bell)


async def settling(backing: Backing, session: str, request_id: str) -> Record | None:
    """The record that settles a command; None when nobody owns the session."""
    store = backing.store
    with store.changes(session) as bell:
        while True:
            bell.clear()
            tombstone = await store.settled(session, request_id)
            if tombstone is not None:
                async for record in read_records(store, session, tombstone.seq - 1):
                    return record
            raise_if_unserved(backing, session)
            if not backing.serving(session) and await store.holder(session) is None:
                return None
            await _rung(bell)


async def resolution(backing: Backing, session: str, gate: str) -> GateResolved | None:
    """How a gate that is not open any more was resolved; None if the session never had it."""
    async for record in read_records(backing.store, session):
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
