"""Collecting blobs in SQLite's folder: what the conformance suite cannot see."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.stores import append

from outlast.errors import FencedError
from outlast.store.contract import Collected, Store
from outlast.store.sqlite.blobs import Blobs
from outlast.store.sqlite.collection import COLLECTION, Collect
from outlast.store.sqlite.store import SqliteStore


def aged(path: Path) -> Path:
    at = path.stat().st_mtime - 3600
    os.utime(path, (at, at))
    return path


async def old(store: Store, data: bytes) -> Path:
    digest = await store.put_blob(data)
    return aged(Blobs(store.folder / "blobs").path(digest))


async def test_what_a_killed_process_left_of_a_put_is_removed(store: Store) -> None:
    whole = await old(store, b"content")
    await append(store, await store.acquire("s"), blobs=(whole.name,))
    draft = whole.with_name(whole.name + ".0123456789abcdef.tmp")
    draft.write_bytes(b"half")
    foreign = whole.with_name("notes.txt")
    foreign.write_bytes(b"of somebody")
    for path in (draft, foreign):
        aged(path)
    assert await store.collect_blobs(untouched_for=60) == Collected(1, 4)
    assert sorted(path.name for path in whole.parent.iterdir()) == sorted([whole.name, foreign.name])


async def test_nothing_to_collect_takes_no_epoch(store: Store) -> None:
    await store.put_blob(b"young")
    before = (await store.acquire("a")).epoch
    assert await store.collect_blobs() == Collected()
    assert (await store.acquire("b")).epoch == before + 1


async def test_a_blob_that_cannot_be_deleted_fails_no_append_beside_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [await old(store, bytes([number])) for number in range(3)]
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path == paths[0]:
            raise PermissionError(1, "made to fail")
        unlink(path, missing_ok)

    lease = await store.acquire("s")
    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuse)
        freed, tip = await asyncio.gather(store.collect_blobs(untouched_for=60), append(store, lease))
    assert (freed, tip) == (Collected(2, 2), 1)
    assert await store.get_blob(paths[0].name) == b"\x00"


async def test_a_collection_whose_lease_is_gone_deletes_nothing(store: Store) -> None:
    assert isinstance(store, SqliteStore)
    path = await old(store, b"content")
    stale = await store.acquire(COLLECTION)
    await stale.release()
    [files] = [found for found in store._parts.blobs.untouched(2**60) if found]
    with pytest.raises(FencedError):
        await store._submit(Collect(stale, store._parts.blobs, tuple(files), 2**60))
    assert path.exists()
