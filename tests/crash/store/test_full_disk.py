"""A disk that is really full or read-only: a small filesystem of its own, where this user may mount one."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes import until
from tests.support.stores import admit, append, seqs

from outlast.errors import StoreFullError
from outlast.store.contract import CatalogQuery
from outlast.store.sqlite.reading import list_sessions
from outlast.store.url import database_path, open_store, sqlite_url

SIZE = 2 << 20


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, timeout=20, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not shutil.which("mount") or not _mount(
        "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(folder)
    ):
        pytest.skip("this user may not mount a filesystem")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


def _fill(disk: Path, leave: int = 0) -> Path:
    """A file that takes all space but `leave` bytes."""
    file = disk / "filler"
    with file.open("wb") as stream:
        until(lambda: _takes_the_rest(stream.fileno(), disk, leave), "nobody writes between look and take")
    return file


def _takes_the_rest(file: int, disk: Path, leave: int) -> bool:
    free = os.statvfs(disk)
    try:
        os.posix_fallocate(file, 0, free.f_bavail * free.f_frsize - leave)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.ftruncate(file, 0)
        return False
    return True


async def test_a_full_disk_refuses_clearly_and_works_again_when_there_is_space(disk: Path) -> None:
    store = await open_store(sqlite_url(disk / "x.db"))
    lease = await store.acquire("s")
    written = await append(store, lease, 3)
    filler = _fill(disk, leave=64 * 1024)
    full = None
    while full is None:
        try:
            written = await append(store, lease, 50)
        except StoreFullError as error:
            full = error
    with pytest.raises(StoreFullError):
        await admit(store, "s", "r")
    with pytest.raises(StoreFullError):
        await store.put_blob(bytes(SIZE))
    assert await seqs(store, "s") == list(range(1, written + 1))
    assert not lease.lost.is_set()
    filler.unlink()
    assert await append(store, lease) == written + 1
    assert (await admit(store, "s", "r")).created
    await store.close()
    again = await open_store(sqlite_url(disk / "x.db"))
    assert len(await seqs(again, "s")) == written + 1
    await again.close()


async def test_a_store_that_nobody_had_open_when_the_disk_filled_is_called_full_by_who_opens_it(
    disk: Path,
) -> None:
    """SQLite cannot make the file that its readers share, and calls that an I/O error."""
    url = sqlite_url(disk / "x.db")
    store = await open_store(url)
    written = await append(store, await store.acquire("s"), 3)
    await store.close()
    filler = _fill(disk)
    with pytest.raises(StoreFullError, match="no space") as refused:
        await open_store(url)
    assert refused.value.hint is not None
    with pytest.raises(StoreFullError, match="no space"):
        list_sessions(database_path(url, os.environ), CatalogQuery())
    filler.unlink()
    store = await open_store(url)
    assert len(await seqs(store, "s")) == written
    await store.close()


async def test_a_full_disk_takes_no_new_store_and_leaves_nothing_half_made(disk: Path) -> None:
    filler = _fill(disk)
    url = sqlite_url(disk / "new" / "x.db")
    with pytest.raises(StoreFullError):
        await open_store(url)
    filler.unlink()
    store = await open_store(url)
    assert (await admit(store, "s", "r")).created
    await store.close()


async def test_a_store_on_a_full_disk_closes_and_frees_what_it_owned(disk: Path) -> None:
    store = await open_store(sqlite_url(disk / "x.db"))
    await store.acquire("s")
    filler = _fill(disk)
    await store.close()
    filler.unlink()
    again = await open_store(sqlite_url(disk / "x.db"))
    assert (await again.acquire("s")).name == "s"
    await again.close()


async def test_a_read_only_filesystem_is_for_looking(disk: Path) -> None:
    url = sqlite_url(disk / "x.db")
    store = await open_store(url)
    await admit(store, "s", "r")
    await store.close()
    if not _mount("-o", "remount,ro", str(disk)):
        pytest.skip("this user may not remount a filesystem")
    with pytest.raises(StoreFullError):
        await open_store(url)
    [listed] = list_sessions(database_path(url, {}), CatalogQuery())
    assert listed.entry.session == "s"
