"""What lies where in an agent folder, and the small crash-proof files in it.

Standard library only, light parts only: the shim imports this. Paths are bytes, so that no locale matters.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

from . import frames
from .fields import Fields, FieldsDamaged, pack
from .points import point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .fields import Value

LOCK, FLOOR = b"lock", b"floor"
ID, SOCK, EXIT, GUARD, STDERR = b"id", b"sock", b"exit", b"guard", b"stderr.log"
GIVEN = b"given"
"""A witness of the spool: how many inputs were put into it. It may be behind."""
SEGMENT_PREFIX = b"spool."
GENERATION_PREFIX = b"gen-"
SEGMENT_SIZE = 8 << 20
SLOT = 2048
STDERR_LIMIT = 1 << 20
"""`stderr.log` is moved to `stderr.log.1` at this size, so that at most twice this is kept."""


def generation_name(number: int) -> str:
    return f"gen-{number:06d}"


def generation_number(name: bytes) -> int | None:
    digits = name[len(GENERATION_PREFIX) :]
    return int(digits) if name.startswith(GENERATION_PREFIX) and digits.isdigit() else None


def latest_generation(folder: int | bytes) -> int:
    """The highest generation number in the folder, 0 if there is none."""
    return max((n for n in map(generation_number, _names(folder)) if n is not None), default=0)


def segments(folder: int | bytes) -> list[int]:
    """The bases of the spool's segments, in order."""
    names = (name[len(SEGMENT_PREFIX) :] for name in _names(folder) if name.startswith(SEGMENT_PREFIX))
    return sorted(int(name) for name in names if name.isdigit())


def segment_name(base: int) -> bytes:
    return SEGMENT_PREFIX + b"%020d" % base


def _names(folder: int | bytes) -> list[bytes]:
    return [os.fsencode(name) for name in os.listdir(folder)]


def write_all(fd: int, data: bytes, position: int) -> None:
    """pwrite that does not stop half way."""
    view = memoryview(data)
    while view:
        n = os.pwrite(fd, view, position)
        view, position = view[n:], position + n


class Record:
    """A file of two slots; the newer valid one counts, and at rest both hold the same.

    It is preallocated and overwritten in place, so that neither a full disk nor a crash in the middle of a
    write can lose the record that was there before, and damage to one slot costs nothing.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def create(cls, name: bytes, *, dir_fd: int, durable: bool = True) -> Record:
        """Make the file, empty and durable; open it if it is there."""
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
        if os.fstat(fd).st_size < 2 * SLOT:
            write_all(fd, bytes(2 * SLOT), 0)
            if durable:
                os.fsync(fd)
                os.fsync(dir_fd)
        return cls(fd)

    def _slots(self) -> list[tuple[int, int, bytes]]:
        found = []
        for slot in (0, 1):
            data = os.pread(self.fd, SLOT, slot * SLOT)
            try:
                frame = frames.decode(data)
            except frames.FrameDamaged:
                continue
            if frame is not None:
                found.append((frame[0].seq, slot, frame[0].payload))
        return sorted(found)

    @classmethod
    def place(cls, name: bytes, values: Mapping[str, Value], *, dir_fd: int) -> None:
        """A new file that is there with its first record, durably, or not at all."""
        draft = name + b".new"
        record = cls.create(draft, dir_fd=dir_fd, durable=False)
        try:
            record.write(values)
        finally:
            os.close(record.fd)
        point("keep.record.before_rename")
        os.rename(draft, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.fsync(dir_fd)
        point("keep.record.after_rename")

    def read(self) -> Fields | None:
        """The newest record; None if nothing was ever written whole. Raises FieldsDamaged when both
        slots were written and neither is valid."""
        known = self._slots()
        if known:
            return Fields(known[-1][2])
        if all(any(os.pread(self.fd, SLOT, slot * SLOT)) for slot in (0, 1)):
            raise FieldsDamaged("both slots are damaged")
        return None

    def write(self, values: Mapping[str, Value], *, durable: bool = True) -> None:
        """Put a newer record beside the last one, sync it, and then put it over that one too.

        The second copy need not reach the disk: what is written over first is never the only copy that is
        sure to be there. Where both slots hold the same record, its number tells which of them was synced.
        """
        known = self._slots()
        counter, newest = (known[-1][0], known[-1][1]) if known else (0, 1)
        same = len(known) == 2 and known[0][0] == counter
        first = (counter + 1) % 2 if same else 1 - newest
        number = counter + 1 if (counter + 1) % 2 == first else counter + 2
        data = frames.encode(frames.RECORD, pack(values), seq=number)
        if len(data) > SLOT:
            raise ValueError(f"a record is at most {SLOT} bytes, this one has {len(data)}")
        if durable and known and not same:
            _sync(
                self.fd
            )  # A crash, or damage, came between the two copies: the newest may not be on the disk.
        write_all(self.fd, data, first * SLOT)
        if durable:
            _sync(self.fd)
        write_all(self.fd, data, (1 - first) * SLOT)


def _sync(fd: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def read_placed(name: bytes, *, dir_fd: int) -> Fields | None:
    """What a file holds that `Record.place` made; None without one. Raises FieldsDamaged where it holds no
    record: it had one."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    try:
        found = Record(fd).read()
    finally:
        os.close(fd)
    if found is None:
        raise FieldsDamaged(f"no record is left in the file {os.fsdecode(name)}")
    return found


def read_record(name: bytes, *, dir_fd: int) -> Fields | None:
    """What the record file holds; None without a file or before its first record."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    try:
        return Record(fd).read()
    finally:
        os.close(fd)


class Floor:
    """Which store and lineage a folder belongs to, and the highest epoch that ever owned it."""

    __slots__ = ("epoch", "lineage", "store_id")

    def __init__(self, store_id: str, lineage: str, epoch: int) -> None:
        self.store_id = store_id
        self.lineage = lineage
        self.epoch = epoch


def read_floor(dir_fd: int) -> Floor | None:
    """The folder's floor; None if it never had an owner. Raises FieldsDamaged if it was damaged."""
    found = read_placed(FLOOR, dir_fd=dir_fd)
    if found is None:
        return None
    return Floor(found.text("store_id"), found.text("lineage"), found.integer("epoch"))


def write_floor(dir_fd: int, floor: Floor) -> None:
    """Write the floor durably. Only under the folder's lock."""
    values: dict[str, Value] = {"store_id": floor.store_id, "lineage": floor.lineage, "epoch": floor.epoch}
    if FLOOR not in _names(dir_fd):
        Record.place(FLOOR, values, dir_fd=dir_fd)
        return
    record = Record.create(FLOOR, dir_fd=dir_fd)
    try:
        record.write(values)
    finally:
        os.close(record.fd)


def try_lock(fd: int) -> bool:
    """Take the POSIX lock on the whole file: it belongs to this process alone, a fork does not inherit it,
    and closing *any* descriptor of the file drops it."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


LINUX: bool = sys.platform.startswith("linux")
_FLOCK = struct.Struct("hhqqi4x")


def lock_holder(name: bytes, *, dir_fd: int) -> int | None:
    """Pid of the process that holds the file's lock, 0 if it is in another pid namespace, None if free.

    Never call it in the process that holds the lock: closing the file would drop it.
    """
    try:
        fd = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    try:
        if LINUX:
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
            kind, _, _, _, pid = _FLOCK.unpack(answer)
            return None if kind == fcntl.F_UNLCK else max(0, pid)
        return None if try_lock(fd) else 0
    finally:
        os.close(fd)
