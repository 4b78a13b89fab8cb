"""Content-addressed files beside the database: `blobs/ab/<sha256>`. They never change."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from outlast import clock
from outlast.faults import point
from outlast.files import flush_folder
from outlast.store import refusals
from outlast.store.sqlite.layout import unwritable

_DIGEST_SIZE = 64


class Untouched(NamedTuple):
    """A file that nobody has put for a while. `name` is a digest, or that of a draft which a killed process
    left."""

    name: str
    size: int

    @property
    def is_draft(self) -> bool:
        return len(self.name) != _DIGEST_SIZE


class Blobs:
    """Blocking calls, for a worker thread. Times are microseconds UTC."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = folder / "lock"
        """Shared by whoever gives a file its name or its time, exclusive for whoever deletes one."""
        self._collected = folder / "collected"
        """Its time is that of the last collection."""

    def put(self, data: bytes) -> str:
        """Durable when it returns. Putting what is there refreshes its time, so that a collection that runs
        meanwhile keeps it. Raises StoreFullError."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if not self._refreshed(path, data):
                self._write(path, data)
            # Also of one that was there: whoever renamed it may have ended before this.
            flush_folder(path.parent)
            flush_folder(self._folder)
        except OSError as error:
            raise unwritable(path, error) from error
        return digest

    def _refreshed(self, path: Path, data: bytes) -> bool:
        """Whether it was there."""
        with self._putting():
            if not path.exists() or path.read_bytes() != data:
                return False
            _touch(path)
            return True

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")
        try:
            file = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                point("store.blob.before_fsync")
                os.fsync(stream.fileno())
                point("store.blob.after_fsync")
            point("store.blob.before_rename")
            with self._putting():
                _touch(draft)
                draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        point("store.blob.after_rename")

    @contextmanager
    def _putting(self) -> Iterator[None]:
        """Between a look at a file and its new name or time nobody deletes it."""
        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield
        finally:
            os.close(lock)

    def get(self, digest: str) -> bytes:
        """Raises IntegrityError when it is missing or not what its name says."""
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError as error:
            raise refusals.bad_blob(digest, "missing") from error
        except OSError as error:
            raise refusals.bad_blob(digest, f"unreadable: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise refusals.bad_blob(digest, "changed")
        return data

    def path(self, digest: str) -> Path:
        """Raises UsageError for what is no digest."""
        refusals.require_digest(digest)
        return self._folder / digest[:2] / digest

    # --- collection ----------------------------------------------------------------------------

    def collected_at(self) -> int:
        """When the last collection ended; 0 where none is known."""
        try:
            return self._collected.stat().st_mtime_ns // 1000
        except OSError:
            return 0

    def note_collection(self) -> None:
        # One more collection than needed is the price where this fails.
        with suppress(OSError):
            self._collected.touch(mode=0o600)
            _touch(self._collected)

    def untouched(self, before: int) -> Iterator[list[Untouched]]:
        """Files that were last put before the time `before`, one folder of them after the other. What cannot
        be looked at is left out."""
        for bucket in _entries(self._folder):
            if bucket.is_dir(follow_symlinks=False):
                found = [(file, _stat(file)) for file in _entries(bucket)]
                yield [
                    Untouched(file.name, stat.st_size)
                    for file, stat in found
                    if stat is not None and stat.st_mtime_ns // 1000 < before and _is_ours(file.name)
                ]

    def delete(self, file: Untouched, before: int) -> bool:
        """Delete it unless it was put meanwhile, is just being put, or cannot be deleted."""
        path = self._folder / file.name[:2] / file.name
        try:
            with self._deleting():
                if path.lstat().st_mtime_ns // 1000 >= before:
                    return False
                point("store.blob.before_delete")
                path.unlink()
                point("store.blob.after_delete")
        except OSError:
            return False
        return True

    @contextmanager
    def _deleting(self) -> Iterator[None]:
        """Raises BlockingIOError while somebody puts a blob: that one may be this one."""
        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(lock)

    def _open_lock(self) -> int:
        return os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _touch(path: Path) -> None:
    """Give the file the time that `clock` has: the kernel's own for files is some milliseconds behind."""
    now = clock.now() * 1000
    os.utime(path, ns=(now, now))


def _entries(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _stat(file: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return file.stat(follow_symlinks=False) if file.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def _is_ours(name: str) -> bool:
    return len(name) == _DIGEST_SIZE or name.endswith(".tmp")
