"""Whether an agent's tree is dead, and ending what a dead guard has left."""

from __future__ import annotations

import time
from dataclasses import dataclass

from outlast.faults import point
from outlast.keep import layout, proc, tree
from outlast.keep.fields import FieldsDamaged
from outlast.keep.folder import Generation


@dataclass(frozen=True)
class Verified:
    """Nothing of the tree lives; `evidence` says how that is known."""

    evidence: str


@dataclass(frozen=True)
class Alive:
    """Something lives: guard, shim, or (both gone) processes with the generation's marker."""

    evidence: str
    pids: tuple[int, ...]


@dataclass(frozen=True)
class Unknown:
    """It cannot be known; `pids` may be some of it."""

    evidence: str
    pids: tuple[int, ...]


def tree_dead(generation: Generation) -> Verified | Alive | Unknown:
    """Judge the generation's process tree; changes nothing. Check under the agent folder's lock before
    anything is started or resumed in its place (an idle shim's start does). Raises OSError.

    Verified means: shim or guard recorded a verified end, or the boot was another, or both are gone and no
    process of this user carries the generation's marker. What lives and belongs to the original of a copied
    folder is Unknown here.
    """
    try:
        with generation.opened() as fd:
            verdict = tree.look(fd)
    except FileNotFoundError:
        return Verified("there is no such generation")
    if verdict.state == tree.DEAD:
        return Verified(verdict.evidence)
    kind = Alive if verdict.state == tree.ALIVE else Unknown
    return kind(verdict.evidence, tuple(verdict.pids))


def kill_marked(generation: Generation, *, seconds: float = 5.0) -> Verified | Alive | Unknown:
    """The last resort when guard *and* shim are dead: SIGKILL every process that carries the marker, until
    none does or `seconds` have passed. What hides from the marker is not found; `tree_dead` says so.

    Does nothing while guard or shim lives: they do it better; nothing in a copy of the folder: what it tells
    of belongs to the original. Raises OSError.
    """
    try:
        return _kill_marked(generation, time.monotonic() + seconds)
    except FileNotFoundError:
        return tree_dead(generation)  # Somebody has removed the folder.


def _kill_marked(generation: Generation, deadline: float) -> Verified | Alive | Unknown:
    verdict = tree_dead(generation)
    with generation.opened() as fd:
        try:
            identity = layout.read_placed(layout.ID, dir_fd=fd)
        except FieldsDamaged:
            return verdict  # the marker is lost with it
    if identity is None:
        return verdict
    marker, since = identity.text("marker"), identity.integer("shim_ticks")
    while isinstance(verdict, Alive) and not _guarded(generation) and time.monotonic() < deadline:
        for pid in proc.marked(marker, since)[0]:
            point("keep.kill_marked.before")
            proc.signal_process(pid, proc.SIGKILL)
            point("keep.kill_marked.after")
        verdict = tree_dead(generation)
    return verdict


def _guarded(generation: Generation) -> bool:
    with generation.opened() as fd:
        if layout.lock_holder(layout.GUARD, dir_fd=fd) is not None:
            return True
        identity = layout.read_placed(layout.ID, dir_fd=fd)
    return identity is not None and proc.is_alive(
        identity.integer("shim_pid"), identity.integer("shim_ticks")
    )
