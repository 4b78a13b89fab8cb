"""`outlast ARGUMENTS` on a disk that fails: python failing_disk.py WHAT NTH FILE ARGUMENTS

The NTH `write` or `sync` of a write-ahead log fails with an I/O error, and every one after it until FILE
exists. SQLite's file layer is replaced by one that does so; all else is as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

if TYPE_CHECKING:
    from outlast.store.sqlite.engine import Engine

WHAT, NTH, MENDED = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
CODES = {"write": apsw.SQLITE_IOERR_WRITE, "sync": apsw.SQLITE_IOERR_FSYNC}

done = 0
closing = False


def check(what: str) -> None:
    global done  # noqa: PLW0603 - one process, one disk
    if what != WHAT or closing:
        return
    done += 1
    if done >= NTH and not MENDED.exists():
        error = apsw.IOError("made to fail")
        error.extendedresult = CODES[what]  # type: ignore[attr-defined]
        raise error


class Log(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        self._is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xLock(self, level: int) -> None:  # noqa: N802
        try:
            super().xLock(level)
        except apsw.IOError as error:
            # A reader that closes tries for the writer's lock. From here SQLite would tell of it.
            raise apsw.BusyError from error

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        if self._is_log:
            check("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._is_log:
            check("sync")
        super().xSync(flags)


class Layer(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> Log:  # noqa: N802
        return Log(name, flags)


def close(self: Engine) -> None:
    """SQLite passes over what fails as it closes; a layer in Python would tell of it all the same."""
    global closing  # noqa: PLW0603
    closing = True
    really_close(self)


if __name__ == "__main__":
    layer = Layer()
    from outlast.cli import main
    from outlast.store.sqlite.engine import Engine

    really_close, Engine.close = Engine.close, close  # type: ignore[method-assign]

    sys.argv = ["outlast", *sys.argv[4:]]
    sys.exit(main())
