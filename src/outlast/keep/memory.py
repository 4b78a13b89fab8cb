"""Whether the kernel has killed for want of memory where an agent runs.

A SIGKILL does not say who sent it. The kernel counts those that it sends itself, per memory cgroup; an agent
starts in that of its shim. Standard library only, light parts only.
"""

from __future__ import annotations

from .proc import SIGKILL

_SELF, _MOUNTS, _MACHINE = "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/vmstat"
_EVENTS, _CONTROL = "memory.events", "memory.oom_control"
_CHILD_KILLED = (128 + SIGKILL) << 8


class OomWatch:
    """The count of this process's memory cgroup, as it was when the watch began; that of the whole machine
    where no cgroup tells."""

    __slots__ = ("_before", "_file", "whole_machine")

    def __init__(self, cgroups: str = _SELF, mounts: str = _MOUNTS, machine: str = _MACHINE) -> None:
        self._file = _counter(_read(cgroups), _read(mounts)) or machine
        self.whole_machine = self._file == machine
        self._before = _count(self._file)

    def has_starved(self, status: int) -> bool:
        """Whether a child that ended with this wait status, killed by nobody here, ended for want of memory:
        it, or the process that it waited for (a shell says that by its own status)."""
        by_child = status == _CHILD_KILLED and not self.whole_machine
        return (status == SIGKILL or by_child) and self.has_killed()

    def has_killed(self) -> bool:
        """Whether the kernel has killed for want of memory since. False where it does not tell any more."""
        before, now = self._before, _count(self._file)
        return before is not None and now is not None and now > before


def _counter(cgroups: str, mounts: str) -> str | None:
    """The file that counts for the cgroups that /proc/PID/cgroup names: version 2 before version 1, the
    nearest cgroup above that has one."""
    for line in cgroups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found = _nearest(_folder(mounts, path, "cgroup2", ""), path, _EVENTS)
        elif "memory" in controllers.split(","):
            found = _nearest(_folder(mounts, path, "cgroup", "memory"), path, _CONTROL)
        else:
            continue
        if found is not None:
            return found
    return None


def _folder(mounts: str, path: str, kind: str, option: str) -> str | None:
    """Where the cgroup `path` is in the file system; None where its hierarchy is not mounted."""
    for line in mounts.splitlines():
        mount, _, file_system = line.partition(" - ")
        fields, described = mount.split(" "), file_system.split(" ")
        if len(fields) < 5 or len(described) < 3 or described[0] != kind:
            continue
        if option and option not in described[2].split(","):
            continue
        # A container sees its own part of the hierarchy: mounted from there, and perhaps named from there.
        root, point = fields[3].rstrip("/"), fields[4].rstrip("/")
        inside = path[len(root) :] if path == root or path.startswith(f"{root}/") else path
        return point + inside.rstrip("/")
    return None


def _nearest(folder: str | None, path: str, name: str) -> str | None:
    """In version 2 a cgroup's count holds those below it, so that one above counts as well."""
    if folder is None:
        return None
    for _ in range(path.count("/") + 1):
        if _count(f"{folder}/{name}") is not None:
            return f"{folder}/{name}"
        if name != _EVENTS:
            return None
        folder = folder.rpartition("/")[0]
    return None


def _count(file: str) -> int | None:
    for line in _read(file).splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return None


def _read(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
