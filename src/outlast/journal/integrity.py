"""Whether a journal is what was stored: chain, numbers, bodies, rules, and as long as its witness says.

`read_records` refuses the first record that is wrong, and that is all that a reader needs. `verify` says of
what kind the fault is, how far everything is good, and goes on by the chain alone behind a record of a newer
outlast.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Literal

from outlast.errors import IntegrityError, InvalidRecordError, UnsupportedRecordError
from outlast.journal.reader import Large, Place, body_of, check_row, next_page, place_after
from outlast.records.codec import is_blob_ref, record_of
from outlast.records.envelope import Record
from outlast.state.fold import apply
from outlast.state.invariants import Invariants
from outlast.state.model import State
from outlast.store import refusals
from outlast.store.contract import Row, Store

FaultKind = Literal["record", "body", "rule", "shorter", "replaced"]
"""`record`: it is missing, changed, or its database page is damaged. `body`: its blob is missing or changed.
`rule`: it is what was stored and contradicts those before it. `shorter`: the journal was longer. `replaced`:
the journal is sound in itself and not the one that had been stored."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is wrong. `seq` is the first record that is not good, or is not there."""

    kind: FaultKind
    seq: int
    reason: str
    message: str
    noted: int = 0
    """How far the journal had been, by its witness or by what is there."""


@dataclass(frozen=True, slots=True)
class Newer:
    """The first record that only a newer outlast can read: from there on the chain alone is checked."""

    seq: int
    type: str
    v: int
    message: str


@dataclass(frozen=True, slots=True)
class Strange:
    """A record that only a newer outlast reads, as it is stored; the chain vouches for it."""

    row: Row
    message: str


async def read_known(store: Store, session: str, after: int = 0) -> AsyncIterator[Record | Strange]:
    """As `read_records`, and over records that only a newer outlast reads: for showing, not for folding."""
    place = await place_after(store, session, after)
    while rows := await next_page(store, session, place):
        for row in rows:
            check_row(session, place, row)
            body = await body_of(store, session, row, "whole") if is_blob_ref(row.body) else None
            item: Record | Strange
            try:
                item = record_of(row, session, body)
            except UnsupportedRecordError as error:
                item = Strange(row, error.message)
            place.seq, place.chain = row.seq, row.chain
            yield item
        await asyncio.sleep(0)


@dataclass(slots=True)
class Verified:
    """What was found. Everything up to `seq` is as it was stored; nothing is where none of it is there, which
    is no fault of a session that is still to begin (`lose`)."""

    session: str
    seq: int = 0
    chain: bytes = b""
    state: State = field(default_factory=lambda: State(""))
    """After the last record that is good and that this outlast reads."""
    fault: Fault | None = None
    newer: Newer | None = None
    chains: dict[int, bytes] = field(default_factory=dict)
    """The chain at the records that were asked for."""

    def lose(self, noted: int) -> None:
        """No record is there, of a session that had begun: `noted` is the last one that is known of."""
        error = refusals.nothing_left(self.session)
        self.fault = Fault("shorter", 1, error.reason, error.message, noted)


@dataclass(frozen=True, slots=True)
class Look:
    """How `verify` looks. `bodies`: `whole` reads every blob, `outline` only those that a session cannot be
    opened without. `marks` are records whose chain is wanted; `told` hears now and then how far it is."""

    bodies: Large = "whole"
    marks: frozenset[int] = frozenset()
    told: Callable[[int], None] = lambda seq: None


async def verify(store: Store, session: str, look: Look | None = None) -> Verified:
    """Read the whole journal, in constant memory but for what the invariants remember of each input. Raises
    StoreErrors; what is wrong with the journal is returned."""
    walk = _Walk(store, session, look or Look())
    try:
        await walk.walk()
    except IntegrityError as error:
        walk.found.fault = walk.fault_of(error, await _reached(store, session))
    return walk.found


async def _reached(store: Store, session: str) -> int:
    """How far the journal had been, as far as that can be told."""
    try:
        return (await store.tip(session)).seq
    except IntegrityError as error:
        return error.noted


class _Walk:
    def __init__(self, store: Store, session: str, look: Look) -> None:
        self.found = Verified(session, state=State(session))
        self._store = store
        self._look = look
        self._invariants = Invariants()
        self._kind: FaultKind = "record"

    async def walk(self) -> None:
        place = Place()
        while rows := await self._page(place):
            for row in rows:
                self._kind = "record"
                check_row(self.found.session, place, row)
                await self._take(row)
                place.seq, place.chain = row.seq, row.chain
                self.found.seq, self.found.chain = row.seq, row.chain
                if row.seq in self._look.marks:
                    self.found.chains[row.seq] = row.chain
            self._look.told(place.seq)
            await asyncio.sleep(0)

    async def _page(self, place: Place) -> list[Row]:
        """Whether a journal ends where it did is asked for at its end: what comes before is good anyway."""
        self._kind = "record"
        rows = await self._store.read(self.found.session, place.seq)
        if rows:
            return rows
        self._kind = "shorter"
        return await next_page(self._store, self.found.session, place)

    async def _take(self, row: Row) -> None:
        if self.found.newer is not None:
            return
        self._kind = "body"
        body = None
        if is_blob_ref(row.body):
            body = await body_of(self._store, self.found.session, row, self._look.bodies)
        self._kind = "rule"
        try:
            record = record_of(row, self.found.session, body)
        except UnsupportedRecordError as error:
            self.found.newer = Newer(row.seq, row.type, row.v, error.message)
            return
        except InvalidRecordError as error:
            raise self._refusal(row.seq, error.message) from error
        for broken in self._invariants.feed(record):
            raise self._refusal(row.seq, broken.reason)
        apply(self.found.state, record)

    def _refusal(self, seq: int, reason: str) -> IntegrityError:
        name = self.found.session
        return IntegrityError(
            f"record {seq} of the journal of {name} cannot be: {reason}",
            seq=seq,
            reason=reason,
            session_id=name,
        )

    def fault_of(self, error: IntegrityError, reached: int) -> Fault:
        kind, seq = self._kind, self.found.seq + 1
        if error.noted:
            kind = "shorter" if self.found.seq < error.noted else "replaced"
            seq = min(seq, error.noted)
        elif kind == "shorter":
            kind = "record"  # behind a gap
        return Fault(kind, seq, error.reason, error.message, error.noted or reached)
