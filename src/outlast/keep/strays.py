"""Agents of a store that live elsewhere than in its folder: one that was moved aside or removed, as when a
backup is put back, has them still."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from outlast.keep import layout, proc
from outlast.keep.fields import FieldsDamaged

_SHIM = b"outlast-shim"
_REMOVED = " (deleted)"


@dataclass(frozen=True)
class Stray:
    """A living shim. `folder` is where its agent folder is now, or was when it was removed."""

    pid: int
    folder: Path
    removed: bool


def strays(store_id: str, folders: Path) -> list[Stray]:
    """The shims of this user that serve the store `store_id` and whose agent folder does not lie in
    `folders`. Of a folder that was removed only its place tells whose it was. Linux; elsewhere none is
    found. Blocking."""
    here = Path(os.path.realpath(folders))
    found = (_stray(pid, store_id, here) for pid in proc.pids() if _name(pid) == _SHIM)
    return [stray for stray in found if stray is not None]


def _name(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().strip()
    except OSError:
        return b""


def _stray(pid: int, store_id: str, here: Path) -> Stray | None:
    """By the folders that it has open, its agent folder among them."""
    if proc.start_ticks(pid) is None:
        return None
    removed = None
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return None  # of another user, or gone by now
    for name in names:
        try:
            place = os.readlink(f"/proc/{pid}/fd/{name}")
            fd = os.open(f"/proc/{pid}/fd/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            floor = layout.read_floor(fd)
        except (OSError, FieldsDamaged):
            floor = None
        finally:
            os.close(fd)
        if place.endswith(_REMOVED):
            gone = Path(place.removesuffix(_REMOVED))
            removed = gone if gone.parent == here else removed
        elif floor is not None and floor.store_id == store_id:
            return None if Path(place).parent == here else Stray(pid, Path(place), removed=False)
    return None if removed is None else Stray(pid, removed, removed=True)
