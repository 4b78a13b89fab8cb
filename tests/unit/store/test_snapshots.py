"""Snapshots in the store: the newest two, fenced as appends are, and in nobody's way."""

from __future__ import annotations

import asyncio

import apsw
import pytest
from tests.support.stores import append

from outlast.errors import FencedError, StoreFullError
from outlast.store.contract import Lease, Snapshot, Store
from outlast.store.url import database_path, open_store


def snapshot(seq: int, body: bytes = b"{}", name: str = "s") -> Snapshot:
    return Snapshot(name, seq, b"c" * 16, 1, b"d" * 32, body)


async def kept(store: Store, name: str = "s") -> list[int]:
    return [each.seq for each in await store.snapshots(name)]


async def test_the_newest_two_are_kept_and_come_newest_first(store: Store) -> None:
    lease = await store.acquire("s")
    assert await kept(store) == []
    for seq in (3, 10, 12, 12, 40):
        await store.put_snapshot(snapshot(seq, b"%d" % seq), lease)
    assert await store.snapshots("s") == [snapshot(40, b"40"), snapshot(12, b"12")]
    assert await kept(store, "nobody") == []


async def test_one_that_is_ahead_of_the_owners_own_goes(store: Store) -> None:
    """The journal has been cut since it was written: it would push the owner's own out for ever."""
    lease = await store.acquire("s")
    for seq in (10, 50, 60, 20):
        await store.put_snapshot(snapshot(seq), lease)
    assert await kept(store) == [20]
    await store.put_snapshot(snapshot(30), lease)
    assert await kept(store) == [30, 20]


async def test_sessions_do_not_touch_each_others(store: Store) -> None:
    for name in ("a", "b"):
        lease = await store.acquire(name)
        for seq in (1, 2, 3):
            await store.put_snapshot(snapshot(seq, name=name), lease)
    assert await kept(store, "a") == await kept(store, "b") == [3, 2]


async def test_a_replaced_owner_writes_none_and_its_lease_is_shut_for_appends_too(store: Store) -> None:
    old = await store.acquire("s")
    await append(store, old)
    await old.release()
    new = await store.acquire("s")
    assert not old.lost.is_set()  # as for an owner that was stopped meanwhile
    with pytest.raises(FencedError):
        await store.put_snapshot(snapshot(1), old)
    assert await kept(store) == []
    await store.put_snapshot(snapshot(1), new)
    assert await kept(store) == [1]


async def test_the_first_refusal_shuts_the_lease(url: str) -> None:
    """Two stores over one file, as two processes have them; the lease is taken away behind the first one's
    back."""
    store = await open_store(url)
    lease = await store.acquire("s")
    connection = apsw.Connection(str(database_path(url, {})))
    connection.execute("UPDATE lease SET epoch = epoch + 1")
    connection.close()
    with pytest.raises(FencedError):
        await store.put_snapshot(snapshot(1), lease)
    assert lease.lost.is_set()
    assert lease.reason == "fenced"
    await store.close()


async def test_a_snapshot_of_another_session_is_refused(store: Store) -> None:
    lease = await store.acquire("s")
    await store.acquire("other")
    with pytest.raises(FencedError):
        await store.put_snapshot(snapshot(1, name="other"), lease)
    assert await kept(store, "other") == []


async def test_one_without_space_takes_no_append_with_it(store: Store) -> None:
    """Written in one group: the append fits, the snapshot does not."""
    lease: Lease = await store.acquire("s")
    await append(store, lease)
    engine = store._parts.engine  # type: ignore[attr-defined]
    connection = engine._connection
    connection.pragma("max_page_count", connection.pragma("page_count") + 4)
    large = store.put_snapshot(snapshot(1, b"x" * 1_000_000), lease)
    outcomes = await asyncio.gather(large, append(store, lease), return_exceptions=True)
    assert isinstance(outcomes[0], StoreFullError)
    assert outcomes[1] == 2
    assert await kept(store) == []
    assert not lease.lost.is_set()
