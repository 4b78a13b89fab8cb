"""The way into an agent: compare-and-set on the input's number, the spool first, then the pipe.

Standard library only, light parts only.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time

from . import frames, layout
from .lines import BadLine, LineCheck
from .points import point
from .spool import DiskRefused, Spool

try:
    from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    try:
        from _sha2 import sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    except ImportError:
        from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import _Hash

MORE_WANTED, ACCEPTED = "more", "accepted"
_BACKLOG_INPUTS, _BACKLOG_BYTES = 64, 4 << 20
_PIPE_CHUNK = 64 << 10
_READ_PAUSE = 0.1
_MOST_IN_PIPE = 1 << 20
"""Bytes that the agent's stdin holds at most: whatever went in before so many was read."""
_FIONREAD = 0x541B


class _Message:
    """A message whose last part has not come yet."""

    __slots__ = ("check", "digest", "parts", "seq", "size", "spans")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.parts = 0
        self.size = 0
        self.check = LineCheck()
        self.digest: _Hash = sha256()
        self.spans: list[tuple[int, int]] = []


class _Job:
    """An accepted input on its way into the pipe, or (`closes`) the closing of it, which has no spans.
    `begun`: some of it went in."""

    __slots__ = ("begun", "closes", "data", "seq", "size", "spans")

    def __init__(self, seq: int, spans: list[tuple[int, int]], data: bytes, size: int) -> None:
        self.seq = seq
        self.spans = spans
        self.data = memoryview(data)
        self.size = size
        self.closes = not spans
        self.begun = False


