"""Who is alive: each process that owns sessions holds a lock on its own file for as long as it lives.

Dead means that the lock is free: this is immune to reuse of process ids, to pid namespaces, to steps of the
clock and to suspend. The locks are POSIX record locks, which a forked child does not inherit. Their price:
closing *any* descriptor of the file drops them, so a process never opens its own file again; it knows its
own incarnations by `_own`.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outlast.clock import time_offset
from outlast.faults import point
from outlast.store.sqlite.layout import open_side_file, unwritable

_LINUX = sys.platform == "linux"
_FLOCK = "hhqqi4x" if _LINUX else "qqihh"


@dataclass(frozen=True, slots=True)
class Node:
    """One life of a process that can own sessions, as the store knows it."""

    id: str
    pid: int
    start_ticks: int
    """Clock ticks between boot and the process's start; 0 where unknown."""
    boot_id: str
    pid_ns: int
    label: str
    """For people: host, pid and command."""


_own: dict[str, int] = {}
"""Incarnations of this process, by id: the process they belong to (another one after a fork)."""


def is_own(node: str) -> bool:
    return _own.get(node) == os.getpid()


class Incarnation:
    """This process's own node file, locked until `close`."""

    def __init__(self, folder: Path, node: Node) -> None:
        self.node = node
        self._path = folder / node.id
        self._file = -1

    def begin(self) -> None:
        """Create and lock the file; only then may the node be named in the database."""
        try:
            file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                point("store.node.before_write")
                os.write(file, as_text(self.node).encode())
                point("store.node.written")
            except OSError:
                self._path.unlink()
                os.close(file)
                raise
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._file = file
        _own[self.node.id] = os.getpid()

    @property
    def begun(self) -> bool:
        return self._file >= 0

    def end(self, *, remove: bool) -> None:
        """Give the lock back; the file is removed if nothing in the database names it any more."""
        if self._file < 0:
            return
        if remove:
            point("store.node.before_end")
            with suppress(OSError):  # the next new process sweeps it; the lock is given back all the same
                self._path.unlink()
        os.close(self._file)
        self._file = -1
        _own.pop(self.node.id, None)


def as_text(node: Node) -> str:
    lines = (f"{key} {getattr(node, key)}" for key in ("pid", "start_ticks", "boot_id", "pid_ns", "label"))
    return "\n".join(lines) + "\n"


def this_process(node: str, label: str) -> Node:
    pid = os.getpid()
    return Node(node, pid, start_ticks(pid), boot_id(), pid_namespace(), label)


def lock_owner(path: Path) -> int | None:
    """Who locks the file: None if nobody does, else the process id as seen from here, 0 if it is not
    visible here. Raises FileNotFoundError. Must not be asked for a file of this process."""
    file = open_side_file(path, write=False)
    try:
        if _LINUX:
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, request))
        else:
            request = struct.pack(_FLOCK, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
            _, _, pid, kind, _ = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, request))
    finally:
        os.close(file)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def alive(folder: Path, node: Node) -> bool:
    """Whether the incarnation lives: its lock is held."""
    if is_own(node.id):
        return True
    try:
        return lock_owner(folder / node.id) is not None
    except FileNotFoundError:
        # Only its owner or who found it dead removes the file. Where somebody swept the folder by hand,
        # a process of exactly this identity still counts as alive.
        return node.pid_ns == pid_namespace() and is_same_process(node, node.pid)


def is_same_process(node: Node, pid: int) -> bool:
    """Whether the process `pid` is the one that the node names: same boot, same time of start, both known."""
    return node.start_ticks > 0 and node.boot_id == boot_id() and start_ticks(pid) == node.start_ticks


def start_ticks(pid: int) -> int:
    """Clock ticks between the machine's boot and the process's start, in whatever time namespace this process
    is; 0 where they cannot be read."""
    told = _stat_field(pid, 22)
    return told - time_offset() * os.sysconf("SC_CLK_TCK") // 1_000_000_000 if told else 0


def parent_of(pid: int) -> int:
    """Field 4 of /proc/PID/stat; 0 where it cannot be read."""
    return _stat_field(pid, 4)


def _stat_field(pid: int, number: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The second field is the command in brackets and may itself hold spaces and brackets.
    return int(stat.rpartition(b")")[2].split()[number - 3])


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
