"""Connections to the database, and SQLite's errors in our words."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import apsw

from outlast.errors import (
    IntegrityError,
    OutlastError,
    PlatformError,
    SchemaError,
    StoreAccessError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from outlast.store.sqlite.layout import Layout
from outlast.store.url import escaped

SAFE_FROM = (3, 51, 3)
"""Versions from 3.7.0 to 3.51.2 can corrupt a database in WAL mode when a checkpoint races with a writer."""

PAGE_SIZE = 8192
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def require_safe_sqlite(version: str | None = None) -> None:
    """Raises PlatformError if this SQLite must not write."""
    version = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < SAFE_FROM:
        wanted = ".".join(map(str, SAFE_FROM))
        raise PlatformError(
            f"SQLite {version} can corrupt a database in WAL mode; {wanted} or later is needed to write",
            hint="install apsw from its wheel, which brings its own SQLite",
        )


def _address(layout: Layout, options: str) -> str:
    return f"file:{escaped(layout.database)}?{options}"


def connect_writer(layout: Layout, busy_seconds: float) -> apsw.Connection:
    """A connection for one thread that may create the database, readable by this user only."""
    options = f"modeof={escaped(layout.turn)}"
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(_address(layout, options), flags=flags)
    connection.set_busy_timeout(int(busy_seconds * 1000))
    return connection


def connect_reader(layout: Layout, busy_seconds: float = 5.0) -> apsw.Connection:
    """A connection that cannot write. The database must exist."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    # Readers of a database with a log share memory in a file beside it. On a read-only filesystem there can
    # be none, and without a log nobody writes.
    log = layout.database.with_name(layout.database.name + "-wal")
    still = not os.access(layout.database.parent, os.W_OK) and not log.exists()
    connection = apsw.Connection(_address(layout, "immutable=1" if still else "mode=ro"), flags=flags)
    connection.set_busy_timeout(int(busy_seconds * 1000))
    return connection


def extended_code(error: apsw.Error) -> int:
    """SQLite's extended result code."""
    code: int = getattr(error, "extendedresult", 0)
    return code


def is_full(error: apsw.Error, connection: apsw.Connection) -> bool:
    """No space for the write. A quota or a size limit fails in the same write call as a full disk, but
    SQLite calls these an I/O error."""
    if isinstance(error, apsw.FullError | apsw.ReadOnlyError):
        return True
    return refused_write(error, connection) in _NO_SPACE


def refused_write(error: apsw.Error, connection: apsw.Connection) -> int:
    """The system's error number of the write that SQLite calls an I/O error; 0 for any other error."""
    return connection.system_errno if extended_code(error) == apsw.SQLITE_IOERR_WRITE else 0


def translated(error: apsw.Error, database: Path) -> OutlastError:
    """The error of our family for one that SQLite raised before anything was committed."""
    text = str(error).partition(": ")[2] or str(error)
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusyError(f"the store {database} stayed locked, nothing was stored", hint=_BUSY_HINT)
        case apsw.FullError():
            return full(database, text)
        case apsw.ReadOnlyError():
            return _refused(database, text)
        case apsw.IOError() if extended_code(error) in _SHARED_MEMORY and _has_no_space(database):
            return full(database, "there is no space even for the file that its readers share")
        case apsw.NotADBError():
            return SchemaError(f"{database} is not an outlast store: {text}", hint="it was not touched")
        case apsw.CorruptError():
            return IntegrityError(
                f"the database {database} is damaged: {text}",
                seq=0,
                reason="malformed",
                hint="keep a copy, then see `outlast doctor`",
            )
        case apsw.CantOpenError():
            return StoreAccessError(
                f"the store {database} cannot be opened: {text}",
                hint="look whether its folder is there and may be written by you; `outlast doctor` does",
            )
    return StoreError(f"the store {database} failed: {text}")


_SHARED_MEMORY = frozenset(
    {
        apsw.SQLITE_IOERR_SHMOPEN,
        apsw.SQLITE_IOERR_SHMSIZE,
        apsw.SQLITE_IOERR_SHMMAP,
        apsw.SQLITE_IOERR_SHMLOCK,
    }
)
"""The file beside a database in WAL mode, which whoever opens it first makes, also to read."""
_SHARED_MEMORY_SIZE = 64 << 10
"""It begins with half of that."""


def _has_no_space(database: Path) -> bool:
    try:
        found = os.statvfs(database.parent)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _SHARED_MEMORY_SIZE or found.f_files > 0 == found.f_favail


def _refused(database: Path, text: str) -> OutlastError:
    """A database that takes no writes: its filesystem is read-only, or this user may not write it."""
    try:
        still = bool(os.statvfs(database).f_flag & os.ST_RDONLY)
    except OSError:
        still = False
    if still:
        return full(database, text)
    return StoreAccessError(
        f"the store {database} takes no writes: {text}",
        hint="nothing was stored; `outlast doctor` checks the permissions",
    )


_BUSY_HINT = "try again; `outlast doctor` names who holds it"


def full(database: Path, text: str) -> StoreFullError:
    return StoreFullError(
        f"the store {database} takes no writes: {text}",
        hint="nothing was stored; it works again once there is space and the filesystem takes writes",
    )
