"""The shim: the small process that owns an agent's pipes, so that the agent outlives the runtime.

This module is its birth (lock, floor, folder) and its loop; `desk` answers the owner. Standard library
only, light parts only, and nothing is imported later: the files may be replaced while it runs.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import select
import time

from . import frames, layout, proc, tree
from .desk import Desk
from .door import Claim, Door
from .fields import Fields, FieldsDamaged, pack
from .points import point
from .spool import DiskRefused, Spool

__all__ = ["Lines", "Refused", "run"]

_LOCK_PATIENCE = 0.15


class Refused(Exception):  # noqa: N818 - becomes the report to the starter
    """Why this shim leaves without having started anything."""

    def __init__(self, code: str, text: str, number: int = 0) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.number = number


class Lines:
    """The shim's inheritance from the guard: descriptors, and who the guard is."""

    __slots__ = ("ack", "folder", "guard", "lock", "report", "said")

    def __init__(self, guard: int, folder: int, report: int, said: int, ack: int) -> None:
        self.guard = guard
        self.folder = folder
        self.report = report
        self.said = said
        self.ack = ack
        self.lock = -1

    def let_go(self) -> None:
        """Give the folder free, before anyone is told that this shim is done with it."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


class Place:
    """What a shim holds once it has its place: the lock, the floor, a generation of its own."""

    __slots__ = ("boot", "claim", "exit", "fd", "floor", "folder", "guard", "marker", "number")

    def __init__(self, lines: Lines, claim: Claim, floor: layout.Floor) -> None:
        folder = lines.folder
        self.folder = folder
        self.guard = lines.guard
        self.claim = claim
        self.floor = floor
        self.boot = proc.boot_id()
        self.marker = os.urandom(16).hex()
        self.number = layout.latest_generation(folder) + 1
        name = layout.generation_name(self.number)
        point("keep.place.before")
        os.mkdir(name, 0o700, dir_fd=folder)
        point("keep.place.made")
        self.fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        os.fsync(folder)
        self.exit = layout.Record.create(layout.EXIT, dir_fd=self.fd)
        point("keep.place.after")


def run(setup: Fields, lines: Lines) -> int:
    """The shim's whole life; returns its exit status."""
    os.setsid()
    proc.set_name(b"outlast-shim")
    proc.become_subreaper()
    _signal.signal(proc.SIGTERM, _signal.SIG_DFL)
    try:
        place = _take_place(setup, lines)
        loop = _settle(place, lines)
    except Refused as refused:
        lines.let_go()
        report(lines.report, {"code": refused.code, "text": refused.text, "number": refused.number})
        return 1
    except (OSError, DiskRefused) as error:
        lines.let_go()
        number = error.errno or 0
        report(lines.report, {"code": "failed", "text": os.strerror(number), "number": number})
        return 1
    report(lines.report, {"code": "ok", "generation": place.number})
    return loop.run()


def report(fd: int, values: dict[str, str | int | bytes | list[bytes] | None]) -> None:
    """What became of the start, to whoever asked for it."""
    point("keep.report.before")
    try:
        os.write(fd, frames.encode(frames.RECORD, pack(values)))
    except BrokenPipeError:
        # The starter died; the owner after it finds us by the lock.
        pass
    os.close(fd)


