"""Processes: who they are, whose children they are, and how a whole tree is ended and known to be gone.

Standard library only, light parts only: the shim imports this. Linux reads /proc; elsewhere what cannot be
known is said to be unknown.
"""

from __future__ import annotations

import os
import sys
import time

SIGKILL, SIGTERM = 9, 15
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
MARKER = b"OUTLAST_AGENT"
"""Environment variable that carries the generation's opaque marker."""
_EXEC_PATIENCE = 20
"""How often to look, a millisecond apart, at a process that has no environment just now."""


def _find_prctl() -> int:
    # `_ctypes` alone starts in a third of the time of `ctypes`.
    import _ctypes

    handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    address: int = _ctypes.dlsym(handle, "prctl")
    return address


_prctl_address = _find_prctl() if sys.platform == "linux" else 0


def _prctl(option: int, value: int | bytes) -> bool:
    if not _prctl_address:
        return False
    import _ctypes

    return bool(_ctypes.call_function(_prctl_address, (option, value, 0, 0, 0)) == 0)


def become_subreaper() -> bool:
    """Orphans among this process's descendants become its children from now on. False where unsupported."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """The kernel kills this process when its parent dies (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, SIGKILL)


def set_name(name: bytes) -> None:
    """What `ps` and /proc call this process; at most 15 bytes count."""
    _prctl(_PR_SET_NAME, name + b"\0")


def boot_id() -> str:
    """Identity of this boot of the machine; empty where there is none to be had."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip().decode()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Identity of this process's pid namespace; empty where there are none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            data = file.read()
    except OSError:
        return None
    # The name is in parentheses and may hold any byte, also `)`.
    fields = data[data.rfind(b")") + 2 :].split()
    return fields if len(fields) > 19 else None


def time_offset() -> int:
    """As `outlast.clock.time_offset`, without its imports."""
    try:
        with open("/proc/self/timens_offsets", "rb") as file:
            for line in file.read().splitlines():
                if line.startswith(b"boottime"):
                    _, seconds, nanoseconds = line.split()
                    return int(seconds) * 1_000_000_000 + int(nanoseconds)
    except OSError:
        return 0
    return 0


_OFFSET = time_offset()
_OFFSET_TICKS = _OFFSET * os.sysconf("SC_CLK_TCK") // 1_000_000_000


def boottime() -> int:
    """As `outlast.clock.boottime`: nanoseconds on a clock that counts suspend and never steps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) - _OFFSET


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since the machine's boot, whatever the time namespace; None if
    there is no such process (or a zombie)."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19]) - _OFFSET_TICKS


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger holds the process."""
    fields = _stat(pid)
    return fields is not None and fields[0] in (b"T", b"t")


def parent(pid: int) -> int | None:
    """The process's parent; None if there is no such process."""
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether this very process runs, not another one with its pid."""
    return start_ticks(pid) == ticks


def pids() -> list[int]:
    """Every process that /proc shows."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def descends(pid: int, ancestors: tuple[int, ...]) -> bool | None:
    """Whether the process is, or descends from, one of `ancestors`; None if it (or its line) has vanished."""
    for _ in range(4096):
        if pid in ancestors:
            return True
        up = parent(pid)
        if up is None:
            return None
        if up == 0:
            return False
        pid = up
    return None


def children(of: int) -> list[int]:
    """Direct children, zombies too."""
    try:
        found: list[int] = []
        for task in os.listdir(f"/proc/{of}/task"):
            with open(f"/proc/{of}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        return [pid for pid in pids() if parent(pid) == of]
    return found


def descendants(of: int) -> int:
    """How many processes live below `of`; a picture of one moment, proof of nothing."""
    waiting, count = children(of), 0
    while waiting:
        pid = waiting.pop()
        if start_ticks(pid) is not None:
            count += 1
        waiting += children(pid)
    return count


def carries(pid: int, marker: str) -> bool | None:
    """Whether the process was started with this marker in its environment; None if that may not be read."""
    wanted = MARKER + b"=" + marker.encode()
    try:
        for _ in range(_EXEC_PATIENCE):
            environment = _environment(pid)
            if environment is not None:
                return wanted in environment.split(b"\0")
            time.sleep(0.001)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return None


def _environment(pid: int) -> bytes | None:
    """What the process was started with; None while it is between two programs. Raises OSError."""
    fields = _stat(pid)
    try:
        data = _read_environment(f"/proc/{pid}/environ")
    except PermissionError:
        # Once the main thread has ended this file is root's, whoever runs the others.
        if fields is None or fields[0] not in (b"Z", b"X"):
            raise
        data = b""
    if data or fields is None:
        return data
    kernel_thread, environment_end = int(fields[6]) & 0x200000, int(fields[48])
    if kernel_thread or environment_end:
        return b""
    # A main thread that has ended has no memory any more; others of the process may run on.
    for task in os.listdir(f"/proc/{pid}/task"):
        if task == str(pid):
            continue
        try:
            data = data or _read_environment(f"/proc/{pid}/task/{task}/environ")
        except FileNotFoundError:
            continue
    return data or (b"" if fields[0] in (b"Z", b"X") else None)


def _read_environment(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except ProcessLookupError:
        # No memory (any more): some kernels say so, others give nothing.
        return b""


def marked(marker: str, since: int) -> tuple[list[int], list[int]]:
    """Processes with the marker, and suspects: processes of this user, not older than `since` (start ticks),
    whose environment cannot be read because they have made themselves undumpable.

    Zombies count in neither: they run nothing.
    """
    with_marker, suspects = [], []
    for pid in pids():
        answer = carries(pid, marker)
        if answer:
            with_marker.append(pid)
        elif answer is None and (start_ticks(pid) or 0) >= since and _user(pid) == os.getuid():
            suspects.append(pid)
    return with_marker, suspects


def _user(pid: int) -> int | None:
    # The owner of /proc/PID is root for an undumpable process; `Uid:` is the truth.
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Uid:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def signal_process(pid: int, number: int) -> None:
    """Send a signal; a process that is gone or not ours is no error here: the reaping tells."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group; one that is gone is no error."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


class Reaped:
    """What waiting for one watched process told."""

    __slots__ = ("max_rss", "status")

    def __init__(self, status: int, max_rss: int) -> None:
        self.status = status
        self.max_rss = max_rss


def reap(watched: int, found: Reaped | None) -> tuple[Reaped | None, bool]:
    """Collect every child that has ended, without blocking.

    Returns what is known of the child `watched`, and whether no child is left at all (ECHILD): for a
    subreaper that means that nothing of its tree lives, and it is the only proof there is.
    """
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return found, True
        if pid == 0:
            return found, False
        if pid == watched:
            found = Reaped(status, usage.ru_maxrss)


def end_step(watched: int, found: Reaped | None) -> tuple[Reaped | None, bool]:
    """One round of ending this subreaper's whole tree; repeat until the second value is True.

    Only direct children are killed: a dead child's own children become ours and are next. A walk over
    /proc would miss chains that fork and exit; waiting cannot.
    """
    for pid in children(os.getpid()):
        signal_process(pid, SIGKILL)
    return reap(watched, found)
