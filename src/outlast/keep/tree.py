"""Whether anything of a generation's process tree still lives.

Standard library only, light parts only: the shim asks this of the generation before its own.
"""

from __future__ import annotations

import os

from . import layout, proc
from .fields import FieldsDamaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .fields import Fields

DEAD, ALIVE, UNKNOWN, COPIED = "dead", "alive", "unknown", "copied"


class Verdict:
    """The answer, what it rests on, and the processes that it names."""

    __slots__ = ("evidence", "pids", "state")

    def __init__(self, state: str, evidence: str, pids: list[int] | None = None) -> None:
        self.state = state
        self.evidence = evidence
        self.pids = pids or []


def look(generation_fd: int) -> Verdict:
    """Judge the generation in this folder; changes nothing."""
    damage = ""
    for name, who in ((layout.EXIT, "shim"), (layout.GUARD, "guard")):
        try:
            record = layout.read_record(name, dir_fd=generation_fd)
            if record is not None and record.integer("verified", 0):
                return Verdict(DEAD, f"the {who} saw its last child end")
        except FieldsDamaged as damaged:
            # The other one may still tell.
            damage = damage or str(damaged)
    try:
        identity = layout.read_placed(layout.ID, dir_fd=generation_fd)
        if identity is not None:
            return _by_identity(identity, generation_fd)
    except FieldsDamaged as damaged:
        damage = str(damaged)
    holder = layout.lock_holder(layout.GUARD, dir_fd=generation_fd)
    if holder is not None:
        return Verdict(ALIVE, "its guard lives", [holder] if holder else [])
    if damage:
        return Verdict(UNKNOWN, f"a record is damaged: {damage}")
    return Verdict(DEAD, "no shim ever took its place here")


def _by_identity(identity: Fields, generation_fd: int) -> Verdict:
    verdict = _by_processes(identity, generation_fd)
    if not is_copy(identity, generation_fd):
        return verdict
    # Nobody holds a lock on the copy of a file.
    pids = _living(identity) or verdict.pids
    if not pids and verdict.state == DEAD:
        return verdict
    return Verdict(COPIED, "its folder here is a copy of the one that it ran in", pids)


def is_copy(identity: Fields, generation_fd: int) -> bool:
    """Whether the folder is a copy of the one in which the generation ran: then what runs there is not what
    this one tells of.

    A folder keeps its inode when it is renamed or mounted elsewhere, and a copy gets another. Devices are
    numbered anew by another boot and in another container, so there they tell nothing.
    """
    here = os.fstat(generation_fd)
    same = identity.text("boot") == proc.boot_id() and identity.text("pid_ns") == proc.pid_namespace()
    return here.st_ino != identity.integer("ino") or (same and here.st_dev != identity.integer("dev"))


def _living(identity: Fields) -> list[int]:
    """Shim and guard, as far as they live and can be seen from here."""
    if identity.text("boot") != proc.boot_id() or identity.text("pid_ns") != proc.pid_namespace():
        return []
    found = []
    for role in ("shim", "guard"):
        pid = identity.integer(f"{role}_pid")
        if proc.is_alive(pid, identity.integer(f"{role}_ticks")):
            found.append(pid)
    return found


def _by_processes(identity: Fields, generation_fd: int) -> Verdict:
    boot = identity.text("boot")
    if boot and boot != proc.boot_id():
        return Verdict(DEAD, "it was another boot of this machine")
    holder = layout.lock_holder(layout.GUARD, dir_fd=generation_fd)
    if holder is not None:
        return Verdict(ALIVE, "its guard lives", [holder] if holder else [])
    if not layout.LINUX:
        return Verdict(UNKNOWN, "its guard is gone and this system cannot find what it has left")
    if identity.text("pid_ns") != proc.pid_namespace():
        return Verdict(UNKNOWN, "its guard is gone and it ran in another pid namespace")
    shim, ticks = identity.integer("shim_pid"), identity.integer("shim_ticks")
    if proc.is_alive(shim, ticks):
        return Verdict(ALIVE, "its shim lives", [shim])
    found, suspects = proc.marked(identity.text("marker"), ticks)
    if found:
        return Verdict(ALIVE, "shim and guard are gone, processes with its marker are not", found)
    if suspects:
        return Verdict(
            UNKNOWN, "shim and guard are gone, and some processes hide their environment", suspects
        )
    return Verdict(DEAD, "shim and guard are gone and no process carries its marker")


def open_generation(folder_fd: int, number: int) -> int | None:
    """Descriptor of the generation's folder; None if there is none."""
    try:
        name = layout.generation_name(number)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder_fd)
    except FileNotFoundError:
        return None
