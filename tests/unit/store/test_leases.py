"""Leases within one process. Nothing here knows which store it is."""

from __future__ import annotations

import asyncio
import fcntl
import os

import pytest
from tests.support.stores import PATIENCE, append, in_time

from outlast.errors import FencedError, LeaseHeldError
from outlast.store.contract import AcquireOptions, Store
from outlast.store.url import open_store


async def test_a_lease_is_held_once_and_the_holder_is_named(store: Store) -> None:
    lease = await store.acquire("s")
    with pytest.raises(LeaseHeldError) as refused:
        await store.acquire("s")
    assert refused.value.epoch == lease.epoch
    assert refused.value.holder == store.label
    holder = await store.holder("s")
    assert holder is not None
    assert (holder.incarnation, holder.epoch) == (store.incarnation, lease.epoch)


async def test_epochs_rise_over_all_sessions_and_lives_of_the_store(url: str) -> None:
    epochs = []
    for _ in range(3):
        store = await open_store(url)
        for name in ("a", "b", "a2"):
            epochs.append((await store.acquire(name)).epoch)
        await store.close()
    assert epochs == sorted(set(epochs))


async def test_two_stores_in_one_process_see_each_other_as_alive(url: str) -> None:
    one, two = await open_store(url), await open_store(url)
    lease = await one.acquire("s")
    await two.acquire("other")  # gives the second store its own incarnation
    with pytest.raises(LeaseHeldError):
        await two.acquire("s")
    assert await two.holder("s") == await one.holder("s")
    with pytest.raises(LeaseHeldError) as refused:
        await two.acquire("s", AcquireOptions(take_over=True))
    assert "this process" in str(refused.value)
    await lease.release()
    await two.acquire("s")
    await one.close()
    await two.close()


async def test_a_closed_store_frees_what_it_owned(url: str) -> None:
    one, two = await open_store(url), await open_store(url)
    await one.acquire("s")
    await one.close()
    assert await two.holder("s") is None
    await two.acquire("s")
    await two.close()


async def test_a_lost_lease_knows_why(url: str) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")
    reasons = [lease.reason]
    await store.close()
    assert lease.lost.is_set()
    reasons.append(lease.reason)
    lease.lose("fenced")
    assert [*reasons, lease.reason] == [None, "closed", "closed"]  # the first one stays


async def test_a_stale_release_frees_nobody(store: Store) -> None:
    stale = await store.acquire("s")
    await stale.release()
    owner = await store.acquire("s")
    await stale.release()
    holder = await store.holder("s")
    assert holder is not None
    assert holder.epoch == owner.epoch


async def test_after_a_release_nothing_is_written_under_it_and_nothing_was_lost(store: Store) -> None:
    lease = await store.acquire("s")
    await lease.release()
    assert not lease.lost.is_set()
    with pytest.raises(FencedError):
        await append(store, lease)


async def test_a_waiter_gets_the_lease_when_it_is_given_back(store: Store) -> None:
    lease = await store.acquire("s")
    waiting = asyncio.create_task(store.acquire("s", AcquireOptions(wait=PATIENCE)))
    await asyncio.sleep(0)
    await lease.release()
    assert (await waiting).epoch > lease.epoch


async def test_a_waiter_gives_up_at_its_deadline(store: Store) -> None:
    await store.acquire("s")
    with pytest.raises(LeaseHeldError):
        await store.acquire("s", AcquireOptions(wait=0.05))


async def test_an_acquire_that_is_cancelled_on_its_way_keeps_nobody_out(store: Store) -> None:
    taking = asyncio.create_task(store.acquire("s"))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert (await store.acquire("s")).name == "s"


async def test_an_acquire_that_is_cancelled_twice_while_the_store_is_locked_keeps_nobody_out(
    store: Store,
) -> None:
    turn = os.open(store.folder / "turn", os.O_RDWR)
    fcntl.flock(turn, fcntl.LOCK_EX)
    taking = asyncio.create_task(store.acquire("s"))
    await asyncio.sleep(0)
    for _ in range(3):
        taking.cancel()
        await asyncio.sleep(0)
        assert not taking.done()  # what becomes of the lease is not known yet
    os.close(turn)
    with pytest.raises(asyncio.CancelledError):
        await in_time(taking)
    assert await store.holder("s") is None
    assert (await store.acquire("s")).name == "s"
