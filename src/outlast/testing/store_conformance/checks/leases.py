"""One owner at a time, known by name; an epoch that only rises; a dead owner owns nothing."""

from __future__ import annotations

import asyncio

from outlast.errors import FencedError, LeaseHeldError
from outlast.store.contract import AcquireOptions, Lease, Store
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import PATIENCE, begun, equal, holds, refused, soon
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import admit, append, outcome_of, seqs

SUBJECT = Subject("leases")


@SUBJECT.check
async def a_lease_is_held_once_and_the_refusal_names_its_holder(harness: Harness) -> None:
    one, two, name = await harness.open("the first"), await harness.open("the second"), harness.name()
    lease = await one.acquire(name)
    for store in (one, two):
        with refused(LeaseHeldError, "a second owner") as refusal:
            await store.acquire(name)
        equal((refusal.error.holder, refusal.error.epoch), (one.label, lease.epoch), "who holds it")
        holder = await store.holder(name)
        holds(holder is not None, "there is a holder")
        if holder is not None:
            found = (holder.incarnation, holder.epoch, holder.label)
            equal(found, (one.incarnation, lease.epoch, one.label), "the holder")
    holds(await two.holder(harness.name()) is None, "a name that was never owned has no holder")


@SUBJECT.check
async def epochs_rise_over_names_releases_closings_and_deaths(harness: Harness) -> None:
    epochs: list[int] = []
    names = [harness.name(), harness.name(), harness.name()]
    for number in range(4):
        store = await harness.open()
        for name in names:
            epochs.append((await store.acquire(name)).epoch)
        lease = await store.acquire(harness.name())
        await lease.release()
        epochs.append(lease.epoch)
        if number % 2 == 0:
            await store.close()
        else:
            await harness.end_somehow(store)
    equal(epochs, sorted(set(epochs)), "the epochs, each above all before it")


@SUBJECT.check
async def of_two_that_come_at_once_one_owns_and_the_other_names_it(harness: Harness) -> None:
    one, two = await harness.open("the first"), await harness.open("the second")
    for _ in range(20):
        name = harness.name()
        outcomes = await asyncio.gather(*(outcome_of(store.acquire(name)) for store in (one, two)))
        refusals = [outcome for outcome in outcomes if isinstance(outcome, LeaseHeldError)]
        equal(len(refusals), 1, f"refusals among {outcomes}")
        winner = one if outcomes[1] is refusals[0] else two
        equal(refusals[0].holder, winner.label, "who is named")


