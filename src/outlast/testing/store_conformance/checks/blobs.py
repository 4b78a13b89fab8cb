"""Blobs are named by their content, never change, and are verified when they are read."""

from __future__ import annotations

import asyncio
import hashlib

from outlast.errors import IntegrityError, UsageError
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import equal, refused
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import MIB

SUBJECT = Subject("blobs")


def content(name: str, size: int = 40) -> bytes:
    """Of this check alone: nobody else has put it."""
    return hashlib.sha512(name.encode()).digest() * (size // 64 + 1)


@SUBJECT.check
async def a_blob_comes_back_by_the_digest_of_its_content(harness: Harness) -> None:
    one, two = await harness.open(), await harness.open()
    for data in (content(harness.name()), content(harness.name(), 5 * MIB), b"", bytes(range(256))):
        digest = await one.put_blob(data)
        equal(digest, hashlib.sha256(data).hexdigest(), "the digest")
        equal(await two.get_blob(digest), data, "the content")
        equal(await two.put_blob(data), digest, "the digest when it is put again")


@SUBJECT.check
async def a_blob_that_many_put_at_once_is_one(harness: Harness) -> None:
    one, two = await harness.open(), await harness.open()
    data = content(harness.name(), MIB)
    digests = await asyncio.gather(*(store.put_blob(data) for store in (one, two) * 4))
    equal(set(digests), {hashlib.sha256(data).hexdigest()}, "the digests")
    equal(await two.get_blob(digests[0]), data, "the content")


@SUBJECT.check
async def a_missing_blob_is_an_integrity_error_and_no_digest_a_usage_error(harness: Harness) -> None:
    store = await harness.open()
    with refused(IntegrityError, "a blob that was never put") as refusal:
        await store.get_blob(hashlib.sha256(harness.name().encode()).hexdigest())
    equal(refusal.error.seq, 0, "the record that it names")
    for wrong in ("", "ab", "../../../etc/passwd", "A" * 64, "0" * 63 + "/"):
        with refused(UsageError, repr(wrong)):
            await store.get_blob(wrong)


@SUBJECT.check
async def a_changed_blob_is_refused_and_putting_it_again_mends_it(harness: Harness) -> None:
    store = await harness.open()
    data = content(harness.name())
    digest = await store.put_blob(data)
    for changed in (data[:-1], data + b"x", b"", b"X" + data[1:]):
        await harness.change_blob(digest, changed)
        with refused(IntegrityError, "a blob that was changed"):
            await store.get_blob(digest)
        await store.put_blob(data)
        equal(await store.get_blob(digest), data, "the content once it was put again")
