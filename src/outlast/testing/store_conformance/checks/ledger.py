"""Appends are compare-and-set on the tip, batches are atomic, and reading gives back what was stored."""

from __future__ import annotations

import asyncio

from outlast.errors import ConflictError, StoreError
from outlast.store.contract import PAGE_BYTES, Append, Tip
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import equal, holds, refused, soon
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import (
    MIB,
    admit,
    append,
    batch,
    odd_row,
    outcome_of,
    pending,
    read_all,
    rows,
    seqs,
)

SUBJECT = Subject("ledger")

EMPTY = Tip(0, 0, b"")


@SUBJECT.check
async def a_journal_that_was_never_written_is_empty(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    equal(await store.tip(name), EMPTY, "the tip")
    equal(await store.read(name, 0), [], "what is read")
    await (await store.acquire(name)).release()
    equal(await store.tip(name), EMPTY, "the tip of what was only owned")


@SUBJECT.check
async def every_byte_comes_back_also_in_another_incarnation(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    lease = await one.acquire(name)
    every_byte = bytes(range(256))
    made = [odd_row(name, lease, 1, b"", every_byte, "t\r\n\0\U0001f642")]
    for body, text in ((b"", None), (b"\x00", ""), (b'{"nul":"\x00"}', "\u2028"), (every_byte * 40, "é")):
        made.append(odd_row(name, lease, len(made) + 1, made[-1].chain, body, text))
    equal(await one.append(Append(name, tuple(made), 0, lease)), 5, "the new tip")
    for store in (one, two):
        equal(await store.read(name, 0), made, "the rows")
        equal(await store.tip(name), Tip(5, lease.epoch, made[-1].chain), "the tip")


@SUBJECT.check
async def a_body_of_a_mebibyte_comes_back_whole(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    lease = await one.acquire(name)
    made = rows(lease, EMPTY, 2, size=MIB)
    await one.append(Append(name, made, 0, lease))
    equal(await read_all(two, name), list(made), "the rows")


@SUBJECT.check
async def an_append_at_another_tip_is_refused_and_the_tip_is_named(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    await append(store, lease, 3)
    first, *_ = await store.read(name, 0)
    for tip in (EMPTY, Tip(1, lease.epoch, first.chain), Tip(9, lease.epoch, b"c" * 16)):
        with refused(ConflictError, f"an append at {tip.seq}") as refusal:
            await store.append(batch(lease, tip))
        equal(refusal.error.tip, 3, "the tip that the refusal names")
    equal(await seqs(store, name), [1, 2, 3], "the journal")
    holds(not lease.lost.is_set(), "a conflict alone loses no lease")
    equal(await append(store, lease), 4, "the next tip")


@SUBJECT.check
async def of_many_batches_for_one_tip_one_is_stored(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    batches = [batch(lease, EMPTY, 2) for _ in range(8)]
    outcomes = await asyncio.gather(*(outcome_of(store.append(each)) for each in batches))
    stored = [number for number, outcome in enumerate(outcomes) if outcome == 2]
    equal(len(stored), 1, f"batches that were stored, of {outcomes}")
    equal([type(outcome) for outcome in outcomes].count(ConflictError), 7, "conflicts")
    equal(await read_all(store, name), list(batches[stored[0]].rows), "the journal")


@SUBJECT.check
async def a_batch_that_does_not_follow_gaplessly_is_refused_whole(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    one, two, three = rows(lease, EMPTY, 3)
    wrong = {
        "a gap": (one, three),
        "a repetition": (one, two, two),
        "another epoch": (one, two._replace(epoch=lease.epoch + 1)),
        "a beginning that is not the next": (two, three),
        "no record at all": (),
    }
    for what, made in wrong.items():
        with refused(StoreError, what):
            await store.append(Append(name, made, 0, lease))
        equal(await seqs(store, name), [], f"the journal after {what}")
    equal(await append(store, lease), 1, "the next tip")


@SUBJECT.check
async def a_batch_is_stored_with_its_settlements_and_catalog_or_not_at_all(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await admit(store, name, "r")
    lease = await store.acquire(name)
    with refused(StoreError, "a batch that settles what is not waiting"):
        await append(store, lease, 2, settle=("r", "never admitted"))
    equal(await seqs(store, name), [], "the journal")
    equal(await pending(store, name), ["r"], "what waits")
    holds(await store.settled(name, "r") is None, "nothing was settled")


@SUBJECT.check
async def one_refused_batch_leaves_those_of_other_sessions_alone(harness: Harness) -> None:
    store = await harness.open()
    leases = [await store.acquire(harness.name()) for _ in range(5)]
    tips = [EMPTY] * 4 + [Tip(1, leases[4].epoch, b"c" * 16)]
    outcomes = await asyncio.gather(
        *(outcome_of(store.append(batch(lease, tip))) for lease, tip in zip(leases, tips, strict=True))
    )
    equal(outcomes[:4], [1, 1, 1, 1], "the tips of the others")
    holds(isinstance(outcomes[4], ConflictError), f"the wrong one is a conflict: {outcomes[4]!r}")


@SUBJECT.check
async def many_sessions_appended_to_at_once_keep_their_own_order(harness: Harness) -> None:
    one, two = await harness.open(), await harness.open()
    names = [harness.name() for _ in range(40)]

    async def caller(number: int, name: str) -> None:
        store = (one, two)[number % 2]
        lease = await store.acquire(name)
        for count in (1, 3, 2):
            await append(store, lease, count)

    callers = (caller(number, name) for number, name in enumerate(names))
    await soon(asyncio.gather(*callers), "six records in each of 40 sessions")
    for name in names:
        equal(await seqs(two, name), [1, 2, 3, 4, 5, 6], f"the journal of {name}")


@SUBJECT.check
async def a_page_holds_what_follows_and_no_more_than_its_limit(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await append(store, await store.acquire(name), 25)
    for after, limit, wanted in ((7, 10, range(8, 18)), (20, 10, range(21, 26)), (25, 10, ()), (0, 1, (1,))):
        page = [row.seq for row in await store.read(name, after, limit)]
        equal(page, list(wanted), f"the page of {limit} after {after}")
    equal(await store.read(name, 99), [], "what is read beyond the end")


@SUBJECT.check
async def a_long_journal_is_read_page_by_page_without_a_gap(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    for _ in range(6):
        await append(store, lease, 1000)
    after = 0
    while page := await store.read(name, after):
        holds(len(page) <= 1000, "a page has no more than its limit")
        equal([row.seq for row in page], list(range(after + 1, after + len(page) + 1)), "the page")
        after = page[-1].seq
    equal(after, 6000, "the last record that was read")


@SUBJECT.check
async def a_page_of_large_records_ends_early_and_reading_on_finds_all(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    for _ in range(4):
        await append(store, lease, 6, size=MIB)
    found = 0
    while page := await store.read(name, found):
        equal([row.seq for row in page], list(range(found + 1, found + len(page) + 1)), "the page")
        found += len(page)
        size = sum(len(row.body) for row in page[:-1])
        holds(size <= PAGE_BYTES, f"a page ends with the record that passes {PAGE_BYTES} bytes: {size}")
    equal(found, 24, "the records that were read")
