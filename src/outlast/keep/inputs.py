"""The way into an agent: compare-and-set on the input's number, the spool first, then the pipe.

Standard library only, light parts only.
"""

from __future__ import annotations

import os

from . import frames
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


class _Message:
    """A message whose last part has not come yet."""

    __slots__ = ("check", "digest", "seq", "size", "spans")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.size = 0
        self.check = LineCheck()
        self.digest: _Hash = sha256()
        self.spans: list[tuple[int, int]] = []


class _Job:
    """An accepted input on its way into the pipe; no spans means: close it."""

    __slots__ = ("data", "seq", "size", "spans")

    def __init__(self, seq: int, spans: list[tuple[int, int]], data: bytes, size: int) -> None:
        self.seq = seq
        self.spans = spans
        self.data = memoryview(data)
        self.size = size


class Inputs:
    """The agent's stdin."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._message: _Message | None = None
        self._jobs: list[_Job] = []
        self._backlog = 0
        self.limit = 0
        self.fd = -1
        self.open = False
        """Whether inputs are taken at all."""

    def begin(self, fd: int, limit: int) -> None:
        """The agent runs; `fd` is the writing end of its stdin, not blocking."""
        self.fd = fd
        self.limit = limit
        self.open = True

    @property
    def waiting(self) -> bool:
        """Whether accepted bytes have not gone into the pipe yet."""
        return bool(self._jobs)

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
        flags = (frame.flags & frames.MORE) | (0 if message.spans else frames.FIRST)
        self._spool.careful = True
        begin = self._spool.append(frames.INPUT, frame.payload, flags=flags, seq=frame.seq)
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
        self._spool.last_input = message.seq
        self._spool.last_digest = message.digest.digest()
        whole = len(message.spans) == 1
        spans = list(message.spans)
        self._jobs.append(_Job(message.seq, spans, last_part if whole else b"", message.size))
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
        self._spool.last_input = seq
        self._spool.last_digest = b""
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
        while self._jobs and self.fd >= 0:
            job = self._jobs[0]
            try:
                if not self._advance(job):
                    break
            except BlockingIOError:
                break
            except OSError:
                self.broken()
                break
            if job.spans or job.data:
                continue
            del self._jobs[0]
            self._backlog -= job.size
            self._spool.note(frames.WRITTEN, seq=job.seq)
            written.append(job.seq)
        return written

    def _advance(self, job: _Job) -> bool:
        """Write one piece. False: the pipe took nothing, try later."""
        if not job.data and job.spans:
            offset, length = job.spans[0]
            job.data = memoryview(self._spool.read(offset, length))
        if job.data:
            point("keep.pipe.before")
            n = os.write(self.fd, job.data[:_PIPE_CHUNK])
            job.data = job.data[n:]
            if not job.data:
                del job.spans[0]
            point("keep.pipe.after")
            return n > 0
        os.close(self.fd)
        self.fd = -1
        return True

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

    def shut(self) -> None:
        """Take and write nothing any more, and close the pipe."""
        self.refuse()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
