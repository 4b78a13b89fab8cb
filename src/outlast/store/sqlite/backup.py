"""A backup: one tar file with the database as it was at one moment, and every blob that it refers to.

The copy is taken in one read transaction, so writers go on meanwhile. A blob is stored before the record that
names it: what the copy refers to was there when it was taken. Blocking.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import apsw

from outlast.errors import StoreFullError, UsageError
from outlast.faults import point
from outlast.store.sqlite import schema
from outlast.store.sqlite.connection import connect_reader, translated
from outlast.store.sqlite.layout import Layout, flush_folder

_PAGES = 256
"""Copied between two looks at the clock."""
_CHECKED = "PRAGMA quick_check(1)"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class BackedUp:
    """What a backup holds. `damage` was met in the store on the way: it is in the backup as it was."""

    store: str
    sessions: int
    records: int
    blobs: int
    size: int
    """Bytes of the file."""
    damage: tuple[str, ...]


def back_up(layout: Layout, file: Path, at: int, told: Callable[[int, int], None]) -> BackedUp:
    """Write the backup to `file`, which must not be there; all of it or nothing. `told` hears how many pages,
    then blobs, are done, and of how many. Raises UsageError, StoreError, IntegrityError."""
    if os.path.lexists(file):
        raise UsageError(f"{file} is there already", hint="name a new file; a backup replaces nothing")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}")
    with _draft(file, "db") as copy, _draft(file, "tar") as draft:
        try:
            _copy_database(layout, copy, at, told)
            made = _write_archive(layout, copy, draft, told)
            point("backup.before_rename")
            draft.rename(file)
            flush_folder(file.parent)
        except OSError as error:
            message = f"the backup {file} cannot be written: {error.strerror or error}"
            raise StoreFullError(
                message, hint="name a file in a folder with space; nothing was changed"
            ) from error
        except apsw.Error as error:
            raise translated(error, layout.database) from error
    return made


@contextmanager
def _draft(file: Path, kind: str) -> Iterator[Path]:
    draft = file.with_name(f".{file.name}-{os.urandom(8).hex()}.{kind}")
    try:
        yield draft
    finally:
        for left in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm"), Path(f"{draft}-journal")):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def _copy_database(layout: Layout, copy: Path, at: int, told: Callable[[int, int], None]) -> None:
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    source = connect_reader(layout)
    target = apsw.Connection(str(copy))
    try:
        schema.require_store(source)
        # One moment for all steps: without it each commit of another process would begin the copy anew.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM store").get  # noqa: B018 - the transaction begins with its first read
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(_PAGES)
                told(copying.page_count - copying.remaining, copying.page_count)
        source.execute("ROLLBACK")
        target.execute("UPDATE store SET backup_at = ?", (at,))
    finally:
        target.close()
        source.close()


def _write_archive(layout: Layout, copy: Path, draft: Path, told: Callable[[int, int], None]) -> BackedUp:
    connection = apsw.Connection(str(copy))
    try:
        damage = _database_damage(connection)
        blobs = 0
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            archive = _Archive(stream)
            count = int(connection.execute("SELECT count(DISTINCT digest) FROM blob").get)
            for (digest,) in connection.execute("SELECT DISTINCT digest FROM blob"):
                damage += _add_blob(archive, layout, str(digest))
                blobs += 1
                told(blobs, count)
            for seal in sorted((layout.folder / "seals").glob("*.json")):
                archive.add(f"{layout.folder.name}/seals/{seal.name}", seal)
            identity = str(connection.execute("SELECT id FROM store").get)
            sessions = int(connection.execute("SELECT count(*) FROM session").get)
            records = _count(connection)
            connection.close()  # what is left of its log goes into the file
            archive.add(layout.database.name, copy)
            archive.end()
            stream.flush()
            point("backup.before_fsync")
            os.fsync(stream.fileno())
            size = stream.tell()
    finally:
        connection.close()
    return BackedUp(identity, sessions, records, blobs, size, tuple(damage))


def _count(connection: apsw.Connection) -> int:
    """Of the records; 0 where a damaged page keeps them from being counted."""
    try:
        return int(connection.execute("SELECT count(*) FROM record").get)
    except apsw.CorruptError:
        return 0


def _database_damage(connection: apsw.Connection) -> list[str]:
    try:
        found = str(connection.execute(_CHECKED).get)
    except apsw.CorruptError as error:
        found = str(error)
    return [] if found == "ok" else [f"the database is damaged: {found}"]


def _add_blob(archive: _Archive, layout: Layout, digest: str) -> list[str]:
    """What is wrong with it."""
    try:
        found = archive.add(
            f"{layout.folder.name}/blobs/{digest[:2]}/{digest}", layout.blobs / digest[:2] / digest
        )
    except FileNotFoundError:
        return [f"blob {digest} is missing"]
    return [] if found == digest else [f"blob {digest} is changed"]


class _Archive:
    """A tar file that is written member by member. `tarfile.TarFile` would remember each, and there may be a
    million."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def add(self, name: str, path: Path) -> str:
        """The SHA-256 of what was added. Raises OSError."""
        with path.open("rb") as file:
            info = tarfile.TarInfo(name)
            info.size = os.fstat(file.fileno()).st_size
            info.mode = 0o600
            self._stream.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
            digest = hashlib.sha256()
            left = info.size
            while left:
                data = file.read(min(left, _PIECE))
                if not data:
                    raise OSError(errno.EIO, f"{path} became shorter while it was read")
                digest.update(data)
                self._stream.write(data)
                left -= len(data)
        self._stream.write(bytes(-info.size % tarfile.BLOCKSIZE))
        return digest.hexdigest()

    def end(self) -> None:
        self._stream.write(bytes(2 * tarfile.BLOCKSIZE))