def _take_place(setup: Fields, lines: Lines) -> Place:
    """Lock, floor, and the proof that nothing of an earlier generation lives. Raises Refused, OSError."""
    claim = Claim(setup)
    lines.lock = os.open(layout.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=lines.folder)
    point("keep.lock.before")
    deadline = time.monotonic() + _LOCK_PATIENCE
    while not layout.try_lock(lines.lock):
        # Whoever raises the floor holds the lock for a moment; a shim holds it for its life.
        if time.monotonic() > deadline:
            holder = layout.lock_holder(layout.LOCK, dir_fd=lines.folder) or 0
            raise Refused(
                "lock_held", "another shim (or an owner that raises the floor) holds the folder", holder
            )
        select.select((), (), (), 0.01)
    point("keep.lock.after")
    try:
        floor = layout.read_floor(lines.folder)
    except FieldsDamaged as damage:
        raise Refused("damaged", f"the floor is damaged: {damage}") from None
    if floor is None:
        floor = layout.Floor(claim.store_id, claim.lineage, 0)
    if (floor.store_id, floor.lineage) != (claim.store_id, claim.lineage):
        raise Refused("foreign", "the folder belongs to another store or lineage")
    if claim.epoch < floor.epoch:
        raise Refused("below_floor", "a later owner has been here", floor.epoch)
    last = layout.latest_generation(lines.folder)
    before = tree.open_generation(lines.folder, last) if last else None
    if before is not None:
        verdict = tree.look(before)
        os.close(before)
        if verdict.state not in (tree.DEAD, tree.COPIED):
            raise Refused(f"tree_{verdict.state}", verdict.evidence, last)
    return Place(lines, claim, floor)


def _settle(place: Place, lines: Lines) -> _Loop:
    """Identity, guard, spool and socket. Raises OSError, DiskRefused."""
    shim, here = os.getpid(), os.fstat(place.fd)
    point("keep.id.before")
    layout.Record.place(
        layout.ID,
        {
            "version": frames.VERSION,
            "boot": place.boot,
            "pid_ns": proc.pid_namespace(),
            "shim_pid": shim,
            "shim_ticks": proc.start_ticks(shim) or 0,
            "guard_pid": lines.guard,
            "guard_ticks": proc.start_ticks(lines.guard) or 0,
            "marker": place.marker,
            "dev": here.st_dev,
            "ino": here.st_ino,
            "wall": time.time_ns(),
        },
        dir_fd=place.fd,
    )
    point("keep.id.after")
    os.write(lines.said, b"%d" % place.number)
    answer = os.read(lines.ack, 16)
    if answer != b"!":
        number = int(answer or 0)
        raise Refused("failed", os.strerror(number) if number else "the guard died", number)
    os.close(lines.ack)
    spool = Spool(place.fd, place.boot)
    door = Door(place.fd, (shim, lines.guard), place.marker)
    point("keep.door.before_fsync")
    os.fsync(place.fd)
    point("keep.door.after_fsync")
    return _Loop(Desk(place, spool, lines.said), door, lines)


class _Loop:
    """One thread, one poll: sockets, pipes, deaths, deadlines. Idle, it does not wake."""

    def __init__(self, desk: Desk, door: Door, lines: Lines) -> None:
        self._lines = lines
        self._desk = desk
        self._door = door
        self._poll = select.poll()
        self._watched: dict[int, int] = {}
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(proc.SIGTERM, lambda *_: desk.body.asked_to_end())
        _signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)

    def run(self) -> int:
        desk = self._desk
        while not desk.body.done:
            self._watch()
            ready = dict(self._poll.poll(desk.timeout()))
            if ready.pop(self._wake_r, 0):
                self._drain_wake()
                desk.body.children_changed()
            if ready.pop(self._door.fd, 0):
                peer = self._door.accept()
                if peer is not None:
                    desk.welcome(peer)
            desk.serve(ready)
            desk.tick()
        self._door.close()
        self._lines.let_go()
        desk.farewell()
        return 0

    def _watch(self) -> None:
        """Bring what is polled in line with what is wanted."""
        wanted = self._desk.wanted()
        wanted[self._wake_r] = select.POLLIN
        wanted[self._door.fd] = select.POLLIN
        for fd in self._watched.keys() - wanted.keys():
            self._poll.unregister(fd)
        for fd, events in wanted.items():
            if self._watched.get(fd) != events:
                self._poll.register(fd, events)
        self._watched = wanted

    def _drain_wake(self) -> None:
        try:
            while os.read(self._wake_r, 512):
                pass
        except BlockingIOError:
            return
