"""What a runtime does for its store beside its sessions: it never shows, but in what is freed."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from tests.support.stores import append, in_time

import outlast
from outlast.errors import IntegrityError
from outlast.runtime import chores
from outlast.store.contract import DAY, Collected
from outlast.store.sqlite.store import SqliteStore
from outlast.store.url import open_store, sqlite_url


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(chores, "START", 0.0)
    monkeypatch.setattr(chores, "BETWEEN", 0.01)
    return sqlite_url(tmp_path / "x.db")


async def old_blob(url: str, data: bytes, *, kept: bool = False) -> str:
    store = await open_store(url)
    digest = await store.put_blob(data)
    if kept:
        await append(store, await store.acquire("s"), blobs=(digest,))
    path = store.folder / "blobs" / digest[:2] / digest
    long_ago = path.stat().st_mtime - 2 * DAY
    os.utime(path, (long_ago, long_ago))
    await store.close()
    return digest


async def test_a_runtime_frees_what_no_record_needs(url: str) -> None:
    orphan, kept = await old_blob(url, b"orphan"), await old_blob(url, b"kept", kept=True)

    async def is_gone(store: outlast.Runtime) -> None:
        while True:
            try:
                await store.store.get_blob(orphan)
            except IntegrityError:
                return
            await asyncio.sleep(0.01)

    async with outlast.Runtime(url) as runtime:
        await in_time(is_gone(runtime))
        assert await runtime.store.get_blob(kept) == b"kept"
        assert hashlib.sha256(b"kept").hexdigest() == kept


async def test_a_collection_that_fails_fails_nobody(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = asyncio.Event()
    tries = 0

    async def fail(*_: object, **__: object) -> Collected | None:
        nonlocal tries
        tries += 1
        if tries == 3:
            tried.set()
        raise OSError("made to fail") if tries == 1 else IntegrityError("damaged", seq=0, reason="made")

    monkeypatch.setattr(SqliteStore, "collect_blobs", fail)
    async with outlast.Runtime(url) as runtime:
        await in_time(tried.wait())
        assert await runtime.store.list() == []
