"""What an open store consists of: nothing is left behind where a part fails."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.stores import admit, append, entry, in_time

from outlast.errors import IntegrityError, StoreError
from outlast.store.contract import Admission, Store
from outlast.store.sqlite.doorbell import Doorbell
from outlast.store.sqlite.operations import Release
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.transaction import Cache
from outlast.store.url import open_store


def left_open() -> tuple[set[str], int]:
    """Files of this store, and threads that write."""
    found: set[str] = set()
    for file in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(file.readlink()))
        except FileNotFoundError:
            continue
    threads = [thread for thread in threading.enumerate() if thread.name == "outlast-writer"]
    return {path for path in found if "/store/x." in path}, len(threads)


@pytest.mark.parametrize("part", ["Doorbell", "Writer", "this_process"])
async def test_a_part_that_fails_leaves_no_thread_and_no_file(
    url: str, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object) -> Any:
        raise StoreError("made to fail")

    with monkeypatch.context() as broken:
        broken.setattr(f"outlast.store.sqlite.store.{part}", fail)
        with pytest.raises(StoreError, match="made to fail"):
            await open_store(url)
    assert left_open() == (set(), 0)


@pytest.mark.parametrize(
    "failure", [IntegrityError("damaged", seq=0, reason="malformed"), StoreError("full")]
)
async def test_a_release_that_is_refused_keeps_no_store_open(
    url: str, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def refuse(*_: object) -> Any:
        raise failure

    store = await open_store(url)
    await store.acquire("s")
    with monkeypatch.context() as broken:
        broken.setattr(Release, "run", refuse)
        await in_time(store.close())
    assert left_open() == (set(), 0)
    again = await open_store(url)
    await again.acquire("s")
    await again.close()


async def test_a_bell_that_cannot_be_taken_down_keeps_no_lease(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Doorbell) -> None:
        raise OSError("made to fail")

    def refuse(*_: object) -> Any:
        raise StoreError("full")

    store = await open_store(url)
    await store.acquire("s")
    with monkeypatch.context() as broken:
        broken.setattr(Doorbell, "close", fail)
        broken.setattr(Release, "run", refuse)  # so that its lock alone frees the session
        with pytest.raises(OSError, match="made to fail"):
            await store.close()
    again = await open_store(url)
    await again.acquire("s")
    await again.close()


class NoWayBack:
    """A cursor whose first ROLLBACK fails."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        self._failed = False

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "ROLLBACK" and not self._failed:
            self._failed = True
            raise apsw.IOError("made to fail")
        return self._cursor.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


async def test_a_rollback_that_fails_is_told_as_what_it_was_for(store: Store) -> None:
    """In our words, and with no transaction left open this process writes no more."""
    assert isinstance(store, SqliteStore)
    lease = await store.acquire("s")
    engine = store._parts.engine
    engine._cursor = NoWayBack(engine._cursor)  # type: ignore[assignment]
    with pytest.raises(StoreError):
        await store.admit(Admission("s2", "r", "input", b"", opening=entry("s2", title="\udc80")))
    assert engine.latched
    assert lease.lost.is_set()
    with pytest.raises(StoreError):
        await append(store, lease)


async def test_the_cache_of_a_busy_process_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.sqlite.transaction._CACHE_LIMIT", 10)
    assert isinstance(store, SqliteStore)
    for number in range(40):
        await admit(store, f"s{number}", "r")
    cache: Cache = store._parts.engine._cache
    assert len(cache.sessions) <= 11
