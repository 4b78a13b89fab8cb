"""What is refused has changed nothing, also where it is refused after its first write."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import pytest
from tests.support.stores import admit, append, entry, row, rows, seqs

from outlast.errors import ConflictError, StoreError
from outlast.store.contract import Append, Cut, Lease, Settlement, Snapshot, Store
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.transaction import Transaction


def cut(lease: Lease, seq: int, settle: tuple[str, ...] = ()) -> Cut:
    """After record 2, with a row of this number in place of the rest."""
    settled = tuple(Settlement(request, seq) for request in settle)
    return Cut(2, Append("s", (row(seq, lease.epoch),), 2, lease, settled), 5, "made")


@pytest.mark.parametrize(("seq", "settle"), [(3, ("nobody",)), (4, ())], ids=["settles", "leaves a gap"])
async def test_a_cut_that_is_refused_takes_nothing_out(
    store: Store, seq: int, settle: tuple[str, ...]
) -> None:
    assert isinstance(store, SqliteStore)
    lease = await store.acquire("s")
    await store.append(Append("s", rows(lease, 0, 5), 0, lease, catalog=entry("s", 5)))
    await store.put_snapshot(Snapshot("s", 4, b"c", 1, b"d", b"body"), lease)
    before = await store.read("s", 0), await store.snapshots("s"), await store.listed("s")
    with pytest.raises(StoreError):
        await store.mending.cut(cut(lease, seq, settle))
    assert (await store.read("s", 0), await store.snapshots("s"), await store.listed("s")) == before
    assert await append(store, lease) == 6
    await store.mending.cut(cut(lease, 3))
    assert await seqs(store, "s") == [1, 2, 3]


@dataclass(frozen=True, slots=True)
class WritesAndRefuses:
    """What no operation should do."""

    point: ClassVar[str] = "admit"
    refusal: StoreError

    def run(self, txn: Transaction) -> None:
        txn.wrote = True
        txn.cursor.execute("DELETE FROM record")
        raise self.refusal


async def test_an_operation_that_refuses_after_it_wrote_is_taken_back_and_costs_nobody_else(
    store: Store,
) -> None:
    assert isinstance(store, SqliteStore)
    lease = await store.acquire("s")
    await append(store, lease, 2)
    # All in one tick, and so in one group behind the first.
    first = asyncio.ensure_future(admit(store, "other", "r0"))
    await asyncio.sleep(0)
    batch = Append("s", rows(lease, 2, 1), 2, lease)
    conflict = Append("s", rows(lease, 2, 1), 2, lease)
    refused = ConflictError("made to refuse", tip=0)
    outcomes = await asyncio.gather(
        first,
        store.append(batch),
        store._submit(WritesAndRefuses(refused)),
        store.append(conflict),
        admit(store, "other", "r1"),
        return_exceptions=True,
    )
    assert outcomes[1] == 3
    assert isinstance(outcomes[2], ConflictError)
    assert outcomes[2].message == "made to refuse"
    assert isinstance(outcomes[3], ConflictError)
    assert await seqs(store, "s") == [1, 2, 3]
    assert [item.request_id for item in await store.pending("other")] == ["r0", "r1"]
    assert await append(store, lease) == 4
