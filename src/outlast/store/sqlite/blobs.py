"""Content-addressed files beside the database: `blobs/ab/<sha256>`. They never change."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from outlast.errors import IntegrityError, UsageError
from outlast.faults import point
from outlast.store.sqlite.layout import flush_folder, unwritable


class Blobs:
    """Blocking calls, for a worker thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Durable when it returns. Putting what is there refreshes its time, so that a collection that runs
        meanwhile keeps it. Raises StoreFullError."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        try:
            if path.exists() and path.read_bytes() == data:
                os.utime(path)
            else:
                self._write(path, data)
            # Also of one that was there: whoever renamed it may have ended before this.
            flush_folder(path.parent)
            flush_folder(self._folder)
        except OSError as error:
            raise unwritable(path, error) from error
        return digest

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
            draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        point("store.blob.after_rename")

    def get(self, digest: str) -> bytes:
        """Raises IntegrityError when it is missing or not what its name says."""
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError as error:
            raise self._bad(digest, "missing") from error
        except OSError as error:
            raise self._bad(digest, f"unreadable: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise self._bad(digest, "changed")
        return data

    def _bad(self, digest: str, reason: str) -> IntegrityError:
        hint = "restore it from a backup"
        return IntegrityError(f"blob {digest} is {reason}", seq=0, reason=reason, hint=hint)

    def _path(self, digest: str) -> Path:
        # A digest can come from a record; as a path it must not leave the folder.
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise UsageError(f"{digest!r} is no SHA-256 in lower-case hexadecimal")
        return self._folder / digest[:2] / digest
