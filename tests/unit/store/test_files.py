"""The store's files: where they are, who may read them, and what is refused untouched."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from tests.support.stores import admit, append, seqs

from outlast.errors import (
    InputError,
    IntegrityError,
    OutlastError,
    PlatformError,
    SchemaError,
    StoreError,
    UsageError,
)
from outlast.store.contract import Store
from outlast.store.sqlite import schema
from outlast.store.sqlite.connection import require_safe_sqlite
from outlast.store.sqlite.layout import NETWORK_FILESYSTEMS, Layout, filesystem_of, open_side_file
from outlast.store.sqlite.reading import list_sessions
from outlast.store.url import accept_restored, database_path, open_store, sqlite_url


async def use(url: str) -> list[int]:
    store = await open_store(url)
    await admit(store, "s", "r")
    lease = await store.acquire("s")
    await append(store, lease, 2)
    await store.put_blob(b"blob")
    found = await seqs(store, "s")
    await store.close()
    return found


def modes(folder: Path) -> dict[Path, tuple[int, bool]]:
    """Of everything in the folder, itself included: permissions, and whether it is a folder."""
    found = [folder, *folder.rglob("*")]
    return {path: (stat.S_IMODE(path.stat().st_mode), path.is_dir()) for path in found}


async def test_everything_is_for_this_user_only(tmp_path: Path) -> None:
    before = modes(tmp_path)[tmp_path]
    await use(sqlite_url(tmp_path / "new" / "folder" / "x.db"))
    made = modes(tmp_path / "new")
    assert len(made) > 8
    assert {mode for mode, is_folder in made.values() if is_folder} == {0o700}
    assert {mode for mode, is_folder in made.values() if not is_folder} == {0o600}
    assert modes(tmp_path)[tmp_path] == before


@pytest.mark.parametrize(
    "name", ["a b", "what?", "#1", "50%25", "gr\u00fc\u00dfe \U0001f642", "-dash", "'q\""]
)
async def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    assert await use(sqlite_url(tmp_path / name / "x.db")) == [1, 2]
    assert (tmp_path / name / "x.db").exists()
    assert (tmp_path / name / "x.d" / "nodes").is_dir()


async def test_a_folder_that_no_record_could_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not valid UTF-8"):
        await open_store(sqlite_url(tmp_path / "\udcff" / "x.db"))
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


async def test_every_way_to_a_store_meets_in_the_same_files(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    await use(sqlite_url(tmp_path / "link" / "x.db"))
    (tmp_path / "alias.db").symlink_to(real / "x.db")
    store = await open_store(sqlite_url(tmp_path / "alias.db"))
    assert await seqs(store, "s") == [1, 2]
    await store.close()
    assert {path.parent for path in modes(tmp_path) if path.name == "nodes"} == {real / "x.d"}


async def test_a_store_keeps_its_identity(url: str) -> None:
    ids = []
    for _ in range(2):
        store = await open_store(url)
        ids.append(store.store_id)
        await store.close()
    assert len(set(ids)) == 1


def _text(path: Path) -> None:
    path.write_bytes(b"this is a letter to my aunt, and nothing else\n" * 100)


def _foreign(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE aunts (name)")
    connection.close()


def _newer(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", schema.APPLICATION_ID)
    connection.execute("CREATE TABLE schema_version (version, at)")
    connection.execute("INSERT INTO schema_version VALUES (?, 0)", (schema.VERSION + 1,))
    connection.close()


@pytest.mark.parametrize("make", [_text, _foreign, _newer])
async def test_a_file_that_is_no_store_of_ours_is_refused_untouched(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "x.db"
    make(path)
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(SchemaError):
        await open_store(sqlite_url(path))
    with pytest.raises(SchemaError):
        list_sessions(path)
    assert hashlib.sha256(path.read_bytes()).digest() == before


async def test_a_folder_in_the_place_of_the_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    with pytest.raises(OutlastError):
        await open_store(sqlite_url(tmp_path / "x.db"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        await open_store(sqlite_url(tmp_path / "file" / "x.db"))


@pytest.mark.parametrize("version", ["3.7.0", "3.51.2", "3.46.1"])
def test_an_sqlite_that_can_corrupt_is_refused_for_writing(version: str) -> None:
    with pytest.raises(PlatformError, match=version):
        require_safe_sqlite(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "4.0.0"])
def test_a_later_sqlite_is_taken(version: str) -> None:
    require_safe_sqlite(version)


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw shared:2 - nfs4 server:/home rw
31 30 0:41 / /home/me/my\\040files rw shared:3 master:1 - fuse.sshfs me@host: rw
32 22 0:42 / /tmp rw - tmpfs none rw
33 22 0:43 / /tmp rw - 9p none rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homestead", "ext4"),
        ("/home", "nfs4"),
        ("/home/me", "nfs4"),
        ("/home/me/my files/x", "fuse.sshfs"),
        ("/tmp/x", "9p"),
    ],
)
def test_the_filesystem_of_a_folder_is_that_of_its_nearest_mount(path: str, kind: str) -> None:
    assert filesystem_of(path, MOUNTS) == kind
    assert (kind in NETWORK_FILESYSTEMS) == (kind != "ext4")


async def test_a_network_filesystem_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.sqlite.layout.filesystem_of", lambda path, table: "nfs4")
    with pytest.raises(PlatformError, match="nfs4"):
        await open_store(sqlite_url(tmp_path / "x.db"))
    assert not (tmp_path / "x.db").exists()


async def test_a_restored_backup_is_for_reading_until_it_is_accepted(tmp_path: Path, url: str) -> None:
    await use(url)
    folder = database_path(url, {}).parent
    shutil.copytree(folder, tmp_path / "backup")
    store = await open_store(url)
    lease = await store.acquire("s")
    await append(store, lease, 5)
    await store.close()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)

    behind = await open_store(url)
    assert behind.read_only
    assert await seqs(behind, "s") == [1, 2]
    with pytest.raises(StoreError, match="after-restore"):
        await behind.acquire("s")
    with pytest.raises(StoreError, match="after-restore"):
        await admit(behind, "s", "r2")
    await behind.close()

    assert accept_restored(url) > lease.epoch
    store = await open_store(url)
    assert not store.read_only
    renewed = await store.acquire("s")
    assert renewed.epoch > lease.epoch
    assert await append(store, renewed) == 3
    await store.close()


@pytest.mark.parametrize("way", ["accepted after a restore", "begun anew"])
async def test_what_is_lost_after_the_witness_was_begun_anew_is_noticed(url: str, way: str) -> None:
    """Also of a journal that nobody has written to since."""
    layout = Layout.of(database_path(url, {}))
    store = await open_store(url)
    await append(store, await store.acquire("s"), 3)
    await store.close()
    if way == "begun anew":
        layout.witness.unlink()
        await (await open_store(url)).close()
    else:
        accept_restored(url)
    connection = apsw.Connection(str(layout.database))
    connection.execute("DELETE FROM record WHERE seq = 3")
    connection.close()
    store = await open_store(url)
    with pytest.raises(IntegrityError, match="ends at record 2, but record 3 had been stored"):
        await store.tip("s")
    await store.close()


async def test_a_journal_that_got_shorter_is_an_integrity_error_that_names_both_ends(url: str) -> None:
    layout = Layout.of(database_path(url, {}))
    store = await open_store(url)
    lease = await store.acquire("s")
    await append(store, lease, 3)
    await store.close()
    connection = apsw.Connection(str(layout.database))
    connection.execute("DELETE FROM record WHERE seq = 3")
    connection.close()

    store = await open_store(url)
    for look in (store.tip("s"), store.acquire("s")):
        with pytest.raises(IntegrityError, match="record 2, but record 3") as refused:
            await look
        assert refused.value.seq == 2
    await store.close()


async def test_a_journal_of_another_content_than_its_witness_is_refused(url: str) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")
    await append(store, lease, 3)
    await store.close()
    connection = apsw.Connection(str(database_path(url, {})))
    connection.execute("UPDATE record SET chain = zeroblob(16) WHERE seq = 3")
    connection.close()
    store = await open_store(url)
    with pytest.raises(IntegrityError):
        await store.acquire("s")
    await store.close()


async def test_a_lost_or_torn_witness_stops_nobody(url: str) -> None:
    layout = Layout.of(database_path(url, {}))
    await use(url)
    data = bytearray(layout.witness.read_bytes())
    data[-20] ^= 0xFF
    layout.witness.write_bytes(data)
    assert await use(url) == [1, 2, 3, 4]
    layout.witness.unlink()
    assert await use(url) == [1, 2, 3, 4, 5, 6]


async def test_a_changed_blob_is_refused(url: str) -> None:
    store = await open_store(url)
    digest = await store.put_blob(b"right")
    path = Layout.of(database_path(url, {})).blobs / digest[:2] / digest
    path.write_bytes(b"wrong")
    with pytest.raises(IntegrityError):
        await store.get_blob(digest)
    assert await store.put_blob(b"right") == digest  # mended by putting it again
    assert await store.get_blob(digest) == b"right"
    for other in ("../../x.db", digest.upper(), "ab"):
        with pytest.raises(UsageError):
            await store.get_blob(other)
    assert [p.name for p in path.parent.iterdir()] == [digest]
    await store.close()


async def test_a_blob_is_flushed_to_its_name_also_when_it_was_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it may have been killed before its folder was."""
    await store.put_blob(b"twice")
    flushed: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        flushed.append(os.fstat(file).st_ino)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    digest = await store.put_blob(b"twice")
    folder = Layout.of(database_path(store.url, {})).blobs
    assert {path.stat().st_ino for path in (folder, folder / digest[:2])} <= set(flushed)


