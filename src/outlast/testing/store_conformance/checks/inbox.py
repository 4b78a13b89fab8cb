"""The inbox takes each request once, keeps it until it is settled, and answers for it ever after."""

from __future__ import annotations

import asyncio

from outlast.errors import ConflictError, RequestCollisionError, SessionNotFoundError, StoreError
from outlast.store.contract import Admission, Admitted, EntryKind, Store, Tip
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.checks.ledger import EMPTY
from outlast.testing.store_conformance.expect import equal, holds, refused, soon
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import (
    MIB,
    admit,
    append,
    batch,
    entry,
    outcome_of,
    pending,
    read_all,
)

SUBJECT = Subject("inbox")


@SUBJECT.check
async def a_request_that_comes_many_times_at_once_is_one_entry(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    answers = await asyncio.gather(*(admit(store, name, "r") for store in (one, two) * 4))
    equal(sorted(answer.created for answer in answers), [False] * 7 + [True], "created")
    equal([answer.settled for answer in answers], [None] * 8, "settled")
    equal(await pending(one, name), ["r"], "what waits")


@SUBJECT.check
async def the_same_request_with_another_body_or_kind_is_a_collision(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    await admit(one, name, "r", b"one")
    for body, kind in ((b"two", "input"), (b"one", "cancel"), (b"", "input"), (b"one\0", "input")):
        with refused(RequestCollisionError, f"{body!r} as {kind}"):
            await admit(two, name, "r", body, kind)  # type: ignore[arg-type]
    [kept] = await two.pending(name)
    equal((kept.body, kept.kind), (b"one", "input"), "what waits")
    holds((await admit(two, harness.name(), "r", b"two")).created, "another session has requests of its own")


@SUBJECT.check
async def an_entry_comes_back_as_it_was_given(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    bodies = [b"", bytes(range(256)), b"\x00" * 10, b"x" * MIB]
    for number, body in enumerate(bodies):
        await admit(one, name, f"r{number}", body)
    found = await two.pending(name)
    equal([waiting.body for waiting in found], bodies, "the bodies")
    equal(
        [(w.request_id, w.kind, w.actor) for w in found[:2]],
        [("r0", "input", "me"), ("r1", "input", "me")],
        "",
    )
    holds(all(waiting.admitted_at > 0 for waiting in found), "each says when it was admitted")


@SUBJECT.check
async def what_opens_a_session_is_kept_with_its_first_entry_only(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await admit(store, name, "r")
    second = Admission(name, "r2", "input", b"", opening=entry(name, title="other"), opening_body=b"[]")
    await store.admit(second)
    first, later = await store.pending(name)
    equal((first.opening, first.opening_body), (entry(name), b"{}"), "the opening of the first")
    equal((later.opening, later.opening_body), (None, None), "the opening of the second")
    row = await store.listed(name)
    equal(row and (row.entry, row.pending, row.owner), (entry(name), 2, None), "the catalog's row")


@SUBJECT.check
async def a_command_to_a_session_that_is_not_there_is_refused(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await (await store.acquire(name)).release()
    with refused(SessionNotFoundError, "a cancel for nobody"):
        await store.admit(Admission(name, "r", "cancel", b""))
    equal(await store.pending(name), [], "what waits")
    await admit(store, name, "r")
    holds((await store.admit(Admission(name, "r2", "cancel", b""))).created, "it is taken once it is there")


@SUBJECT.check
async def all_that_is_unsettled_waits_in_the_order_of_its_admission(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    kinds: list[EntryKind] = ["input", "cancel", "input", "kill", "answer", "retry", "skip", "hold"]
    kinds += ["adopt", "close"]
    for number, kind in enumerate(kinds):
        await admit((one, two)[number % 2], name, f"{9 - number}", kind=kind)
    lease = await one.acquire(name)
    await append(one, lease, settle=("8", "5"))
    found = await two.pending(name)
    equal([waiting.request_id for waiting in found], list("97643210"), "what waits")
    orders = [waiting.order for waiting in found]
    equal(orders, sorted(set(orders)), "their places")


@SUBJECT.check
async def an_entry_that_commits_late_is_never_skipped(harness: Harness) -> None:
    """While many admit at once, what was once seen stays until it is settled, and everything is seen in the
    end: nobody reads an inbox `after` a place."""
    one, two, name = await harness.open(), await harness.open(), harness.name()
    lease = await one.acquire(name)
    total, settled = 60, set[str]()

    async def admit_all(store: Store, prefix: str) -> None:
        for number in range(total // 2):
            await admit(store, name, f"{prefix}{number}")

    admitting = asyncio.gather(admit_all(one, "a"), admit_all(two, "b"))
    seen: set[str] = set()

    async def settle_all() -> None:
        while len(settled) < total:
            found = await pending(one, name)
            holds(seen - settled <= set(found), "what was seen and is not settled still waits")
            holds(not settled & set(found), "what is settled waits no more")
            seen.update(found)
            if found:
                # Not the first: what comes later must not hide what came before.
                await append(one, lease, settle=found[-1:])
                settled.add(found[-1])
            await asyncio.sleep(0)

    await soon(asyncio.gather(admitting, settle_all()), f"{total} entries are settled")
    equal(await pending(two, name), [], "what waits in the end")


@SUBJECT.check
async def a_settled_request_is_answered_by_the_record_that_settled_it(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await admit(store, name, "r", b"one")
    lease = await store.acquire(name)
    await append(store, lease, 2)
    equal(await append(store, lease, settle=("r",)), 3, "the settling record")
    await append(store, lease, 2)
    await store.close()
    again = await harness.open()
    answer = await admit(again, name, "r", b"one")
    equal((answer.created, answer.settled and answer.settled.seq), (False, 3), "created, settled by")
    equal(await again.settled(name, "r"), answer.settled, "the tombstone")
    for body, kind in ((b"two", "input"), (b"one", "kill")):
        with refused(RequestCollisionError, f"{body!r} as {kind} after it was settled"):
            await admit(again, name, "r", body, kind)  # type: ignore[arg-type]
    equal(await again.pending(name), [], "what waits")
    holds(await again.settled(name, "other") is None, "what was never admitted has no tombstone")


@SUBJECT.check
async def a_request_is_settled_once_and_only_if_it_waits(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await admit(store, name, "r")
    lease = await store.acquire(name)
    for wrong in (("unknown",), ("r", "r"), ("r", "unknown")):
        with refused(StoreError, f"settling {wrong}"):
            await append(store, lease, settle=wrong)
    equal(await append(store, lease, settle=("r",)), 1, "the settling record")
    with refused(StoreError, "settling again"):
        await append(store, lease, settle=("r",))
    equal([row.seq for row in await read_all(store, name)], [1], "the journal")


@SUBJECT.check
async def a_refused_append_settles_nothing(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await admit(store, name, "r")
    lease = await store.acquire(name)
    with refused(ConflictError, "an append at another tip"):
        await store.append(batch(lease, Tip(5, lease.epoch, b"c" * 16), settle=("r",)))
    equal(await pending(store, name), ["r"], "what waits")


@SUBJECT.check
async def of_a_settlement_and_the_same_request_at_once_there_is_one_story(harness: Harness) -> None:
    """Whoever asks again while it is settled hears that it waits, or by what it was settled."""
    one, two = await harness.open(), await harness.open()
    for _ in range(10):
        name = harness.name()
        await admit(two, name, "r")
        lease = await one.acquire(name)
        tip, *answers = await asyncio.gather(
            one.append(batch(lease, EMPTY, settle=("r",))),
            *(outcome_of(admit(two, name, "r")) for _ in range(4)),
        )
        equal(tip, 1, "the settling record")
        for answer in answers:
            holds(isinstance(answer, Admitted) and not answer.created, f"it is not created again: {answer!r}")
            holds(answer.settled is None or answer.settled.seq == 1, f"settled by its record: {answer!r}")
        equal(await pending(two, name), [], "what waits")
