"""Whoever follows a journal gets what is there, a marker, then what comes; and the doorbell wakes whoever
waits, in whichever process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from outlast.errors import OutlastError
from outlast.journal import CaughtUp, follow
from outlast.records.envelope import Record
from outlast.store.contract import Store
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import begun, equal, holds, soon
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import admit, append, pending

SUBJECT = Subject("following")


async def _until_record(followed: AsyncIterator[Record | CaughtUp], last: int) -> list[int | str]:
    """What is given up to the record `last` and the marker; the marker as `caught up at N`."""
    given: list[int | str] = []
    marked = False
    async for item in followed:
        marked = marked or isinstance(item, CaughtUp)
        given.append(item.seq if isinstance(item, Record) else f"caught up at {item.seq}")
        if marked and max((seq for seq in given if isinstance(seq, int)), default=0) >= last:
            return given
    return given


@SUBJECT.check
async def a_follower_gets_history_a_marker_and_what_comes(harness: Harness) -> None:
    writer, reader, name = await harness.open(), await harness.open(), harness.name()
    lease = await writer.acquire(name)
    await append(writer, lease, 3)
    followed = follow(reader, name)
    given = await soon(_until_record(followed, 3), "the history")
    equal(given, [1, 2, 3, "caught up at 3"], "the history")
    for count, wanted in ((2, [4, 5]), (1, [6])):
        async with begun(_next_records(followed, count)) as following:
            await append(writer, lease, count)
            equal(await soon(following, "what comes"), wanted, "what comes")


async def _next_records(followed: AsyncIterator[Record | CaughtUp], count: int) -> list[int]:
    return [(await anext(followed)).seq for _ in range(count)]


@SUBJECT.check
async def a_follower_goes_on_from_a_cursor(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    await append(store, lease, 5)
    given = await soon(_until_record(follow(store, name, 3), 5), "the rest")
    equal(given, [4, 5, "caught up at 5"], "what is given after record 3")
    given = await soon(_until_record(follow(store, name, 5), 0), "the marker")
    equal(given, ["caught up at 5"], "what is given after the last record")


@SUBJECT.check
async def followers_miss_and_repeat_nothing_while_owners_write_and_change(harness: Harness) -> None:
    name, total = harness.name(), 60
    readers = [await harness.open() for _ in range(2)]
    following = [asyncio.create_task(_until_record(follow(reader, name), total)) for reader in readers * 2]

    async def write() -> None:
        written = 0
        while written < total:
            owner = await harness.open()
            lease = await owner.acquire(name)
            for count in (1, 3, 1, 5):
                written = await append(owner, lease, count)
            await owner.close()

    await soon(asyncio.gather(write(), *following), f"{total} records are followed")
    for task in following:
        seqs = [item for item in task.result() if isinstance(item, int)]
        equal(seqs, list(range(1, len(seqs) + 1)), "what a follower was given")
        equal(sum(isinstance(item, str) for item in task.result()), 1, "markers")


@SUBJECT.check
async def many_followers_of_many_writers_each_get_their_own_journal(harness: Harness) -> None:
    writers = [await harness.open() for _ in range(2)]
    reader = await harness.open()
    names = [harness.name() for _ in range(8)]
    following = [asyncio.create_task(_until_record(follow(reader, name), 12)) for name in names]

    async def write(number: int, name: str) -> None:
        owner = writers[number % 2]
        lease = await owner.acquire(name)
        for _ in range(6):
            await append(owner, lease, 2)

    writing = (write(number, name) for number, name in enumerate(names))
    await soon(asyncio.gather(*writing, *following), "twelve records of each journal")
    for task in following:
        given = [item for item in task.result() if isinstance(item, int)]
        equal(given, list(range(1, 13)), "what a follower was given")


async def _rings(store: Store, name: str, event: asyncio.Event, what: str) -> None:
    await soon(event.wait(), f"the doorbell of {name} rings for {what}")
    event.clear()
    await store.tip(name)


@SUBJECT.check
async def the_doorbell_rings_for_journal_inbox_and_lease_of_its_session(harness: Harness) -> None:
    writer, waiter, name = await harness.open(), await harness.open(), harness.name()
    for store in (waiter, writer):
        lease = await writer.acquire(name)
        with store.changes(name) as changed:
            await store.tip(name)
            changed.clear()
            await append(writer, lease)
            await _rings(store, name, changed, "an append")
            await admit(writer, name, f"r-{store.incarnation}")
            await _rings(store, name, changed, "an admission")
            holds(await pending(store, name), "what rang is there")
        await lease.release()


@SUBJECT.check
async def whoever_listens_to_all_sessions_hears_each_and_others_are_left_in_peace(harness: Harness) -> None:
    store, mine, other = await harness.open(), harness.name("mine"), harness.name("other")
    my_lease, other_lease = await store.acquire(mine), await store.acquire(other)
    with store.changes(mine) as changed, store.changes() as any_change:
        await store.tip(mine)
        changed.clear()
        any_change.clear()
        await append(store, other_lease)
        await soon(any_change.wait(), "a change of any session is heard")
        holds(not changed.is_set(), "a change of another session rings nowhere else")
        any_change.clear()
        await append(store, my_lease)
        await soon(asyncio.gather(changed.wait(), any_change.wait()), "a change of the own one is heard")


@SUBJECT.check
async def whoever_waits_wakes_when_the_store_is_closed(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    with store.changes(name) as changed:
        await store.tip(name)
        changed.clear()
        await store.close()
        await soon(changed.wait(), "the waiter wakes")
    try:
        await store.tip(name)
    except OutlastError:
        return
    holds(False, "a closed store answers nothing")
