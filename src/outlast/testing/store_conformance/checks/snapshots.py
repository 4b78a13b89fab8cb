"""Snapshots are a cache under the lease: the newest two are kept, whole."""

from __future__ import annotations

from outlast.store.contract import Snapshot
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import equal
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import MIB, append

SUBJECT = Subject("snapshots")


def _snapshot(name: str, seq: int, body: bytes = b"state") -> Snapshot:
    return Snapshot(name, seq, bytes([seq]) * 16, 1, b"d" * 32, body)


@SUBJECT.check
async def the_newest_two_snapshots_are_kept_and_given_newest_first(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    equal(await one.snapshots(name), [], "those of a new session")
    lease = await one.acquire(name)
    await append(one, lease, 9)
    made = [_snapshot(name, seq, body) for seq, body in ((2, b"\x00" * 10), (5, b"x" * MIB), (9, b""))]
    for snapshot in made:
        await one.put_snapshot(snapshot, lease)
    equal(await two.snapshots(name), [made[2], made[1]], "what is kept")
    equal(await two.snapshots(harness.name()), [], "those of another session")


@SUBJECT.check
async def a_snapshot_replaces_its_like_and_what_is_ahead_of_it(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    await append(store, lease, 9)
    for seq in (2, 5, 9):
        await store.put_snapshot(_snapshot(name, seq), lease)
    again = _snapshot(name, 9, b"again")
    await store.put_snapshot(again, lease)
    equal(await store.snapshots(name), [again, _snapshot(name, 5)], "after one for the same record")
    back = _snapshot(name, 7, b"back")
    await store.put_snapshot(back, lease)
    equal(await store.snapshots(name), [back, _snapshot(name, 5)], "after one for an earlier record")
