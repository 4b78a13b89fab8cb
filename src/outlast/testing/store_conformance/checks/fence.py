"""An owner that was replaced while it lived writes nothing any more, by no way."""

from __future__ import annotations

from outlast.errors import FencedError, LeaseHeldError, OutlastError, StoreError
from outlast.store.contract import AcquireOptions, Lease, Store
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import (
    UnsupportedError,
    begun,
    equal,
    holds,
    refused,
    soon,
    until,
)
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import (
    WAYS,
    admit,
    append,
    outcome_of,
    pending,
    read_all,
    writes,
)

SUBJECT = Subject("fence")

TAKE_OVER = AcquireOptions(take_over=True)


@SUBJECT.check
async def an_owner_is_taken_over_when_told_to_and_its_successor_goes_on(harness: Harness) -> None:
    old, new, name = await harness.open("old"), await harness.open("new"), harness.name()
    lease = await old.acquire(name)
    await append(old, lease, 2)
    try:
        successor = await new.acquire(name, TAKE_OVER)
    except LeaseHeldError as error:
        raise UnsupportedError(f"the owner cannot be taken over from here: {error.message}") from error
    holds(successor.epoch > lease.epoch, "the epoch has risen")
    with refused(StoreError, "an append of the old owner"):
        await append(old, lease)
    equal(await append(new, successor), 3, "the successor's tip")


@SUBJECT.check
async def nobody_takes_over_from_himself(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    with refused(LeaseHeldError, "a take-over from oneself"):
        await store.acquire(name, TAKE_OVER)
    equal(await append(store, lease), 1, "the owner's next tip")


async def _evicted(harness: Harness, names: list[str]) -> tuple[Store, list[Lease], Store, list[Lease]]:
    """An owner of all these sessions lives, and another one has taken them over."""
    old, new = await harness.open("old"), harness.closed_later(await harness.start_evictor())
    leases = [await old.acquire(name) for name in names]
    taken = [await new.acquire(name, TAKE_OVER) for name in names]
    return old, leases, new, taken


@SUBJECT.check
async def a_replaced_owner_is_refused_for_good_in_all_its_sessions(harness: Harness) -> None:
    names = [harness.name(), harness.name()]
    old, leases, new, taken = await _evicted(harness, names)
    for lease, successor in zip(leases, taken, strict=True):
        with refused(FencedError, "an append of the old owner"):
            await append(old, lease)
        holds(lease.lost.is_set(), "its lease is lost")
        equal(await append(new, successor), 1, "the successor's tip")
    if old.scope != "cluster":
        with refused(FencedError, "a new lease of an incarnation that was declared dead"):
            await old.acquire(harness.name())


@SUBJECT.check
async def a_replaced_owner_that_gives_its_lease_back_frees_nobody(harness: Harness) -> None:
    name = harness.name()
    _, [lease], new, [taken] = await _evicted(harness, [name])
    await lease.release()
    holder = await new.holder(name)
    equal(holder and holder.epoch, taken.epoch, "the epoch in force")
    equal(await append(new, taken), 1, "the successor's tip")


@SUBJECT.check
async def a_refusal_in_one_place_shuts_the_lease_in_all(harness: Harness) -> None:
    for first in WAYS:
        name = harness.name()
        old, [lease], new, [taken] = await _evicted(harness, [name])
        await admit(new, name, "r")
        await append(new, taken)
        ways = writes(old, lease, await new.tip(name))
        for way in (first, *WAYS):
            with refused(FencedError, f"{way} of the old owner, {first} first"):
                await ways[way]()
            equal((lease.lost.is_set(), lease.reason), (True, "fenced"), "lost, and why")
        await _nothing_of_a_stale_owner(new, name)
        equal(await append(new, taken, settle=("r",)), 2, "the successor's tip")
        holds(not taken.lost.is_set(), "the successor has lost nothing")


async def _nothing_of_a_stale_owner(store: Store, name: str) -> None:
    equal(await pending(store, name), ["r"], "what waits")
    equal(await store.snapshots(name), [], "the snapshots")
    row = await store.listed(name)
    holds(row is not None and row.entry.title != "stale", "the catalog has nothing of the stale owner")


@SUBJECT.check
async def nothing_is_written_under_a_lease_that_is_no_longer_in_force(harness: Harness) -> None:
    """By the owner himself, who has it again under another epoch: nobody told him of a loss."""
    store = await harness.open()
    for way in WAYS:
        name = harness.name()
        await admit(store, name, "r")
        stale = await store.acquire(name)
        await append(store, stale)
        await stale.release()
        owner = await store.acquire(name)
        tip = await store.tip(name)
        with refused(FencedError, f"{way} under the stale lease"):
            await writes(store, stale, tip)[way]()
        equal((stale.lost.is_set(), stale.reason), (True, "released"), "lost, and why")
        equal(await store.tip(name), tip, "the tip")
        await _nothing_of_a_stale_owner(store, name)
        equal(await append(store, owner), 2, "the owner's next tip")


@SUBJECT.check
async def a_replaced_owner_hears_of_it_without_writing(harness: Harness) -> None:
    _, [lease], _, _ = await _evicted(harness, [harness.name()])
    await soon(lease.lost.wait(), "the old owner's lease is lost")
    equal(lease.reason, "fenced", "why")


@SUBJECT.check
async def no_record_of_an_epoch_follows_one_of_a_higher_epoch(harness: Harness) -> None:
    """The old owner writes as fast as it can while it is replaced."""
    name = harness.name()
    old, new = await harness.open("old"), harness.closed_later(await harness.start_evictor())
    lease = await old.acquire(name)
    acknowledged: list[int] = []

    async def write() -> OutlastError:
        while True:
            found = await outcome_of(append(old, lease))
            if isinstance(found, FencedError):
                return found
            if isinstance(found, int):
                acknowledged.append(found)

    async def at_it() -> bool:
        return len(acknowledged) >= 5

    async with begun(write()) as writing:
        await until(at_it, "the old owner writes")
        successor = await new.acquire(name, TAKE_OVER)
        for _ in range(5):
            await append(new, successor)
        await soon(writing, "the old owner is refused")
    rows = await read_all(new, name)
    epochs = [row.epoch for row in rows]
    equal(epochs, sorted(epochs), "the epochs in the order of the journal")
    equal([row.seq for row in rows], list(range(1, len(rows) + 1)), "the journal")
    equal(epochs.count(successor.epoch), 5, "records of the successor")
    of_old = epochs.count(lease.epoch)
    equal(acknowledged, list(range(1, of_old + 1)), "what the old owner was told, and what is there of it")
