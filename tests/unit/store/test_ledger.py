"""The ledger's promises. Nothing here knows which store it is."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.stores import PATIENCE, admit, append, entry, eventually, row, rows, seqs

from outlast.errors import ConflictError, FencedError, IntegrityError, StoreError
from outlast.store.contract import Append, Mendable, Row, Settlement, Store, Tip
from outlast.store.url import open_store


async def test_a_journal_that_was_never_written_is_empty(store: Store) -> None:
    assert await store.tip("nobody") == Tip(0, 0, b"")
    assert await store.read("nobody", 0) == []


async def test_rows_come_back_as_they_were_stored_in_another_life_of_the_store(url: str) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")
    batch = (
        *rows(lease, 0, 2, b'{"nul":"\x00"}'),
        Row(
            3,
            lease.epoch,
            bytes(16),
            0,
            "T",
            7,
            None,
            "t\r\n",
            None,
            "\U0001f642",
            b"\x00c",
            b"",
            b"\x01" * 16,
        ),
    )
    assert await store.append(Append("s", batch, 0, lease)) == 3
    await store.close()
    again = await open_store(url)
    assert await again.read("s", 0) == list(batch)
    assert await again.tip("s") == Tip(3, lease.epoch, b"\x01" * 16)
    await again.close()


async def test_a_page_holds_what_follows_and_no_more_than_its_limit(store: Store) -> None:
    lease = await store.acquire("s")
    await append(store, lease, 25)
    assert [row.seq for row in await store.read("s", 7, 10)] == list(range(8, 18))
    assert [row.seq for row in await store.read("s", 20, 10)] == [21, 22, 23, 24, 25]
    assert await store.read("s", 25, 10) == []


async def test_a_page_of_large_rows_ends_early_and_reading_on_finds_them_all(store: Store) -> None:
    lease = await store.acquire("s")
    await store.append(Append("s", rows(lease, 0, 50, bytes(256 * 1024)), 0, lease))
    assert len(await store.read("s", 0)) < 50
    assert await seqs(store, "s") == list(range(1, 51))


async def test_a_batch_at_another_tip_is_refused_and_the_tip_is_named(store: Store) -> None:
    lease = await store.acquire("s")
    await append(store, lease, 3)
    with pytest.raises(ConflictError) as refused:
        await store.append(Append("s", rows(lease, 1, 1), 1, lease))
    assert refused.value.tip == 3
    with pytest.raises(ConflictError):
        await store.append(Append("s", rows(lease, 9, 1), 9, lease))
    assert await seqs(store, "s") == [1, 2, 3]


async def test_the_same_batch_again_is_found_stored(store: Store) -> None:
    lease = await store.acquire("s")
    batch = Append("s", rows(lease, 0, 3), 0, lease)
    assert await store.append(batch) == 3
    await append(store, lease, 2)
    assert await store.append(batch) == 3
    assert await seqs(store, "s") == [1, 2, 3, 4, 5]


async def test_a_batch_that_is_stored_in_part_only_is_a_conflict(store: Store) -> None:
    lease = await store.acquire("s")
    first = rows(lease, 0, 2)
    await store.append(Append("s", first, 0, lease))
    with pytest.raises(ConflictError):
        await store.append(Append("s", (*first, row(3, lease.epoch)), 0, lease))


@pytest.mark.parametrize("wrong", ["gap", "epoch", "empty"])
async def test_a_batch_that_does_not_follow_is_refused_whole(store: Store, wrong: str) -> None:
    lease = await store.acquire("s")
    batches = {
        "gap": (row(1, lease.epoch), row(3, lease.epoch)),
        "epoch": (row(1, lease.epoch), row(2, lease.epoch + 1)),
        "empty": (),
    }
    with pytest.raises(StoreError):
        await store.append(Append("s", batches[wrong], 0, lease))
    assert await seqs(store, "s") == []


async def test_an_append_without_the_lease_in_force_is_fenced_and_its_lease_is_lost(store: Store) -> None:
    stale = await store.acquire("s")
    await stale.release()
    owner = await store.acquire("s")
    with pytest.raises(FencedError) as refused:
        await store.append(Append("s", rows(stale, 0, 1), 0, stale))
    assert refused.value.epoch == owner.epoch
    assert await append(store, owner) == 1
    assert not owner.lost.is_set()


async def test_fenced_both(store: Store) -> None:
    """A takeover refuses the old owner only."""
    old = await store.acquire("s")
    await old.release()
    new = await store.acquire("s")
    for _ in range(3):
        with pytest.raises(FencedError):
            await append(store, old)
        await append(store, new)
    assert await seqs(store, "s") == [1, 2, 3]


async def test_one_refused_batch_fails_alone_in_its_group(store: Store) -> None:
    leases = [await store.acquire(f"s{i}") for i in range(5)]
    # Submitted in one turn of the event loop: they make one group.
    outcomes = await asyncio.gather(
        *(
            store.append(Append(held.name, rows(held, i // 4, 1), i // 4, held))
            for i, held in enumerate(leases)
        ),
        store.append(Append("s0", rows(leases[0], 1, 1), 1, leases[0])),
        return_exceptions=True,
    )
    assert outcomes[:4] == [1, 1, 1, 1]
    assert isinstance(outcomes[4], ConflictError)
    assert outcomes[5] == 2


async def test_a_batch_that_cannot_be_stored_at_all_fails_alone_in_its_group(store: Store) -> None:
    leases = [await store.acquire(f"s{i}") for i in range(3)]
    unstorable = rows(leases[1], 0, 1)[0]._replace(turn="\ud800")
    batches = [rows(leases[0], 0, 1), (unstorable,), rows(leases[2], 0, 1)]
    outcomes = await asyncio.gather(
        *(
            store.append(Append(held.name, batch, 0, held))
            for held, batch in zip(leases, batches, strict=True)
        ),
        return_exceptions=True,
    )
    assert [outcomes[0], outcomes[2]] == [1, 1]
    assert isinstance(outcomes[1], StoreError)
    assert await seqs(store, "s1") == []
    assert await append(store, leases[1]) == 1


async def test_settling_what_is_not_in_the_inbox_stores_nothing(store: Store) -> None:
    await admit(store, "s", "r")
    lease = await store.acquire("s")
    with pytest.raises(StoreError):
        await append(store, lease, settle=("r", "unknown"))
    assert await seqs(store, "s") == []
    assert await append(store, lease, settle=("r",)) == 1
    with pytest.raises(StoreError):
        await append(store, lease, settle=("r",))


async def test_a_settlement_is_stored_with_its_records_or_not_at_all(store: Store) -> None:
    await admit(store, "s", "r")
    lease = await store.acquire("s")
    conflicting = Append("s", rows(lease, 5, 1), 5, lease, (Settlement("r", 6),))
    with pytest.raises(ConflictError):
        await store.append(conflicting)
    assert [e.request_id for e in await store.pending("s")] == ["r"]


async def test_a_waiter_hears_of_appends_and_admissions_to_its_session_only(store: Store) -> None:
    lease = await store.acquire("s")
    other = await store.acquire("other")
    with store.changes("s") as mine, store.changes() as any_:
        mine.clear()
        any_.clear()
        await append(store, other)
        await eventually(any_)
        assert not mine.is_set()
        await append(store, lease)
        await eventually(mine)
        mine.clear()
        await admit(store, "s", "r")
        await eventually(mine)


async def test_a_waiter_hears_of_the_stores_own_writes_once(store: Store) -> None:
    lease = await store.acquire("s")
    with store.changes("s") as changed, store.changes("unrelated") as unrelated:
        for _ in range(3):
            changed.clear()
            await append(store, lease)
            await eventually(changed)
        changed.clear()
        # Whatever comes through the bell, comes before the answer of the next process that writes.
        second = await open_store(store.url)
        await admit(second, "unrelated", "r")
        await eventually(unrelated)
        assert not changed.is_set()
        await second.close()


async def test_a_waiter_wakes_when_the_store_is_closed(url: str) -> None:
    store = await open_store(url)
    with store.changes("s") as changed:
        changed.clear()
        await asyncio.gather(store.close(), store.close())
        assert changed.is_set()


async def test_a_blob_comes_back_and_a_changed_or_missing_one_is_refused(store: Store) -> None:
    data = b"\x00" * 300_000
    digest = await store.put_blob(data)
    assert await store.put_blob(data) == digest
    assert await store.get_blob(digest) == data
    with pytest.raises(IntegrityError) as refused:
        await store.get_blob("0" * 64)
    assert refused.value.seq == 0


async def test_a_closed_store_refuses_everything_clearly(url: str) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")
    await store.close()
    await store.close()
    assert lease.lost.is_set()
    for call in (store.tip("s"), store.acquire("s"), store.list(), store.put_blob(b"")):
        with pytest.raises(StoreError):
            await call


async def test_appends_of_many_callers_are_all_stored_in_their_order(store: Store) -> None:
    async def caller(name: str) -> None:
        lease = await store.acquire(name)
        for count in (1, 3, 2):
            await append(store, lease, count)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(caller(f"s{i}") for i in range(40)))
    for i in range(40):
        assert await seqs(store, f"s{i}") == [1, 2, 3, 4, 5, 6]


async def test_the_catalog_row_follows_the_journal(store: Store) -> None:
    lease = await store.acquire("s")
    listed = entry("s", 1, title="first", labels=(("k", "v"), ("é", "\U0001f642")))
    await store.append(Append("s", rows(lease, 0, 1), 0, lease, catalog=listed))
    [found] = await store.list()
    assert found.entry == listed
    assert found.owner is not None
    assert found.owner.epoch == lease.epoch
    await lease.release()
    assert (await store.list())[0].owner is None


@pytest.mark.parametrize(
    "change",
    [
        {"title": "u"},
        {"state": "idle"},
        {"agent": "b"},
        {"workspace": "/v"},
        {"created_at": 2},
        {"turns": 1},
        {"queued": 1},
        {"open_gates": 1},
        {"labels": (("k", "v"),)},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_the_catalog_row_follows_also_where_little_of_it_changes(
    store: Store, change: dict[str, object]
) -> None:
    lease = await store.acquire("s")
    # One after the other: only its place and time, then one thing more, then that goes back.
    for seq, changes in enumerate(({}, {}, change, change, {}), start=1):
        listed = entry("s", seq, **{"last_activity_at": 10 * seq, **changes})
        await store.append(Append("s", rows(lease, seq - 1, 1), seq - 1, lease, catalog=listed))
        assert await store.entry("s") == listed


@pytest.mark.parametrize("title", ["t", "another"])
async def test_a_catalog_row_that_was_put_back_is_whole_and_so_after_the_next_append(
    store: Mendable, title: str
) -> None:
    lease = await store.acquire("s")
    await store.append(Append("s", rows(lease, 0, 1), 0, lease, catalog=entry("s", 1)))
    await append(store, lease)  # and nothing of it in the catalog
    put_back = entry("s", 2, title=title)
    await store.mending.relist(put_back)
    assert await store.entry("s") == put_back
    listed = entry("s", 3)
    await store.append(Append("s", rows(lease, 2, 1), 2, lease, catalog=listed))
    assert await store.entry("s") == listed
