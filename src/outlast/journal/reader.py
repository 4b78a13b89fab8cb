"""Reading a journal, verified: every record follows on the one before it, by number and by chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from shlex import quote
from typing import Literal

import msgspec

from outlast.errors import IntegrityError, UsageError
from outlast.records.codec import blob_ref, chain_of, is_blob_ref, outline_of, record_of
from outlast.records.envelope import Record
from outlast.records.types import (
    AgentEventRecorded,
    Body,
    CallObserved,
    Content,
    InputAccepted,
    ReplyInterrupted,
)
from outlast.store.contract import Row, Store

PAGE = 1000
LOST = "[what comes here is lost: its blob is missing or damaged]"
"""Stands for the text of a record whose blob is gone."""
ENVELOPE = 200
"""Bytes of a row beside its body, about."""

Large = Literal["whole", "outline", "reference"]
"""`outline`: without the text that nothing is folded from, where the record has that; else the whole body.
`reference`: a `BlobRef`."""


@dataclass(slots=True)
class Place:
    """The last record that was read: what the next one must follow on."""

    seq: int = 0
    chain: bytes = b""


async def read_records(
    store: Store,
    name: str,
    after: int = 0,
    *,
    large: Large = "whole",
    lost: list[IntegrityError] | None = None,
) -> AsyncIterator[Record]:
    """The records after `after`, in constant memory. `large` says how a body is given that is kept as a blob.
    With `lost`, a record that has lost only its text is given with a mark in its place, and the fault is put
    there.

    Raises IntegrityError naming the first record that is missing, changed or out of place, or whose blob
    is; UnsupportedRecordError, InvalidRecordError; UsageError where the journal ends before `after`.
    """
    place = await place_after(store, name, after)
    async for record in read_on(store, name, place, large=large, lost=lost):
        yield record


async def read_record(
    store: Store, name: str, seq: int, *, lost: list[IntegrityError] | None = None
) -> Record:
    """The record at `seq`, held against the one before it. `lost` and what it raises: as `read_records`."""
    place = await place_after(store, name, seq - 1)
    rows = await store.read(name, place.seq, 1)
    if not rows:
        raise _broken(name, seq, "missing")
    check_row(name, place, rows[0])
    return await _record(store, name, rows[0], "whole", lost)


async def place_after(store: Store, name: str, after: int) -> Place:
    """Where reading begins. Raises UsageError where the journal is shorter than that: what it gets up to
    there would be taken for known."""
    if after <= 0:
        return Place()
    rows = await store.read(name, after - 1, 1)
    if not rows:
        tip = await store.tip(name)
        if tip.seq > after:
            raise _broken(name, after, "missing")
        raise UsageError(
            f"the journal of {name} ends at record {tip.seq}: nothing comes after record {after}",
            hint="read it from its beginning; the cursor is of another store, or of one restored since",
            session_id=name,
        )
    return Place(after, rows[0].chain)


async def read_on(
    store: Store,
    name: str,
    place: Place,
    *,
    large: Large = "whole",
    lost: list[IntegrityError] | None = None,
) -> AsyncIterator[Record]:
    """The records after `place`, which moves along."""
    while rows := await next_page(store, name, place):
        for row in rows:
            check_row(name, place, row)
            record = await _record(store, name, row, large, lost)
            place.seq, place.chain = row.seq, row.chain
            yield record
        # A long journal must not keep the event loop from everything else.
        await asyncio.sleep(0)


async def _record(
    store: Store, name: str, row: Row, large: Large, lost: list[IntegrityError] | None
) -> Record:
    if not is_blob_ref(row.body):
        return record_of(row, name)
    try:
        return record_of(row, name, await body_of(store, name, row, large))
    except IntegrityError as error:
        outline = outline_of(row.body)
        if lost is None or outline is None:
            raise
        lost.append(error)
    record = record_of(row, name, outline)
    return msgspec.structs.replace(record, body=_marked(record.body))


def _marked(body: Body) -> Body:
    """What is left of a body, saying that its text is lost."""
    match body:
        case InputAccepted(content=content):
            return msgspec.structs.replace(body, content=[*content, Content(text=LOST)])
        case AgentEventRecorded() | ReplyInterrupted():
            return msgspec.structs.replace(body, text=LOST)
        case CallObserved():
            return msgspec.structs.replace(body, input=LOST, output=LOST)
    return body


async def next_page(store: Store, name: str, place: Place) -> list[Row]:
    """The rows after `place`, as they are stored; none at the end. Raises IntegrityError."""
    rows = await store.read(name, place.seq, PAGE)
    if rows:
        return rows
    # An empty page is the end, unless the store knows of a later record: one that was stored since, or one
    # behind a gap.
    tip = await store.tip(name)
    if tip.seq <= place.seq:
        return []
    rows = await store.read(name, place.seq, PAGE)
    if not rows:
        raise _broken(name, place.seq + 1, "missing")
    return rows


def check_row(name: str, place: Place, row: Row) -> None:
    """Raises IntegrityError unless `row` follows on `place`, by number and by chain."""
    if row.seq != place.seq + 1:
        raise _broken(name, place.seq + 1, "missing")
    if row.chain != chain_of(place.chain, name, row):
        raise _broken(name, row.seq, "not what was stored, or the one before it is not (its chain differs)")


async def body_of(store: Store, name: str, row: Row, large: Large) -> bytes | None:
    """What stands for the body of a row that refers to a blob; None: the reference itself. Raises
    IntegrityError."""
    if large == "reference":
        return None
    outline = outline_of(row.body) if large == "outline" else None
    return await _fetch(store, name, row) if outline is None else outline


async def _fetch(store: Store, name: str, row: Row) -> bytes:
    ref = blob_ref(row.body)
    # `outlast repair` cuts only what a session cannot be opened without.
    hint = _CUT if outline_of(row.body) is None else _without_text(name, row.seq)
    try:
        data = await store.get_blob(ref.digest)
    except IntegrityError as error:
        reason = f"without its body: blob {ref.digest} is {error.reason}"
        raise _broken(name, row.seq, reason, hint) from error
    if len(data) != ref.size:
        raise _broken(name, row.seq, f"without its body: blob {ref.digest} has {len(data)} bytes", hint)
    return data


_CUT = "`outlast verify` says how far it is good, `outlast repair` ends the journal before it"


def _without_text(name: str, seq: int) -> str:
    return (
        "only its text is lost, and the session goes on without it; to have it again, put the blob's file"
        f" back from a backup; `outlast tail {quote(name)} --after {seq}` reads on"
    )


def _broken(name: str, seq: int, reason: str, hint: str = _CUT) -> IntegrityError:
    return IntegrityError(
        f"record {seq} of the journal of {name} is {reason}",
        seq=seq,
        reason=reason,
        hint=hint,
        session_id=name,
    )
