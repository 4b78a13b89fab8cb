"""What a store says of itself, and that it refuses clearly what it cannot do: nothing is stored then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from outlast.errors import StoreBusyError, StoreError, StoreFullError
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import equal, holds, refused
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import admit, append, pending, seqs

SUBJECT = Subject("life")


@SUBJECT.check
async def incarnations_of_one_store_share_its_id_and_have_their_own(harness: Harness) -> None:
    one, two = await harness.open("the first"), await harness.open("the second")
    equal((one.store_id, one.url, one.scope), (two.store_id, two.url, two.scope), "the store")
    holds(one.incarnation != two.incarnation, "each incarnation has an id of its own")
    equal((one.label, two.label), ("the first", "the second"), "the labels")
    equal((one.read_only, two.read_only), (False, False), "read-only")
    holds(await asyncio.to_thread(one.folder.is_dir), "its folder on this machine is there")


@SUBJECT.check
async def a_closed_store_refuses_everything(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    await store.close()
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "tip": lambda: store.tip(name),
        "read": lambda: store.read(name, 0),
        "acquire": lambda: store.acquire(name),
        "admit": lambda: admit(store, name, "r"),
        "pending": lambda: store.pending(name),
        "list": store.list,
        "find": lambda: store.find(name),
        "put_blob": lambda: store.put_blob(b""),
        "holder": lambda: store.holder(name),
        "snapshots": lambda: store.snapshots(name),
        "collect_blobs": store.collect_blobs,
        "append": lambda: append(store, lease),
    }
    for what, call in calls.items():
        with refused(StoreError, what):
            await call()
    await store.close()


@SUBJECT.check
async def a_read_only_store_reads_and_refuses_every_write(harness: Harness) -> None:
    writer, name = await harness.open(), harness.name()
    await admit(writer, name, "r")
    lease = await writer.acquire(name)
    await append(writer, lease, 2)
    reader = harness.closed_later(await harness.start_read_only())
    holds(reader.read_only, "it says so")
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "acquire": lambda: reader.acquire(harness.name()),
        "admit": lambda: admit(reader, name, "r2"),
        "append": lambda: append(reader, lease),
        "put_blob": lambda: reader.put_blob(b"x"),
        "collect_blobs": reader.collect_blobs,
    }
    for what, write in writes.items():
        with refused(StoreError, what):
            await write()
    equal((await seqs(reader, name), await pending(reader, name)), ([1, 2], ["r"]), "the journal, what waits")
    holds(await reader.listed(name) is not None, "it is listed")


@SUBJECT.check
async def without_space_nothing_is_stored_and_with_space_it_goes_on(harness: Harness) -> None:
    store, other, name = await harness.open(), await harness.open(), harness.name()
    await admit(store, name, "r")
    lease = await store.acquire(name)
    await append(store, lease)
    async with harness.without_space(store):
        with refused(StoreFullError, "an append"):
            await append(store, lease, 20, size=4000, settle=("r",))
        with refused(StoreFullError, "an admission"):
            await admit(store, name, "r2", b"x" * 100_000)
    equal((await seqs(other, name), await pending(other, name)), ([1], ["r"]), "the journal, what waits")
    holds(not lease.lost.is_set(), "a full disk alone loses no lease")
    equal(await append(store, lease, 20, size=4000, settle=("r",)), 21, "the tip once there is space")
    holds((await admit(store, name, "r2", b"x" * 100_000)).created, "the input is taken")


@SUBJECT.check
async def a_writer_that_waits_in_vain_has_stored_nothing(harness: Harness) -> None:
    other, name = await harness.open(), harness.name()
    await admit(other, name, "r")
    await append(other, await other.acquire(name), 2)
    async with harness.busy() as store:
        with refused(StoreBusyError, "a lease"):
            await store.acquire(harness.name())
        with refused(StoreBusyError, "an admission"):
            await admit(store, name, "r2")
        equal(await seqs(store, name), [1, 2], "the journal, which can be read")
    equal(await pending(other, name), ["r"], "what waits")
