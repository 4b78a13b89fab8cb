"""The shim's side of the spool: an append-only log of frames in segments, that never drops anything.

Standard library only, light parts only.
"""

from __future__ import annotations

import bisect
import errno
import os
import time

from . import frames, layout
from .fields import pack
from .points import point
from .proc import boottime

_COMINGS = (frames.ATTACHED, frames.OWNER_GONE, frames.FENCED)
_MOST_COMINGS = 256


_Note = tuple[int, int, bytes, int, int]
"""(kind, flags, payload, seq, time)"""


def sync(fd: int) -> None:
    """Make a file's bytes durable."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


class DiskRefused(Exception):  # noqa: N818 - caught inside the shim only
    """The frame is not in the spool: the disk took none of it, and what it took was cut off again."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.errno = number


class Spool:
    """Append, sync, trim. `tip` is the end of the last whole frame, `base` the first kept offset."""

    def __init__(self, dir_fd: int, boot: str) -> None:
        self._dir = dir_fd
        self._boot = boot
        self._bases: list[int] = []
        self._fd = -1
        self._size = 0
        self._notes: list[_Note] = []
        self._unsynced_before: list[int] = []
        """Bases of earlier segments that have not been synced."""
        self._dirty = False
        """Whether the current segment has bytes that are not synced."""
        self.tip = 0
        self.stdout = 0
        """Bytes of the agent's stdout that the spool holds or has held."""
        self.last_input = 0
        self.last_digest = b""
        self.written_through = 0
        self.limited_at: float | None = None
        """Since when, on the monotonic clock, the disk refuses all because a file may not grow so large."""
        self.careful = True
        """Whether a full segment is synced before the next one is begun."""
        self._rotate()
        self._witness = layout.Record.create(layout.GIVEN, dir_fd=dir_fd, durable=False)

    @property
    def base(self) -> int:
        return self._bases[0]

    @property
    def unsynced(self) -> bool:
        """Whether something that was appended is not durable yet."""
        return self._dirty or bool(self._unsynced_before)

    @property
    def kept(self) -> int:
        """Bytes on disk."""
        return self.tip - self.base

    def append(self, kind: int, payload: bytes | memoryview = b"", *, flags: int = 0, seq: int = 0) -> int:
        """Put one frame at the end and say where it begins. After DiskRefused nothing of it is there."""
        self.flush()
        return self._append(kind, payload, flags, seq)

    def given(self, seq: int, digest: bytes) -> None:
        """Input `seq` is in the spool, whole and durable. That is noted beside it too, before anybody relies
        on it: a spool that loses its end must not look as if the input had never come."""
        self.last_input, self.last_digest = seq, digest
        try:
            point("keep.given.before")
            self._witness.write({"last_input": seq}, durable=False)
            point("keep.given.after")
        except OSError:
            # A witness may be behind.
            return

    def note(self, kind: int, payload: bytes = b"", *, flags: int = 0, seq: int = 0) -> None:
        """Put a frame that must not fail: on a full disk it waits and goes before the next one."""
        try:
            self.append(kind, payload, flags=flags, seq=seq)
        except DiskRefused:
            self._remember((kind, flags, payload, seq, boottime()))

    def _remember(self, note: _Note) -> None:
        kind, _, _, seq, _ = note
        if kind == frames.WRITTEN:
            self.written_through = seq
        if kind == frames.VOID and any(waiting[0] == frames.VOID for waiting in self._notes):
            # Where a void waits for the disk no part of an input has come after it.
            return
        self._notes.append(note)
        comings = [waiting for waiting in self._notes if waiting[0] in _COMINGS]
        if len(comings) > _MOST_COMINGS:
            # Only arrivals and departures can pile up, and the last ones say it all.
            self._notes.remove(comings[0])

    @property
    def notes_wait(self) -> bool:
        """Whether notes wait for the disk."""
        return bool(self._notes)

    def flush(self) -> None:
        """Put the notes that wait. Raises DiskRefused."""
        while self._notes:
            kind, flags, payload, seq, at = self._notes[0]
            self._append(kind, payload, flags, seq, at=at)
            del self._notes[0]

    def _append(
        self, kind: int, payload: bytes | memoryview, flags: int, seq: int, at: int | None = None
    ) -> int:
        size = frames.HEADER_SIZE + len(payload)
        if self._size + size > layout.SEGMENT_SIZE:
            self._rotate()
        begin = self.tip
        head = frames.header(
            kind, payload, flags=flags, seq=seq, offset=self.stdout, time=boottime() if at is None else at
        )
        try:
            point("keep.spool.append")
            self._put(head, payload)
        except OSError as error:
            self._cut_back()
            raise self._refused(error) from None
        point("keep.spool.appended")
        self.limited_at = None
        self._size += size
        self.tip += size
        self._dirty = True
        if kind == frames.OUTPUT:
            self.stdout += len(payload)
        elif kind == frames.WRITTEN:
            self.written_through = seq
        return begin

    def _refused(self, error: OSError) -> DiskRefused:
        if error.errno == errno.EFBIG and self.limited_at is None:
            self.limited_at = time.monotonic()
        return DiskRefused(error.errno or 0)

    def _put(self, head: bytes, payload: bytes | memoryview) -> None:
        done = os.writev(self._fd, (head, payload)) if payload else os.write(self._fd, head)
        while done < len(head) + len(payload):
            if done < len(head):
                done += os.write(self._fd, head[done:])
            else:
                done += os.write(self._fd, memoryview(payload)[done - len(head) :])

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            # The reader stops at the torn frame; O_APPEND is not used, so the next frame goes over it.
            pass
        os.lseek(self._fd, self._size, os.SEEK_SET)

    def _rotate(self) -> None:
        payload = pack(
            {
                "version": frames.VERSION,
                "boot": self._boot,
                "wall": time.time_ns(),
                "base": self.tip,
                "last_input": self.last_input,
                "last_digest": self.last_digest,
                "written": self.written_through,
            }
        )
        head = frames.encode(frames.HEAD, payload, offset=self.stdout, time=boottime())
        name = layout.segment_name(self.tip)
        fd = -1
        try:
            if self.careful and self._fd >= 0:
                self.sync()
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600, dir_fd=self._dir)
            layout.write_all(fd, head, 0)
            os.lseek(fd, len(head), os.SEEK_SET)
            point("keep.segment.before_fsync")
            os.fsync(self._dir)
            point("keep.segment.after_fsync")
        except OSError as error:
            if fd >= 0:
                os.close(fd)
                self._discard(name)
            raise self._refused(error) from None
        if self._fd >= 0:
            os.close(self._fd)
        if self._dirty:
            self._unsynced_before.append(self._bases[-1])
        self._dirty = False
        self._fd = fd
        self._bases.append(self.tip)
        self._size = len(head)
        self.tip += len(head)

    def _discard(self, name: bytes) -> None:
        try:
            os.unlink(name, dir_fd=self._dir)
        except OSError:
            # An empty segment says nothing, and the next attempt begins it anew.
            return

    def sync(self) -> None:
        """Make everything appended so far durable: whoever reads stops at the first hole, so the older
        segments first. Raises OSError."""
        while self._unsynced_before:
            self._sync_segment(self._unsynced_before[0])
            del self._unsynced_before[0]
        if self._dirty:
            sync(self._fd)
            self._dirty = False

    def _sync_segment(self, base: int) -> None:
        try:
            fd = os.open(layout.segment_name(base), os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._dir)
        except FileNotFoundError:
            # Trimmed: the journal has it.
            return
        try:
            sync(fd)
        finally:
            os.close(fd)

    def take_back(self, begin: int) -> None:
        """Remove the last frame, which begins there: it could not be made durable."""
        self._size -= self.tip - begin
        self.tip = begin
        self._cut_back()

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of one frame that the spool holds. Raises OSError."""
        index = bisect.bisect_right(self._bases, offset) - 1
        base = self._bases[index]
        if index == len(self._bases) - 1:
            return os.pread(self._fd, length, offset - base)
        fd = os.open(layout.segment_name(base), os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._dir)
        try:
            return os.pread(fd, length, offset - base)
        finally:
            os.close(fd)

    def trim(self, offset: int) -> None:
        """Delete whole segments that end at or below `offset`; the current one always stays."""
        while len(self._bases) > 1 and self._bases[1] <= offset:
            try:
                point("keep.trim.before_unlink")
                os.unlink(layout.segment_name(self._bases[0]), dir_fd=self._dir)
            except FileNotFoundError:
                pass
            del self._bases[0]
