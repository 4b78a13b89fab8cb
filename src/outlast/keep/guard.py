"""The guard: parent of the shim, and the one to whom every orphan falls when the shim dies.

`main` is where the detached process begins: it leaves the runtime's session, forks the shim, and waits.
Standard library only, light parts only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import time

from . import layout, proc, shim
from .fields import Fields
from .points import load, point

_LOG = b"shim.log"


def main() -> None:
    """Read the setup from stdin, detach, start the shim and guard it. Never returns."""
    setup = Fields(_read_all(0))
    report = os.dup(1)
    os.set_inheritable(report, False)
    try:
        guarding = _begin(setup, report)
    except OSError as error:
        # No process or descriptor is left, or the folder is not there any more.
        number = error.errno or 0
        shim.report(report, {"code": "failed", "text": error.strerror or str(error), "number": number})
        os._exit(1)
    os.close(report)
    guarding.stand()
    os._exit(0)


def _begin(setup: Fields, report: int) -> _Guard:
    """The guard, detached, with its shim. Raises OSError while there is no shim yet."""
    if os.fork():
        # The runtime waits for this process, so the guard is nobody's child but init's.
        os._exit(0)
    os.setsid()
    load(setup.text("faults"))
    folder = os.open(setup.blob("folder"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _detach(folder)
    _quiet()
    proc.set_name(b"outlast-guard")
    proc.become_subreaper()
    said_r, said_w = os.pipe()
    ack_r, ack_w = os.pipe()
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(said_r)
        os.close(ack_w)
        os._exit(shim.run(setup, shim.Lines(guard, folder, report, said_w, ack_r)))
    for fd in (said_w, ack_r):
        os.close(fd)
    guarding = _Guard(pid, folder, said_r, ack_w)
    _signal.signal(proc.SIGTERM, guarding.pass_on)
    return guarding


def _read_all(fd: int) -> bytes:
    data = b""
    while True:
        more = os.read(fd, 65536)
        if not more:
            return data
        data += more


def _detach(folder: int) -> None:
    """No terminal, no descriptor of the runtime; a crash's traceback goes to a file in the agent folder."""
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=folder)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)
    os.chdir("/")


def _quiet() -> None:
    """A terminal's signals are not for us; SIGTERM ends the agent in order."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGPIPE, _signal.SIGTSTP):
        _signal.signal(number, _signal.SIG_IGN)


class _Guard:
    def __init__(self, pid: int, folder: int, said: int, ack: int) -> None:
        self._shim = pid
        self._folder = folder
        self._said = said
        self._ack = ack
        self._shim_is_ours = True
        """Until it is reaped: then its pid may be anybody's."""

    def pass_on(self, number: int, _: object) -> None:
        """From a signal handler: the shim ends in order."""
        if self._shim_is_ours:
            proc.signal_process(self._shim, number)

    def stand(self) -> None:
        """Until the shim has ended; then end what it left, and record that nothing is left."""
        first = os.read(self._said, 64)
        record = self._take_place(first) if first else None
        os.close(self._ack)
        ended = self._wait_for_shim()
        os.set_blocking(self._said, False)
        try:
            rest = os.read(self._said, 64)
        except BlockingIOError:
            rest = b""
        agent = int(rest.partition(b"\n")[0] or 0)
        found, none_left, pause = None, False, 0
        while not none_left:
            point("keep.guard.kill")
            found, none_left = proc.end_step(agent, found)
            if not none_left:
                pause = min(pause + 1, 50)
                select.select((), (), (), pause / 1000)
        if record is not None:
            point("keep.guard.before")
            self._record(record, ended, found)
            point("keep.guard.after")

    def _take_place(self, said: bytes) -> layout.Record | None:
        """None where the disk refuses it: then the shim leaves, and says why."""
        name = layout.generation_name(int(said))
        try:
            generation = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
            record = layout.Record.create(layout.GUARD, dir_fd=generation)
            os.close(generation)
            # Held for the guard's life: a lock tells that it lives to processes in any pid namespace.
            layout.try_lock(record.fd)
            point("keep.guard.placed")
        except OSError as error:
            os.write(self._ack, b"%d" % (error.errno or 0))
            return None
        os.write(self._ack, b"!")
        return record

    def _wait_for_shim(self) -> int:
        while True:
            pid = self._next_dead()
            if pid == self._shim:
                # Before it is reaped, because a signal may come at any moment.
                self._shim_is_ours = False
            pid, status = os.waitpid(pid, 0)
            if pid == self._shim:
                return status

    def _next_dead(self) -> int:
        """Wait for a child that has ended, and leave it unreaped; -1, for any child, where that cannot be."""
        if not hasattr(os, "waitid"):
            return -1
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        return ended.si_pid if ended is not None else -1

    def _record(self, record: layout.Record, ended: int, agent: proc.Reaped | None) -> None:
        record.write(
            {
                "verified": 1,
                "shim_status": ended,
                "status": None if agent is None else agent.status,
                "max_rss": 0 if agent is None else agent.max_rss,
                "wall": time.time_ns(),
                "boottime": proc.boottime(),
            }
        )
