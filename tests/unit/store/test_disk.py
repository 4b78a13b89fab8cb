"""What a failing disk means: SQLite's file layer is replaced by one that fails where it is told."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import apsw
import pytest
from tests.support.stores import admit, append, rows, seqs

from outlast.errors import AmbiguousAppendError, OutlastError, StoreError, StoreFullError
from outlast.faults import point
from outlast.store.contract import Append, Store
from outlast.store.url import open_store


@dataclass
class Disk:
    """Fails its next `times` writes or syncs of a write-ahead log."""

    fails: dict[str, int] = field(default_factory=dict)
    error: Callable[[], apsw.Error] = apsw.FullError

    def check(self, what: str) -> None:
        if self.fails.get(what, 0) > 0:
            self.fails[what] -= 1
            raise self.error()


def io_error(extended: int) -> Callable[[], apsw.Error]:
    def make() -> apsw.Error:
        error = apsw.IOError("made to fail")
        error.extendedresult = extended  # type: ignore[attr-defined]
        return error

    return make


class Log(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 — SQLite's name
        if self._is_log:
            self._disk.check("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._is_log:
            self._disk.check("sync")
        super().xSync(flags)


class Layer(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Log:  # noqa: N802
        return Log(self._disk, name, flags)


@pytest.fixture
async def opened(url: str) -> AsyncIterator[tuple[Store, Disk]]:
    """A store on a disk that can be made to fail; whoever opens the store again has a good disk."""
    disk = Disk()
    layer = Layer(disk)
    try:
        store = await open_store(url)
    finally:
        layer.unregister()
    yield store, disk
    disk.fails = {}
    await store.close()


async def test_a_full_disk_stores_nothing_and_it_works_again_once_there_is_space(
    opened: tuple[Store, Disk],
) -> None:
    store, disk = opened
    lease = await store.acquire("s")
    for what in ("write", "write", "sync"):
        disk.fails = {what: 1}
        with pytest.raises(StoreFullError):
            await append(store, lease, 2)
        disk.fails = {what: 1}
        with pytest.raises(StoreFullError):
            await admit(store, "s", "r")
    assert await append(store, lease, 2) == 2
    assert (await admit(store, "s", "r")).created
    assert not lease.lost.is_set()


async def test_a_write_that_fails_once_is_known_as_not_stored(opened: tuple[Store, Disk], url: str) -> None:
    """The barrier commit overwrites what was left of it in the log."""
    store, disk = opened
    lease = await store.acquire("s")
    await append(store, lease)
    disk.error, disk.fails = io_error(apsw.SQLITE_IOERR_WRITE), {"write": 1}
    with pytest.raises(StoreError) as failed:
        await append(store, lease)
    assert not isinstance(failed.value, AmbiguousAppendError)
    assert await append(store, lease) == 2
    await store.close()
    again = await open_store(url)
    assert await seqs(again, "s") == [1, 2]
    await again.close()


@pytest.mark.parametrize(
    ("error", "fails"),
    [(apsw.SQLITE_IOERR_FSYNC, {"sync": 1}), (apsw.SQLITE_IOERR_WRITE, {"write": 9})],
    ids=["a failed fsync", "a disk that goes on failing"],
)
async def test_a_commit_of_unknown_fate_ends_all_writing(
    opened: tuple[Store, Disk], url: str, error: int, fails: dict[str, int]
) -> None:
    store, disk = opened
    lease, other = await store.acquire("s"), await store.acquire("other")
    await append(store, lease)
    disk.error, disk.fails = io_error(error), dict(fails)
    batch = Append("s", rows(lease, 1, 1), 1, lease)
    with pytest.raises(AmbiguousAppendError):
        await store.append(batch)
    disk.fails = {}
    # The disk works again, but whoever writes on could bury the answer.
    assert lease.lost.is_set()
    assert other.lost.is_set()
    for call in (append(store, other), admit(store, "s", "r")):
        with pytest.raises(OutlastError):
            await call
    await store.close()
    again = await open_store(url)
    renewed = await again.acquire("s")
    found = await seqs(again, "s")
    assert found in ([1], [1, 2])
    assert await append(again, renewed) == len(found) + 1
    await again.close()


async def test_an_error_before_the_commit_is_not_stored(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")

    def failing(name: str) -> bool:
        if name == "store.append.before_commit":
            raise OSError(errno.EIO, "made to fail")
        return point(name)

    with monkeypatch.context() as patched:
        patched.setattr("outlast.store.sqlite.engine.point", failing)
        with pytest.raises(StoreError):
            await append(store, lease)
    assert await seqs(store, "s") == []
    assert await append(store, lease) == 1
    await store.close()


async def test_callers_of_a_failed_group_all_hear_of_it(opened: tuple[Store, Disk], url: str) -> None:
    store, disk = opened
    leases = [await store.acquire(f"s{i}") for i in range(4)]
    disk.fails = {"write": 1}
    calls = [store.append(Append(own.name, rows(own, 0, 1), 0, own)) for own in leases]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StoreFullError}
    assert [await append(store, own) for own in leases] == [1, 1, 1, 1]


async def test_a_store_closes_on_a_full_disk(opened: tuple[Store, Disk], url: str) -> None:
    store, disk = opened
    await store.acquire("s")
    disk.fails = {"write": 1}
    await store.close()
    again = await open_store(url)
    assert (await again.acquire("s")).name == "s"
    await again.close()
