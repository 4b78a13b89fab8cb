"""A collection deletes the blobs that no record refers to and nobody has put for long, and no other."""

from __future__ import annotations

import asyncio

from outlast.errors import IntegrityError
from outlast.store.contract import Store
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.checks.blobs import content
from outlast.testing.store_conformance.expect import begun, equal, holds, refused, soon
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import append

SUBJECT = Subject("collection")

AGE = 10 * 86_400.0
"""Seconds without a put that make a blob old here: what is younger in a store that is used stays."""


async def _old(harness: Harness, store: Store) -> tuple[bytes, str]:
    """A blob that was put twice that long ago; its content and digest."""
    data = content(harness.name())
    digest = await store.put_blob(data)
    await harness.backdate_blob(digest, 2 * AGE)
    return data, digest


async def _gone(store: Store, digest: str) -> bool:
    try:
        await store.get_blob(digest)
    except IntegrityError:
        return True
    return False


@SUBJECT.check
async def what_is_old_and_without_a_reference_goes_and_the_rest_stays(harness: Harness) -> None:
    store, other, name = await harness.open(), await harness.open(), harness.name()
    (_, orphan), (_, referred), (again, refreshed) = [await _old(harness, store) for _ in range(3)]
    young = await store.put_blob(content(harness.name()))
    lease = await store.acquire(name)
    await append(store, lease, blobs=(referred,))
    await other.put_blob(again)
    freed = await store.collect_blobs(untouched_for=AGE)
    holds(freed is not None and freed.blobs >= 1, f"something was freed: {freed}")
    found = {what: await _gone(other, digest) for what, digest in _named(orphan, referred, refreshed, young)}
    wanted = {"orphan": True, "referred": False, "put again": False, "young": False}
    equal(found, wanted, "what is gone")


def _named(*digests: str) -> list[tuple[str, str]]:
    return list(zip(("orphan", "referred", "put again", "young"), digests, strict=True))


@SUBJECT.check
async def a_reference_from_any_session_keeps_a_blob_also_after_its_owner_is_gone(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    data, digest = await _old(harness, store)
    await append(store, await store.acquire(name), blobs=(digest,))
    await harness.end_somehow(store)
    other = await harness.open()
    holds(await other.collect_blobs(untouched_for=AGE) is not None, "a collection is made")
    equal(await other.get_blob(digest), data, "the content")


@SUBJECT.check
async def a_released_blob_goes_unless_somebody_else_refers_to_it(harness: Harness) -> None:
    store, name, other = await harness.open(), harness.name(), harness.name()
    (_, let_go), (_, shared), (_, kept) = [await _old(harness, store) for _ in range(3)]
    lease = await store.acquire(name)
    await append(store, lease, blobs=(let_go, shared, kept))
    await append(store, await store.acquire(other), blobs=(shared,))
    await append(store, lease, released=(let_go, shared))
    await store.collect_blobs(untouched_for=AGE)
    found = [await _gone(store, digest) for digest in (let_go, shared, kept)]
    equal(found, [True, False, False], "what is gone of let go, shared and kept")


@SUBJECT.check
async def a_refused_append_keeps_no_blob(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    _, digest = await _old(harness, store)
    lease = await store.acquire(name)
    await lease.release()
    await asyncio.gather(append(store, lease, blobs=(digest,)), return_exceptions=True)
    await store.collect_blobs(untouched_for=AGE)
    holds(await _gone(store, digest), "the blob of a batch that was not stored is gone")


@SUBJECT.check
async def a_collection_is_made_no_more_often_than_asked_for(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    holds(await store.collect_blobs(untouched_for=AGE) is not None, "the first one is made")
    holds(await other.collect_blobs(untouched_for=AGE, every=3600) is None, "a second within the hour is not")
    holds(await other.collect_blobs(untouched_for=AGE) is not None, "without a limit it is")


@SUBJECT.check
async def putting_blobs_while_they_are_collected_loses_none(harness: Harness) -> None:
    """Each is put, old, and put again while collections run: whoever got a digest finds its blob."""
    one, two = await harness.open(), await harness.open()
    blobs = [await _old(harness, one) for _ in range(24)]
    ended = False

    async def collect() -> None:
        while not ended:
            await two.collect_blobs(untouched_for=AGE)

    async def put_again() -> None:
        nonlocal ended
        try:
            for data, digest in blobs:
                equal(await one.put_blob(data), digest, "the digest")
                equal(await one.get_blob(digest), data, "what was just put")
        finally:
            ended = True

    await soon(asyncio.gather(collect(), put_again()), "puts beside collections")
    for data, digest in blobs:
        equal(await two.get_blob(digest), data, "what was put")


@SUBJECT.check
async def a_blob_that_is_put_between_mark_and_deletion_survives(harness: Harness) -> None:
    stopping = harness.closed_later(await harness.start_stopping())
    store, name = await harness.open(), harness.name()
    (again, put), (referred_data, referred), (_, orphan) = [await _old(harness, store) for _ in range(3)]
    async with begun(stopping.collect_blobs(untouched_for=AGE)) as collecting:
        await harness.until_stopped(stopping)
        await store.put_blob(again)
        await append(store, await store.acquire(name), blobs=(referred,))
        holds(await store.collect_blobs(untouched_for=AGE) is None, "no second collection runs beside it")
        await harness.go_on(stopping)
        freed = await soon(collecting, "the collection ends")
    holds(freed is not None and freed.blobs >= 1, f"something was freed: {freed}")
    equal(await store.get_blob(put), again, "what was put meanwhile")
    equal(await store.get_blob(referred), referred_data, "what was referred to meanwhile")
    holds(await _gone(store, orphan), "the orphan is gone")


@SUBJECT.check
async def a_collection_that_dies_is_followed_by_the_next(harness: Harness) -> None:
    stopping = await harness.start_stopping()
    store = await harness.open()
    _, orphan = await _old(harness, store)
    async with begun(stopping.collect_blobs(untouched_for=AGE)):
        await harness.until_stopped(stopping)
        await harness.kill(stopping)
    holds(not await _gone(store, orphan), "nothing was deleted yet")
    holds(await store.collect_blobs(untouched_for=AGE) is not None, "the next collection is made")
    with refused(IntegrityError, "the orphan"):
        await store.get_blob(orphan)