@pytest.mark.parametrize("name", ["", "nodes", "blobs"])
@pytest.mark.parametrize("wrong", ["of another user", "writable by others", "a link"])
async def test_a_side_folder_that_is_not_ours_alone_is_refused(tmp_path: Path, name: str, wrong: str) -> None:
    await use(sqlite_url(tmp_path / "x.db"))
    folder = tmp_path / "x.d" / name
    if wrong == "a link":
        folder.rename(tmp_path / "elsewhere")
        (tmp_path / "x.d" / name).symlink_to(tmp_path / "elsewhere")
    elif wrong == "writable by others":
        folder.chmod(0o777)
    elif os.getuid() == 0:
        os.chown(folder, 12345, 12345)
    else:
        pytest.skip("only root can give a folder away")
    with pytest.raises(UsageError, match=re.escape(str(folder))):
        await open_store(sqlite_url(tmp_path / "x.db"))


@pytest.mark.parametrize("name", ["bell", "gate", "turn", "witness"])
async def test_a_side_file_is_never_a_link(tmp_path: Path, name: str) -> None:
    await use(sqlite_url(tmp_path / "x.db"))
    letter = tmp_path / "letter"
    letter.write_text("to my aunt")
    side = tmp_path / "x.d" / name
    side.unlink()
    side.symlink_to(letter)
    with pytest.raises(UsageError, match=re.escape(str(side))):
        await open_store(sqlite_url(tmp_path / "x.db"))
    with pytest.raises(OSError):  # noqa: PT011 - ELOOP or EMLINK, by the system
        open_side_file(side)
    assert letter.read_text() == "to my aunt"


def test_two_names_of_a_file_without_suffix_have_their_own_folder() -> None:
    assert Layout.of(Path("/x/outlast.db")).folder == Path("/x/outlast.d")
    assert Layout.of(Path("/x/outlast")).folder == Path("/x/outlast.d")
    assert Layout.of(Path("/x/.db")).folder == Path("/x/.db.d")


async def test_a_user_without_write_permission_gets_a_clear_error(tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root writes everywhere")
    (tmp_path / "locked").mkdir(0o500)
    with pytest.raises(StoreError, match="OUTLAST_STATE_DIR"):
        await open_store(sqlite_url(tmp_path / "locked" / "x.db"))