@SUBJECT.check
async def a_stale_release_frees_nobody(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    stale = await one.acquire(name)
    await stale.release()
    owner = await two.acquire(name)
    await stale.release()
    holder = await one.holder(name)
    equal(holder and holder.epoch, owner.epoch, "the epoch in force")
    equal(await append(two, owner), 1, "the owner's next tip")


@SUBJECT.check
async def after_a_release_nothing_is_written_under_it_and_nothing_was_lost(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    await append(store, lease)
    await lease.release()
    equal((lease.lost.is_set(), lease.reason), (False, "released"), "lost, and why")
    holds(await store.holder(name) is None, "nobody holds it")
    with refused(FencedError, "an append under a lease that was given back"):
        await append(store, lease)
    equal(await seqs(store, name), [1], "the journal")


@SUBJECT.check
async def whoever_waits_gets_the_lease_when_it_is_given_back(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    lease = await one.acquire(name)
    async with begun(two.acquire(name, AcquireOptions(wait=PATIENCE))) as waiting:
        await _until_refused(two, name)
        await lease.release()
        holds((await soon(waiting, "the waiter owns it")).epoch > lease.epoch, "the epoch has risen")


@SUBJECT.check
async def whoever_waits_gives_up_at_the_deadline_and_evicts_nobody(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    lease = await one.acquire(name)
    with refused(LeaseHeldError, "a lease that is not given back"):
        await two.acquire(name, AcquireOptions(wait=0.3))
    equal(await append(one, lease), 1, "the owner's next tip")


@SUBJECT.check
async def an_acquire_that_is_called_off_keeps_nobody_out(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    taking = asyncio.create_task(store.acquire(name))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait((taking,))
    if not taking.cancelled():  # it was quicker
        await taking.result().release()
    holds((await store.acquire(name)).name == name, "it can be owned")


@SUBJECT.check
async def an_acquire_that_is_called_off_again_and_again_keeps_nobody_out(harness: Harness) -> None:
    store = await harness.open()
    for times in range(2, 6):
        name = harness.name()
        taking = asyncio.create_task(store.acquire(name))
        for _ in range(times):
            await asyncio.sleep(0)
            taking.cancel()
        await asyncio.wait((taking,))
        if not taking.cancelled():  # it was quicker
            await taking.result().release()
        # What it had under way may still be given back.
        lease = await store.acquire(name, AcquireOptions(wait=PATIENCE))
        holds(lease.name == name, "it can be owned")


@SUBJECT.check
async def a_closed_incarnation_frees_all_that_it_owned(harness: Harness) -> None:
    one, two = await harness.open(), await harness.open()
    names = [harness.name() for _ in range(3)]
    leases = [await one.acquire(name) for name in names]
    await one.close()
    equal([(lease.lost.is_set(), lease.reason) for lease in leases], [(True, "closed")] * 3, "lost, and why")
    for name in names:
        holds(await two.holder(name) is None, "nobody holds it")
        await two.acquire(name)


@SUBJECT.check
async def the_first_reason_of_a_loss_stays(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    equal((lease.lost.is_set(), lease.reason), (False, None), "lost, and why, at first")
    lease.lose("agent_taken")
    lease.lose("fenced")
    equal((lease.lost.is_set(), lease.reason), (True, "agent_taken"), "lost, and why")


@SUBJECT.check
async def all_that_a_dead_incarnation_owned_is_free(harness: Harness) -> None:
    dying, store = await harness.open("dying"), await harness.open()
    names = [harness.name() for _ in range(3)]
    leases: list[Lease] = []
    for name in names:
        await admit(dying, name, "r")
        leases.append(await dying.acquire(name))
        await append(dying, leases[-1], 2)
    await harness.kill(dying)
    for name, lease in zip(names, leases, strict=True):
        holds(await store.holder(name) is None, "nobody holds it")
        row = await store.listed(name)
        holds(row is not None and row.owner is None, "the listing shows no owner")
        successor = await store.acquire(name)
        holds(successor.epoch > lease.epoch, "the epoch has risen")
        equal(await append(store, successor, settle=("r",)), 3, "the successor's tip")


@SUBJECT.check
async def whoever_waits_succeeds_an_owner_that_dies(harness: Harness) -> None:
    dying, store, name = await harness.open("dying"), await harness.open(), harness.name()
    lease = await dying.acquire(name)
    async with begun(store.acquire(name, AcquireOptions(wait=PATIENCE))) as waiting:
        await _until_refused(store, name)
        await harness.kill(dying)
        holds((await soon(waiting, "the waiter owns it")).epoch > lease.epoch, "the epoch has risen")


@SUBJECT.check
async def what_was_acknowledged_survives_its_writer(harness: Harness) -> None:
    for rounds in (3, 11, 23):
        name, store = harness.name(), await harness.open()
        acknowledged = await _written_until_killed(harness, name, rounds)
        found = await seqs(store, name)
        holds(len(found) in (acknowledged, acknowledged + 1), f"{acknowledged} or one more: {len(found)}")
        equal(await append(store, await store.acquire(name)), len(found) + 1, "the successor's tip")


async def _until_refused(store: Store, name: str) -> None:
    """Whoever began to acquire `name` in this store before was refused by now, and waits: a store serves its
    callers in order."""
    await asyncio.sleep(0)
    with refused(LeaseHeldError, "a lease that another one holds"):
        await store.acquire(name)


async def _written_until_killed(harness: Harness, name: str, rounds: int) -> int:
    """The last record that was acknowledged to an owner that was killed while it wrote, after `rounds`."""
    dying = await harness.open("dying")
    lease = await dying.acquire(name)
    acknowledged, enough = 0, asyncio.Event()

    async def write() -> None:
        nonlocal acknowledged
        while True:
            acknowledged = await append(dying, lease)
            if acknowledged >= rounds:
                enough.set()

    async with begun(write()) as writing:
        await soon(enough.wait(), f"{rounds} appends")
        await harness.kill(dying)
        await asyncio.wait((writing,))
    return acknowledged
