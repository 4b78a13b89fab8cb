"""How a process learns that another one has written: a file that is written to after each commit, and
inotify on it.

inotify is called through ctypes: the three calls are older and steadier than any binding of them, and the
descriptor goes straight into the event loop. Where it is missing, and should the bell file be swept away,
the slow poll remains.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from outlast.errors import OutlastError
from outlast.store.sqlite.reading import Reader
from outlast.store.sqlite.transaction import Effects
from outlast.store.waiters import Waiters

_IN_MODIFY = 0x2
_SLOW_POLL = 1.0


class Doorbell:
    """Rings the events of waiters; used from one event loop."""

    def __init__(self, bell: Path, reader: Reader, on_foreign: Callable[[], None]) -> None:
        """`on_foreign` is called when another process, or this one, has written."""
        self._loop = asyncio.get_running_loop()
        self._reader = reader
        self._on_foreign = on_foreign
        self._waiters = Waiters()
        self._seen = reader.watermark()
        self._watch = _watch(bell)
        if self._watch is not None:
            try:
                self._loop.add_reader(self._watch, self._heard)
            except BaseException:
                os.close(self._watch)
                raise
        self._poll = self._loop.call_later(_SLOW_POLL, self._polled)

    @contextmanager
    def changes(self, name: str | None) -> Iterator[asyncio.Event]:
        if not self._waiters:
            # What happened before nobody waited for.
            self._seen = self._reader.watermark()
        with self._waiters.waiting(name) as event:
            yield event

    def ring(self, effects: Effects) -> None:
        """This process has written: its own waiters hear of it at once, and not again by the bell."""
        if not self._waiters:
            return
        if effects.names:
            self._waiters.ring(effects.names)
        if effects.after is not None and effects.before == self._seen:
            self._seen = effects.after

    def _heard(self) -> None:
        assert self._watch is not None  # it is what was heard
        try:
            os.read(self._watch, 65536)
        except BlockingIOError:
            return
        self._look()

    def _polled(self) -> None:
        self._poll = self._loop.call_later(_SLOW_POLL, self._polled)
        self._look()

    def _look(self) -> None:
        self._on_foreign()
        if not self._waiters:
            return
        try:
            names = self._news()
        except OutlastError:
            # Whoever waits looks for himself, and is told what is wrong.
            names = None
        if names is None:
            self._waiters.ring_all()
        elif names:
            self._waiters.ring(names)

    def _news(self) -> set[str] | None:
        """Sessions that changed since the last look; None where that cannot be told."""
        before, now = self._seen, self._reader.watermark()
        self._seen = now
        return set() if before == now else self._reader.changed(before, now)

    def close(self) -> None:
        """Everybody wakes, to hear that the store is closed."""
        self._waiters.ring_all()
        self._poll.cancel()
        if self._watch is not None:
            self._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None


def _watch(path: Path) -> int | None:
    """A descriptor that becomes readable when the file is written to; None where there is no inotify, or no
    more of it for this user."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    handle: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if handle < 0:
        return None
    if libc.inotify_add_watch(handle, os.fsencode(path), ctypes.c_uint32(_IN_MODIFY)) < 0:
        os.close(handle)
        return None
    return handle
