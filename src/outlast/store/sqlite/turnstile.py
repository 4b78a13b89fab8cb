"""Whose turn it is to write, over all processes: fair, and with a deadline.

SQLite's own wait is a race of sleepers: with eight writers one of them waits for seconds. Here a writer
takes the gate, then the turn, then gives the gate back: whoever holds the gate is next.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outlast.errors import StoreBusyError
from outlast.store.sqlite.layout import Layout, open_side_file, unwritable

_open: weakref.WeakSet[Turnstile] = weakref.WeakSet()
_TURN_NAP = 0.0002
_GATE_NAP_FIRST, _GATE_NAP_LAST = 0.003, 0.0003
_GATE_NAP_SHRINKS_OVER = 0.011
_STUCK_AFTER, _STUCK_NAP = 1.0, 0.004


class Turnstile:
    """Locks belong to open files (flock), not to the process: two stores in one process exclude each other,
    and closing one file drops no lock of another."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._gate = open_side_file(layout.gate)
        try:
            self._turn = open_side_file(layout.turn)
        except OSError:
            os.close(self._gate)
            raise
        _open.add(self)

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Hold the turn. Raises StoreBusyError, naming the holder, when it does not come within `seconds`."""
        deadline = time.monotonic() + seconds
        self._take(self._gate, self._layout.gate, deadline, gate_nap)
        try:
            self._take(self._turn, self._layout.turn, deadline, turn_nap)
        finally:
            _give_back(self._gate)
        try:
            yield
        finally:
            _give_back(self._turn)

    def _take(self, lock: int, path: Path, deadline: float, nap: Callable[[float], float]) -> None:
        begun = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            except OSError as error:
                raise unwritable(path, error) from error
            else:
                return
            now = time.monotonic()
            if now >= deadline:
                raise busy(self._layout, path)
            time.sleep(nap(now - begun))

    def close(self) -> None:
        """Also a second time: by number the descriptors may be somebody else's by then."""
        if self in _open:
            _open.discard(self)
            os.close(self._gate)
            os.close(self._turn)


def gate_nap(waited: float) -> float:
    """Seconds until a writer that has waited `waited` seconds at the gate looks again. Many may wait there,
    and who looks most often gets in: so those who came first do. Naps that grow let newcomers overtake, and
    with eight writers one of them then waits for a tenth of a second."""
    if waited > _STUCK_AFTER:
        return _STUCK_NAP
    age = min(1.0, waited / _GATE_NAP_SHRINKS_OVER)
    return _GATE_NAP_FIRST + (_GATE_NAP_LAST - _GATE_NAP_FIRST) * age


def turn_nap(waited: float) -> float:
    """The same for the turn, where nobody else waits."""
    return _STUCK_NAP if waited > _STUCK_AFTER else _TURN_NAP


def _give_back(lock: int) -> None:
    # What was committed within the turn stays so: nothing may fail here.
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_UN)


def _leave_to_the_parent() -> None:
    """In a forked child: a shared open file would keep its lock when the parent dies inside its turn."""
    for turnstile in list(_open):
        turnstile.close()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def busy(layout: Layout, path: Path) -> StoreBusyError:
    holder = lock_holder(layout.turn) or lock_holder(path)
    who = f" by {holder}" if holder else ""
    return StoreBusyError(
        f"the store {layout.database} stayed locked{who}, nothing was stored",
        hint="try again; a stopped process (state T) inside a transaction blocks all others until it ends",
    )


def lock_holder(path: Path) -> str | None:
    """The process that holds a lock of the file `path`, for people; by /proc/locks, None where unknown."""
    try:
        inode = path.stat().st_ino
        table = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return None
    pid = pid_of_lock(inode, table)
    return describe(pid) if pid else None


def pid_of_lock(inode: int, table: str) -> int | None:
    """Who holds an exclusive lock on `inode`, by a text in the form of /proc/locks. Waiters (`->`) do not
    count. Devices are not compared: some filesystems show another one there than stat does."""
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 6 or fields[1] == "->" or fields[3] != "WRITE":
            continue
        if fields[5].rpartition(":")[2] == str(inode) and int(fields[4]) > 0:
            return int(fields[4])
    return None


def describe(pid: int) -> str:
    """`process 123 (name, state T)`; reads /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"process {pid}"
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return f"process {pid} ({name}, state {rest.split()[0]})"