class Inputs:
    """The agent's stdin."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._message: _Message | None = None
        self._jobs: list[_Job] = []
        self._backlog = 0
        self._piped = 0
        """Bytes that went into the pipe."""
        self._begun: list[tuple[int, int]] = []
        """(seq, bytes that had gone in before it) of the inputs that may still be in the pipe, and one
        more."""
        self.limit = 0
        self.retry_at: float | None = None
        """When an accepted input that could not be read again is tried once more."""
        self.fd = -1
        self.open = False
        """Whether inputs are taken at all."""
        self.read_input: int | None = None
        """Seq of the newest input of which a byte was read, 0 for none, once that is final; None while it is
        not, and where it cannot be told."""

    def begin(self, fd: int, limit: int) -> None:
        """The agent runs; `fd` is the writing end of its stdin, not blocking."""
        self.fd = fd
        self.limit = limit
        self.open = True

    @property
    def waiting(self) -> bool:
        """Whether accepted bytes can go into the pipe as soon as it takes them."""
        return bool(self._jobs) and self.retry_at is None

    @property
    def oldest_waiting(self) -> int | None:
        """Spool offset below which no accepted input waits; None if none waits."""
        spans = [span for job in self._jobs for span in job.spans]
        return min(spans)[0] if spans else None

    @property
    def partial(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._message is not None

    def refusal(self, seq: int) -> str | None:
        """Why an input with this number cannot be taken now; None if it can."""
        if not self.open:
            return "closed"
        if seq != self._spool.last_input + 1:
            return "seq"
        if len(self._jobs) >= _BACKLOG_INPUTS or self._backlog > _BACKLOG_BYTES:
            return "busy"
        return None

    def part(self, frame: frames.Frame) -> str:
        """Take one part. Returns MORE_WANTED, ACCEPTED or the refusal; a refused message leaves no trace
        that a reader would take for an input."""
        if self._message is None or frame.flags & frames.FIRST:
            self.void()
            refused = self.refusal(frame.seq)
            if refused:
                return refused
            self._message = _Message(frame.seq)
        message = self._message
        try:
            return self._store(message, frame)
        except BadLine:
            self.void()
            return "bad_line"
        except (DiskRefused, OSError):
            self.void()
            return "disk"

    def _store(self, message: _Message, frame: frames.Frame) -> str:
        message.size += len(frame.payload)
        if message.size > self.limit or frame.seq != message.seq:
            self.void()
            return "too_large" if message.size > self.limit else "seq"
        message.check.feed(frame.payload)
        if not frame.more:
            message.check.finish()
        message.digest.update(frame.payload)
        flags = (frame.flags & frames.MORE) | (0 if message.parts else frames.FIRST)
        self._spool.careful = True
        begin = self._spool.append(frames.INPUT, frame.payload, flags=flags, seq=frame.seq)
        message.parts += 1
        if frame.payload:
            message.spans.append((begin + frames.HEADER_SIZE, len(frame.payload)))
        if frame.more:
            return MORE_WANTED
        self._sync_or_take_back(begin)
        self._accept(message, frame.payload)
        return ACCEPTED

    def _sync_or_take_back(self, begin: int) -> None:
        try:
            point("keep.input.sync.before")
            self._spool.sync()
        except OSError:
            self._spool.take_back(begin)
            raise
        point("keep.input.sync.after")

    def _accept(self, message: _Message, last_part: bytes) -> None:
        self._message = None
        self._spool.given(message.seq, message.digest.digest())
        # What came in one piece need not be read again.
        data = last_part if len(last_part) == message.size else b""
        self._jobs.append(_Job(message.seq, message.spans, data, message.size))
        self._backlog += message.size

    def close(self, seq: int) -> str:
        """Close stdin once all before it is written: an input like any other."""
        self.void()
        refused = self.refusal(seq)
        if refused:
            return refused
        try:
            begin = self._spool.append(frames.STDIN_CLOSED, seq=seq)
            self._sync_or_take_back(begin)
        except (DiskRefused, OSError):
            return "disk"
        self._spool.given(seq, b"")
        self.open = False
        self._jobs.append(_Job(seq, [], b"", 0))
        return ACCEPTED

    def void(self) -> None:
        """Drop the message that has begun and not ended, if there is one."""
        if self._message is not None:
            seq, self._message = self._message.seq, None
            self._spool.note(frames.VOID, seq=seq)

    def pump(self) -> list[int]:
        """Write what the pipe takes; returns the numbers of the inputs that are now in it whole."""
        written: list[int] = []
        while self._jobs and self.fd >= 0 and self.retry_at is None:
            job = self._jobs[0]
            if job.closes:
                os.close(self.fd)
                self.fd = -1
            elif not self._advance(job):
                break
            if job.spans:
                continue
            del self._jobs[0]
            self._backlog -= job.size
            self._spool.note(frames.WRITTEN, seq=job.seq)
            written.append(job.seq)
        return written

    def _advance(self, job: _Job) -> bool:
        """Write one piece. False: nothing went in, try later."""
        if not job.data:
            job.data = memoryview(self._load(*job.spans[0]))
            if not job.data:
                return False
        try:
            point("keep.pipe.before")
            n = os.write(self.fd, job.data[:_PIPE_CHUNK])
        except BlockingIOError:
            return False
        except OSError:
            self.broken()
            return False
        point("keep.pipe.after")
        if n > 0:
            self._went_in(job, n)
        job.data = job.data[n:]
        if not job.data:
            del job.spans[0]
        return n > 0

    def _went_in(self, job: _Job, n: int) -> None:
        if not job.begun:
            job.begun = True
            while len(self._begun) > 1 and self._begun[1][1] < self._piped - _MOST_IN_PIPE:
                del self._begun[0]
            self._begun.append((job.seq, self._piped))
        self._piped += n

    def _look_at_what_was_read(self) -> None:
        """The pipe holds what nobody has read, and once nobody has its other end nobody ever will."""
        if not layout.LINUX or self.read_input is not None:
            return
        poll = select.poll()
        poll.register(self.fd, 0)
        if not any(events & select.POLLERR for _, events in poll.poll(0)):
            return
        try:
            left = struct.unpack("i", fcntl.ioctl(self.fd, _FIONREAD, b"\0\0\0\0"))[0]
        except OSError:
            return
        if left > _MOST_IN_PIPE:
            return  # The agent has made it larger than we count with.
        read = self._piped - left
        self.read_input = max((seq for seq, before in self._begun if before < read), default=0)

    def _load(self, offset: int, length: int) -> bytes:
        """An accepted part, out of the spool; nothing if it cannot be read now. It is tried again: the agent
        must not be given less than was accepted, nor the end of its input in its place."""
        try:
            data = self._spool.read(offset, length)
        except OSError:
            data = b""
        if len(data) == length:
            return data
        self.retry_at = time.monotonic() + _READ_PAUSE
        return b""

    def tick(self, now: float) -> None:
        """Let what could not be read be tried again once its pause is over."""
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at = None

    def broken(self) -> None:
        """The agent has closed its stdin: what waits can never be written."""
        self.shut()
        self._spool.note(frames.STDIN_CLOSED, flags=frames.EOF)

    def refuse(self) -> None:
        """Take and write nothing any more; the pipe stays open, so that a kill is no end of file."""
        self.void()
        self.open = False
        self._jobs.clear()
        self._backlog = 0
        self.retry_at = None

    def shut(self) -> None:
        """Take and write nothing any more, and close the pipe."""
        self.refuse()
        if self.fd >= 0:
            self._look_at_what_was_read()
            os.close(self.fd)
            self.fd = -1
