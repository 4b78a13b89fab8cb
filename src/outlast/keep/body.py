"""The agent's life as its shim sees it: start, output into the spool, end, and the proof of the end.

Standard library only, light parts only.
"""

from __future__ import annotations

import errno
import os
import time

from . import frames, layout, proc
from .agent import Agent, LaunchFailed, Program, launch
from .fields import pack
from .frames import FILE_LIMIT
from .inputs import Inputs
from .memory import OomWatch
from .points import point
from .spool import DiskRefused, Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .fields import Value
    from .shim import Place

IDLE, RUNNING, TERMINATING, DRAINING, KILLING, FLUSHING, DONE = (
    "idle",
    "running",
    "terminating",
    "draining",
    "killing",
    "flushing",
    "done",
)
_START_DEADLINE = 5.0
_DRAIN = 0.5
_TERM_GRACE = 1.0
_CHUNK = 1 << 20
_READS_IN_A_ROW = 4
_LAST_READS = 8
_RETRY_MOST = 1.0
_LIMIT_PATIENCE = 30.0
"""Seconds for somebody to raise the limit on the size of files (prlimit): nothing else ever lets it go on."""
_SYNC_DELAY = 0.1
DEFAULT_GRACE = 600.0


class Body:
    """One agent life. Deadlines are on the monotonic clock, in seconds."""

    def __init__(self, place: Place, spool: Spool, said: int) -> None:
        self._place = place
        self._spool = spool
        self._said = said
        self._buffer = bytearray(_CHUNK)
        self._held = b""
        self._stdout = -1
        self._stderr = -1
        self._log = -1
        self._log_size = 0
        self._cap = 0
        self._oom: OomWatch | None = None
        self._reaped: proc.Reaped | None = None
        self._launch_failure: LaunchFailed | None = None
        self._pause = 0
        self._retry_pause = 0.0
        self._retry_at: float | None = None
        self._sync_at: float | None = None
        self._phase_ends: float | None = time.monotonic() + _START_DEADLINE
        self._end_asked = False
        self._quiet_since = time.monotonic()
        self.agent: Agent | None = None
        self.inputs = Inputs(spool)
        self.phase = IDLE
        self.killed = ""
        self.grace: float | None = DEFAULT_GRACE
        self.owned = False
        self.allowed: int | None = None
        """Spool offset from which on the owner wants no more output for now; None: it takes all."""
        self.exit: dict[str, Value] = {}

    @property
    def done(self) -> bool:
        return self.phase == DONE

    @property
    def blocked(self) -> bool:
        """Whether output waits for the disk."""
        return bool(self._held) or self._retry_at is not None

    @property
    def capped(self) -> bool:
        """Whether output waits in the agent's pipe, for a trim or for the owner to read on. Once nothing of
        the tree lives, what is left in the pipe is little, and is taken."""
        if self.phase in (FLUSHING, DONE):
            return False
        full = bool(self._cap) and self._spool.kept >= self._cap
        return full or (self.allowed is not None and self._spool.tip >= self.allowed)

    # --- what the loop asks for

    def wanted(self) -> dict[int, int]:
        """Descriptors to poll and for what."""
        wanted = {}
        if self._stdout >= 0 and not self.blocked and not self.capped:
            wanted[self._stdout] = 1
        if self._stderr >= 0:
            wanted[self._stderr] = 1
        if self.inputs.fd >= 0:
            # With nothing to write, only the news that the agent has closed its end.
            wanted[self.inputs.fd] = 4 if self.inputs.waiting else 0
        return wanted

    def deadlines(self) -> list[float]:
        """When `tick` has something to do."""
        found = [
            at
            for at in (
                self._phase_ends,
                self._retry_at,
                self._sync_at,
                self._orphaned_at(),
                self._limited_at(),
                self.inputs.retry_at,
            )
            if at is not None
        ]
        if self._end_asked:
            found.append(0.0)
        return found

    def _orphaned_at(self) -> float | None:
        if self.owned or self.grace is None or self.phase not in (RUNNING, FLUSHING):
            return None
        return self._quiet_since + self.grace

    def _limited_at(self) -> float | None:
        """When an agent is ended whose spool may not grow."""
        if self._spool.limited_at is None or self.phase not in (RUNNING, FLUSHING):
            return None
        return self._spool.limited_at + _LIMIT_PATIENCE

    def serve(self, ready: dict[int, int]) -> list[int]:
        """Move bytes; returns the numbers of the inputs that went into the pipe whole."""
        if self._stdout in ready:
            self._read_output(_READS_IN_A_ROW)
        if self._stderr in ready:
            self._read_stderr()
        events = ready.get(self.inputs.fd, 0)
        if events & 8 and not events & 4:
            self.inputs.broken()
        elif events:
            return self.inputs.pump()
        return []

    # --- start

    def start(self, program: Program, input_limit: int, cap: int) -> dict[str, Value]:
        """Execute the agent; returns the started frame's fields. After a failure the shim ends."""
        point("keep.start.before")
        self._oom = OomWatch()
        self._cap = cap
        said: dict[str, Value]
        try:
            self._require_guard()
            agent = launch(program, self._place.marker)
        except LaunchFailed as failure:
            self._launch_failure = failure
        except OSError as error:
            self._launch_failure = LaunchFailed(error.errno or 0, "fork")
        else:
            self.agent = agent
            self._stdout, self._stderr = agent.stdout, agent.stderr
            self._tell_guard(agent.pid)
            self.inputs.begin(agent.stdin, input_limit)
            self._quiet_since = time.monotonic()
            self.phase, self._phase_ends = RUNNING, None
        point("keep.start.after")
        if self._launch_failure is not None:
            said = {"pid": 0, "errno": self._launch_failure.number, "stage": self._launch_failure.stage}
            self.phase, self._phase_ends = FLUSHING, 0.0
        else:
            said = {
                "pid": self.agent.pid if self.agent else 0,
                "ticks": self.agent.ticks if self.agent else 0,
            }
        self._spool.note(frames.STARTED, pack(said))
        return said

    def _require_guard(self) -> None:
        if os.getppid() != self._place.guard:
            # Nobody would end what an agent leaves behind if this shim died too.
            raise LaunchFailed(errno.ESRCH, "guard")

    def _tell_guard(self, pid: int) -> None:
        try:
            os.write(self._said, b"%d\n" % pid)
        except BrokenPipeError:
            # The guard died this moment; it would only have recorded how the agent ended.
            return

    # --- output

    def _read_output(self, reads: int) -> None:
        for _ in range(reads):
            if self._stdout < 0 or self.blocked or self.capped:
                return
            try:
                n = os.readv(self._stdout, (self._buffer,))
            except BlockingIOError:
                return
            self._quiet_since = time.monotonic()
            if n == 0:
                os.close(self._stdout)
                self._stdout = -1
                self._spool.note(frames.OUTPUT, flags=frames.EOF)
                return
            self._store(memoryview(self._buffer)[:n])

    def _store(self, data: memoryview) -> None:
        try:
            self._spool.append(frames.OUTPUT, data)
        except DiskRefused:
            # Nothing more is read, so the pipe holds the agent; what was read is kept here.
            self._held = bytes(data)
            self._retry_later()

    def _retry_later(self) -> None:
        self._retry_pause = min(self._retry_pause * 2 or 0.02, _RETRY_MOST)
        self._retry_at = time.monotonic() + self._retry_pause

    def _retry(self) -> None:
        try:
            if self._held:
                self._spool.append(frames.OUTPUT, self._held)
            else:
                self._spool.flush()
        except DiskRefused:
            self._retry_later()
            return
        self._held = b""
        self._retry_at, self._retry_pause = None, 0.0

    def _read_stderr(self) -> None:
        try:
            data = os.read(self._stderr, 65536)
        except BlockingIOError:
            return
        if not data:
            os.close(self._stderr)
            self._stderr = -1
            return
        try:
            self._log_stderr(data)
        except OSError:
            # Diagnosis, not record: a full disk costs it, and the agent is not held for it.
            return

    def _log_stderr(self, data: bytes) -> None:
        if self._log < 0 or self._log_size + len(data) > layout.STDERR_LIMIT:
            if self._log >= 0:
                os.close(self._log)
                self._log = -1
                point("keep.stderr.before_rename")
                os.rename(
                    layout.STDERR, layout.STDERR + b".1", src_dir_fd=self._place.fd, dst_dir_fd=self._place.fd
                )
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._log = os.open(layout.STDERR, flags, 0o600, dir_fd=self._place.fd)
            self._log_size = 0
        self._log_size += os.write(self._log, data)

    def disown(self) -> None:
        """The owner is gone: the grace runs from now or the last output, and the spool is synced."""
        self.owned = False
        self.allowed = None
        self.inputs.void()
        self._quiet_since = time.monotonic()
        self._sync_at = 0.0

    def _sync_soon(self) -> None:
        if not self.owned and self._spool.unsynced and self._sync_at is None:
            self._sync_at = time.monotonic() + _SYNC_DELAY

    def _sync(self) -> None:
        self._sync_at = None
        try:
            point("keep.spool.before_sync")
            self._spool.sync()
            point("keep.spool.after_sync")
        except OSError:
            self._sync_at = time.monotonic() + _RETRY_MOST

    # --- end

    def asked_to_end(self) -> None:
        """From a signal handler: remember it, `tick` does it."""
        self._end_asked = True

    def kill(self, grace: float, reason: str) -> None:
        """Begin to end the agent: SIGTERM to its group and `grace` seconds, then SIGKILL to all."""
        ends = time.monotonic() + grace
        if self.phase == TERMINATING:
            self._phase_ends = min(self._phase_ends or ends, ends)
            return
        if self.phase == IDLE:
            self.killed, self.phase, self._phase_ends = reason, FLUSHING, 0.0
        elif self.phase == RUNNING:
            self.killed = reason
            self._spool.note(frames.KILL_BEGUN, pack({"reason": reason}))
            self.inputs.refuse()
            if grace > 0 and self.agent is not None:
                point("keep.kill.term")
                proc.signal_group(self.agent.pid, proc.SIGTERM)
            self.phase, self._phase_ends = TERMINATING, ends
        elif self.phase == FLUSHING:
            # The tree is gone already; give up waiting for the disk.
            self._finish(complete=not self._held)

    def children_changed(self) -> None:
        """SIGCHLD: collect what has ended."""
        if self.agent is None or self.phase not in (RUNNING, TERMINATING, DRAINING):
            return
        self._reaped, _ = proc.reap(self.agent.pid, self._reaped)
        if self._reaped is not None and self.phase != DRAINING:
            self.inputs.shut()
            self.phase, self._phase_ends = DRAINING, time.monotonic() + _DRAIN

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._end_asked:
            self._end_asked = False
            self.kill(_TERM_GRACE, "terminated")
        self.inputs.tick(now)
        if self._retry_at is not None and now >= self._retry_at:
            self._retry()
        elif self._spool.notes_wait and self._retry_at is None:
            self._retry_later()
        orphaned = self._orphaned_at()
        if orphaned is not None and now >= orphaned:
            self.kill(0.0, "orphaned")
        limited = self._limited_at()
        if limited is not None and now >= limited:
            self.kill(0.0, FILE_LIMIT)
        if self.phase == DRAINING and self._stdout < 0:
            self._phase_ends = 0.0
        if self._phase_ends is not None and now >= self._phase_ends:
            self._advance()
        self._sync_soon()
        if self._sync_at is not None and now >= self._sync_at:
            self._sync()

    def _advance(self) -> None:
        if self.phase == IDLE:
            self.killed, self.phase = "idle", FLUSHING
        elif self.phase in (TERMINATING, DRAINING):
            self.phase = KILLING
        if self.phase == KILLING and not self._kill_step():
            return
        if self.phase == FLUSHING:
            self._flush()

    def _kill_step(self) -> bool:
        pid = self.agent.pid if self.agent is not None else 0
        point("keep.kill.before")
        self._reaped, none_left = proc.end_step(pid, self._reaped)
        point("keep.kill.after")
        if none_left:
            self.phase, self._phase_ends = FLUSHING, 0.0
        else:
            self._pause = min(self._pause + 1, 50)
            self._phase_ends = time.monotonic() + self._pause / 1000
        return none_left

    def _flush(self) -> None:
        """Nothing lives any more: what is left in the pipe is finite, and none of it is dropped."""
        self._read_output(_LAST_READS)
        if self._stderr >= 0:
            self._read_stderr()
        if self.blocked:
            if not self.exit:
                self._write_exit(self._exit_fields(complete=False))
            self._phase_ends = self._retry_at
            return
        self._finish(complete=True)

    def _finish(self, *, complete: bool) -> None:
        self.inputs.shut()
        fields = self._exit_fields(complete=complete)
        self._spool.note(frames.EXIT, pack(fields))
        self._spool.careful = True
        self._sync()
        self._write_exit(fields)
        self.phase = DONE

    def _exit_fields(self, *, complete: bool) -> dict[str, Value]:
        reaped, failure = self._reaped, self._launch_failure
        starved = self._oom is not None and reaped is not None and self._oom.has_starved(reaped.status)
        return {
            "verified": 1,
            "complete": int(complete),
            "pid": 0 if self.agent is None else self.agent.pid,
            "status": None if reaped is None else reaped.status,
            "max_rss": 0 if reaped is None else reaped.max_rss,
            "oom": int(starved and not self.killed),
            "killed": self.killed,
            "launch_errno": None if failure is None else failure.number,
            "launch_stage": "" if failure is None else failure.stage,
            "stdout_end": self._spool.stdout,
            "last_input": self._spool.last_input,
            "last_digest": self._spool.last_digest,
            "written": self._spool.written_through,
            "read_input": self.inputs.read_input,
            "wall": time.time_ns(),
            "boottime": proc.boottime(),
        }

    def _write_exit(self, fields: dict[str, Value]) -> None:
        self.exit = fields
        point("keep.exit.before")
        self._place.exit.write(self.exit)
        point("keep.exit.after")
