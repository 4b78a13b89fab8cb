"""The runtime's view of an agent folder: one per (session, loop), with a folder per agent life in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outlast.faults import point
from outlast.keep import layout
from outlast.keep.errors import BelowFloorError, FolderLockHeldError, ForeignFolderError
from outlast.keep.fields import FieldsDamaged, Value

# A POSIX lock does not exclude threads of one process, and closing any descriptor drops it.
_in_this_process = threading.Lock()

_LONGEST_ID = 255
"""So that a floor always fits its record."""


@dataclass(frozen=True)
class Claim:
    """In whose name an owner comes: the store, the session's lineage, the lease's epoch and its holder.

    Only the holder of a lease can make one. `holder` tells two owners of one epoch apart (there are none,
    unless a store was copied); it is the incarnation's id. Each text has at most 255 bytes.
    """

    store_id: str
    lineage: str
    epoch: int
    holder: str

    def __post_init__(self) -> None:
        if max(len(text.encode()) for text in (self.store_id, self.lineage, self.holder)) > _LONGEST_ID:
            raise ValueError(f"store id, lineage and holder have at most {_LONGEST_ID} bytes each")

    def fields(self) -> dict[str, Value]:
        """As the shim reads it."""
        return {
            "store_id": self.store_id,
            "lineage": self.lineage,
            "epoch": self.epoch,
            "holder": self.holder,
        }


@dataclass(frozen=True)
class AgentFolder:
    """An agent folder, by its absolute path (record it: nothing else finds the shim again)."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> AgentFolder:
        """Make the folder (0700, as each parent that it has to make) if it is not there. Raises OSError."""
        path = path.absolute()
        missing = [path]
        while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
            missing.append(missing[-1].parent)
        # One by one: `parents=True` would make them as the umask has it.
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        return cls(path)

    def generation(self, number: int) -> Generation:
        """The generation of this number, whether it exists or not."""
        return Generation(self, number)

    def latest(self) -> Generation | None:
        """The newest generation; None if there is none. Raises OSError."""
        try:
            number = layout.latest_generation(os.fsencode(self.path))
        except FileNotFoundError:
            return None
        return Generation(self, number) if number else None

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the folder. Raises FileNotFoundError."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the folder's lock: no shim lives, none can begin. Gives a descriptor of the folder.

        Raises FolderLockHeldError. Do not await inside: the lock also excludes this process's threads.
        """
        with _in_this_process, self.opened() as fd:
            lock = os.open(layout.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=fd)
            try:
                if not layout.try_lock(lock):
                    holder = layout.lock_holder(layout.LOCK, dir_fd=fd) or 0
                    raise FolderLockHeldError("a living shim holds the agent folder", pid=holder)
                yield fd
            finally:
                os.close(lock)


def lock_holder(folder_fd: int) -> int | None:
    """Pid that holds the folder's lock, 0 if it cannot be seen from here, None if the lock is free.

    Never inside `AgentFolder.locked`: looking would drop the lock.
    """
    with _in_this_process:
        return layout.lock_holder(layout.LOCK, dir_fd=folder_fd)


@dataclass(frozen=True)
class Generation:
    """One agent life: guard, shim, agent, and the folder that tells of them for ever."""

    folder: AgentFolder
    number: int

    @property
    def name(self) -> str:
        return layout.generation_name(self.number)

    @property
    def path(self) -> Path:
        return self.folder.path / self.name

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the generation's folder. Raises FileNotFoundError."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def stderr_tail(self, limit: int = 65536) -> bytes:
        """The last bytes that the agent wrote to stderr. Private: it may hold anything."""
        tail = b""
        for name in ("stderr.log", "stderr.log.1"):
            try:
                tail = (self.path / name).read_bytes() + tail
            except FileNotFoundError:
                continue
            if len(tail) >= limit:
                break
        return tail[-limit:]


def stderr_path(folder: str, generation: str) -> str:
    """The file that an agent's standard error is kept in, by what the journal says of its life."""
    return f"{folder}/{generation}/{os.fsdecode(layout.STDERR)}"


def raise_floor(folder: AgentFolder, claim: Claim) -> None:
    """Make the claim's epoch the folder's floor, durably, while no shim lives: no shim of a lower epoch can
    begin afterwards, and none runs.

    A floor that cannot be read any more is made anew: whoever comes here has just been given the store's
    newest lease, and nobody of an earlier one can record that an agent was started.

    Raises FolderLockHeldError (fence the living shim instead), BelowFloorError, ForeignFolderError, OSError.
    """
    with folder.locked() as fd:
        try:
            floor = layout.read_floor(fd)
        except FieldsDamaged:
            floor = None
        if floor is not None:
            if (floor.store_id, floor.lineage) != (claim.store_id, claim.lineage):
                raise ForeignFolderError("the agent folder belongs to another store or lineage")
            if claim.epoch < floor.epoch:
                raise BelowFloorError("a later owner has been here", floor=floor.epoch)
            if claim.epoch == floor.epoch:
                return
        point("keep.raise_floor.before")
        layout.write_floor(fd, layout.Floor(claim.store_id, claim.lineage, claim.epoch))
        point("keep.raise_floor.after")
