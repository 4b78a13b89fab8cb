"""A backup: one tar file with the database as it was at one moment, and every blob that it refers to.

The copy is taken in one read transaction, so writers go on meanwhile. A blob is stored before the record that
names it: what the copy refers to was there when it was taken. Blocking.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

import apsw

from outlast.errors import UsageError
from outlast.faults import point
from outlast.files import flush_folder
from outlast.store.sqlite import schema
from outlast.store.sqlite.connection import connect_reader, translated
from outlast.store.sqlite.layout import Layout, unwritable

_PAGES = 256
"""Copied between two looks at the clock."""
_CHECKED = "PRAGMA quick_check(1)"
_PIECE = 1 << 20
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BackedUp:
    """What a backup holds. `damage` was met in the store on the way: it is in the backup as it was."""

    store: str
    sessions: int | None
    records: int | None
    """None where damage keeps them from being counted."""
    blobs: int
    size: int
    """Bytes of the file."""
    damage: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Watching:
    """Who goes along. `told` hears how many pages, then blobs, are done, and of how many. `damage` is given
    the database that goes into the backup, and says what is wrong with what it holds."""

    told: Callable[[int, int], None]
    damage: Callable[[Path], list[str]] = lambda _: []


def back_up(layout: Layout, file: Path, at: int, watching: Watching) -> BackedUp:
    """Write the backup to `file`, which must not be there; all of it or nothing. Raises UsageError,
    StoreError, IntegrityError."""
    if os.path.lexists(file):
        raise UsageError(f"{file} is there already", hint="name a new file; a backup replaces nothing")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}")
    with _draft(file, "db") as copy, _draft(file, "tar") as draft:
        try:
            _copy_database(layout, copy, at, watching.told)
            made = _write_archive(layout, copy, draft, watching)
            point("backup.before_rename")
            draft.rename(file)
            flush_folder(file.parent)
        except OSError as error:
            refused = unwritable(file, error, "backup")
            refused.hint = "name a file in a folder that takes writes and has space; nothing was changed"
            raise refused from error
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


def _write_archive(layout: Layout, copy: Path, draft: Path, watching: Watching) -> BackedUp:
    connection = apsw.Connection(str(copy))
    try:
        damage = [*_database_damage(connection), *watching.damage(copy)]
        blobs = 0
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            archive = _Archive(stream)
            count = _count(connection, "DISTINCT digest", "blob")
            for digest in _every(layout) if count is None else _named(connection):
                if not _DIGEST.fullmatch(digest):
                    damage.append(f"the name of a blob is damaged: {digest!r}")
                    continue
                damage += _add_blob(archive, layout, digest)
                blobs += 1
                watching.told(blobs, count or 0)
            for seal in sorted((layout.folder / "seals").glob("*.json")):
                damage += _add_seal(archive, layout, seal)
            identity = str(connection.execute("SELECT id FROM store").get)
            sessions = _count(connection, "*", "session")
            records = _count(connection, "*", "record")
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


def _count(connection: apsw.Connection, what: str, table: str) -> int | None:
    """None where a damaged page keeps them from being counted."""
    try:
        return int(connection.execute(f"SELECT count({what}) FROM {table}").get)
    except apsw.CorruptError:
        return None


def _named(connection: apsw.Connection) -> Iterator[str]:
    """The blobs that records refer to."""
    for (digest,) in connection.execute("SELECT DISTINCT CAST(digest AS BLOB) FROM blob"):
        yield cast(bytes, digest).decode("ascii", "backslashreplace")


def _every(layout: Layout) -> Iterator[str]:
    """All blobs that are there, for where the database cannot say which it refers to."""
    for path in layout.blobs.glob("[0-9a-f][0-9a-f]/*"):
        if _DIGEST.fullmatch(path.name):
            yield path.name


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
    except _UnreadableError as error:
        return [f"blob {digest} cannot be read: {error.strerror}"]
    return [] if found == digest else [f"blob {digest} is changed"]


def _add_seal(archive: _Archive, layout: Layout, seal: Path) -> list[str]:
    """What is wrong with it; nothing where it was taken away meanwhile."""
    try:
        archive.add(f"{layout.folder.name}/seals/{seal.name}", seal)
    except FileNotFoundError:
        return []
    except _UnreadableError as error:
        return [f"the seal {seal.name} cannot be read: {error.strerror}"]
    return []


class _UnreadableError(OSError):
    """What was to be added cannot be read: damage in the store, and not of the disk that takes the backup."""


class _Archive:
    """A tar file that is written member by member. `tarfile.TarFile` would remember each, and there may be a
    million."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._folders: set[str] = set()

    def add(self, name: str, path: Path) -> str:
        """The SHA-256 of what was added. Raises FileNotFoundError; _UnreadableError, with zeros in the place
        of what cannot be read of a file that was begun; OSError where the archive cannot be written."""
        with _opened(path) as file:
            for folder in reversed(list(PurePosixPath(name).parents)[:-1]):
                self._add_folder(str(folder))
            info = tarfile.TarInfo(name)
            info.size = os.fstat(file.fileno()).st_size
            info.mode = 0o600
            self._stream.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
            digest = hashlib.sha256()
            left, failure = info.size, None
            while left:
                data, failure = _piece(file, min(left, _PIECE))
                if failure is not None:
                    break
                digest.update(data)
                self._stream.write(data)
                left -= len(data)
        while left:
            self._stream.write(bytes(min(left, _PIECE)))
            left -= min(left, _PIECE)
        self._stream.write(bytes(-info.size % tarfile.BLOCKSIZE))
        if failure is not None:
            raise failure
        return digest.hexdigest()

    def _add_folder(self, name: str) -> None:
        """With its mode: one that is made for its members alone gets that of whoever unpacks."""
        if name in self._folders:
            return
        self._folders.add(name)
        info = tarfile.TarInfo(name)
        info.type = tarfile.DIRTYPE
        info.mode = 0o700
        self._stream.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def end(self) -> None:
        self._stream.write(bytes(2 * tarfile.BLOCKSIZE))


def _opened(path: Path) -> IO[bytes]:
    """Raises FileNotFoundError and _UnreadableError, also for what is no file and might keep its reader
    waiting."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _UnreadableError(error.errno, error.strerror) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _UnreadableError(errno.EINVAL, "it is no file")
    return os.fdopen(file, "rb", buffering=0)


def _piece(file: IO[bytes], size: int) -> tuple[bytes, _UnreadableError | None]:
    try:
        data = file.read(size)
    except OSError as error:
        return b"", _UnreadableError(error.errno, error.strerror)
    return data, None if data else _UnreadableError(errno.EIO, "it became shorter meanwhile")
