"""From a journal to its state: the newest snapshot that is true of it, and the records after that.

A snapshot is a cache. One that is wrong in any way is passed over for the older one, and that for the whole
journal; nobody has to be asked, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from outlast.errors import IntegrityError, OutlastError
from outlast.journal.reader import ENVELOPE, Place, body_of, check_row, next_page
from outlast.records.codec import chain_of, record_of
from outlast.records.envelope import Record
from outlast.records.types import BlobRef
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.state.snapshot import UnfitSnapshotError, state_of
from outlast.store.contract import Row, Snapshot, Store


@dataclass(frozen=True, slots=True)
class Unfit:
    """A snapshot that was passed over."""

    seq: int
    """0: none of the session's could be read."""
    reason: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state, and what it took to have it."""

    state: State
    verified_from: int = 0
    """The record of the snapshot that was begun at: every later one was held against the chain. 0: all."""
    tail: int = 0
    """Bytes that were read after the snapshot."""
    snapshot: int = 0
    """Bytes of the snapshot."""
    unfit: tuple[Unfit, ...] = ()
    """The newer snapshots that were passed over."""


async def load_state(store: Store, name: str) -> State:
    """The state after the last record; an empty one where there is no journal. Raises as `load`."""
    return (await load(store, name)).state


async def load(store: Store, name: str) -> Loaded:
    """The state after the last record, at the cost of what came after the newest snapshot. Raises as
    `read_records`; what inputs and agents have said is not read, and may be lost."""
    unfit: list[Unfit] = []
    try:
        kept = await store.snapshots(name)
    except OutlastError as error:  # of the pages that a cache lies in; others are met when records are read
        kept, unfit = [], [Unfit(0, error.message)]
    for snapshot in kept:
        try:
            state = await begin_at(store, snapshot)
            tail = await _fold_on(store, state)
        except UnfitSnapshotError as error:
            unfit.append(Unfit(snapshot.seq, str(error)))
        except ContradictionError as contradiction:
            # The journal may be whole, and the snapshot made by a fold that was wrong.
            found = contradiction.error
            unfit.append(Unfit(snapshot.seq, f"record {found.seq} contradicts it: {found.reason}"))
        else:
            return Loaded(state, snapshot.seq, tail, len(snapshot.body), tuple(unfit))
    state = State(name)
    try:
        tail = await _fold_on(store, state)
    except ContradictionError as contradiction:
        raise contradiction.error from None
    return Loaded(state, 0, tail, 0, tuple(unfit))


async def begin_at(store: Store, snapshot: Snapshot) -> State:
    """The state that a snapshot holds. Raises UnfitSnapshotError unless the journal has the record that it
    follows on, as it was stored."""
    state = state_of(snapshot)
    row = await _row(store, snapshot.name, snapshot.seq)
    if row is None:
        raise UnfitSnapshotError(f"the journal has no record {snapshot.seq}")
    before = await _row(store, snapshot.name, snapshot.seq - 1)
    previous = b"" if before is None else before.chain
    if (row.chain, row.epoch) != (state.chain, state.epoch) or row.chain != chain_of(
        previous, snapshot.name, row
    ):
        raise UnfitSnapshotError(f"record {snapshot.seq} of the journal is another one")
    return state


async def _row(store: Store, name: str, seq: int) -> Row | None:
    rows = await store.read(name, seq - 1, 1) if seq > 0 else []
    return rows[0] if rows and rows[0].seq == seq else None


async def _fold_on(store: Store, state: State) -> int:
    """Take the records after the state into it; the bytes that were read. Raises ContradictionError, and as
    `read_records`."""
    name, size = state.session, 0
    while rows := await next_page(store, name, Place(state.seq, state.chain)):
        size += sum(ENVELOPE + len(row.body) for row in rows)
        while (done := fold_rows(state, rows)) < len(rows):
            row, rows = rows[done], rows[done + 1 :]
            body = await body_of(store, name, row, "outline")
            size += 0 if body is None else len(body) - len(row.body)
            _fold(state, record_of(row, name, body))
        # A long journal must not keep the event loop from everything else.
        await asyncio.sleep(0)
    return size


class ContradictionError(Exception):
    """A record that is as it was stored does not fit what comes before it."""

    def __init__(self, error: IntegrityError) -> None:
        super().__init__(error.message)
        self.error = error


def fold_rows(state: State, rows: Sequence[Row]) -> int:
    """Take rows into a state, each held against the one before it, up to the first whose body is kept as a
    blob; how many. Raises ContradictionError, and as `read_records`."""
    name, first, chain = state.session, state.seq + 1, state.chain
    for seq, row in enumerate(rows, first):
        before, chain = chain, row.chain
        # Here and not in functions, as all that is done for each record: opening a session waits for it.
        if row.seq != seq or chain != chain_of(before, name, row):
            check_row(name, Place(seq - 1, before), row)
        record = record_of(row, name)
        if type(record.body) is BlobRef:
            return seq - first
        try:
            apply(state, record)
        except IntegrityError as error:
            raise ContradictionError(error) from error
    return len(rows)


def _fold(state: State, record: Record) -> None:
    try:
        apply(state, record)
    except IntegrityError as error:
        raise ContradictionError(error) from error
