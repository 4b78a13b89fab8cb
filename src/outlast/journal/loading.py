"""From a journal to its state: the newest snapshot that is true of it, and the records after that.

A snapshot is a cache. One that is wrong in any way is passed over for the older one, and that for the whole
journal; nobody has to be asked, and nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlast.errors import IntegrityError, OutlastError
from outlast.journal.reader import Place, read_on
from outlast.records.codec import chain_of
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
            tail = await _fold_on(store, state, snapshot)
        except UnfitSnapshotError as error:
            unfit.append(Unfit(snapshot.seq, str(error)))
            continue
        return Loaded(state, snapshot.seq, tail, len(snapshot.body), tuple(unfit))
    state = State(name)
    tail = await _fold_on(store, state, None)
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


async def _fold_on(store: Store, state: State, snapshot: Snapshot | None) -> int:
    """Take the records after the state into it; the bytes that were read."""
    place = Place(state.seq, state.chain)
    async for record in read_on(store, state.session, place, large="outline"):
        try:
            apply(state, record)
        except IntegrityError as error:
            if snapshot is None:
                raise
            # The journal may be whole, and the snapshot made by a fold that was wrong.
            raise UnfitSnapshotError(f"record {record.seq} contradicts it: {error.reason}") from error
    return place.read
