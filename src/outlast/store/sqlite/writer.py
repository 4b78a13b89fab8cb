"""From the event loop to the engine: one thread, one group in flight.

Everything that was submitted while a group was written makes the next group; a group costs one queue put
and one call back into the loop, however many callers wait. Should the thread end, everybody hears of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from outlast.errors import AmbiguousAppendError, StoreError
from outlast.hold import Kept
from outlast.store import refusals
from outlast.store.sqlite.engine import Engine
from outlast.store.sqlite.operations import Operation
from outlast.store.sqlite.transaction import Effects

_GUARD_FIRST = 0.002
_GUARD_LONGEST = 0.016
_GUARD_WAIT = 0.002

Group = list[tuple[Operation, "asyncio.Future[Any]"]]


@dataclass(frozen=True, slots=True)
class Hearers:
    """Who is told, in the event loop, before callers wake."""

    effects: Callable[[Effects], None]
    """Of each committed group."""
    refused: Callable[[Operation, BaseException], None]
    """Of each operation that has no result."""
    end: Callable[[], None]
    """That this process writes no more."""


class Writer:
    """Used from one event loop."""

    def __init__(self, engine: Engine, hearers: Hearers) -> None:
        self._loop = asyncio.get_running_loop()
        self._engine = engine
        self._hearers = hearers
        self._waiting: Group = []
        self._in_flight: Group = []
        self._begun: Group = []
        """What the thread is at, until it has an outcome."""
        self._ended = False
        self._scheduled = False
        self._closing: asyncio.Future[None] | None = None
        self._queue: SimpleQueue[tuple[Group, threading.Lock] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outlast-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation) -> asyncio.Future[Any]:
        """The operation's outcome; it is carried out also if the future is cancelled."""
        future = self._loop.create_future()
        self._add(operation, future)
        return future

    def submit_kept(self, operation: Operation) -> Kept[Any]:
        """The same, for a caller that has to know the outcome."""
        future: Kept[Any] = Kept(loop=self._loop)
        self._add(operation, future)
        return future

    def _add(self, operation: Operation, future: asyncio.Future[Any]) -> None:
        if self._closing is not None:
            raise refusals.closed()
        if self._ended:
            raise _not_begun(None)
        self._waiting.append((operation, future))
        if not self._scheduled and not self._in_flight:
            self._scheduled = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        if self._in_flight or not self._waiting:
            return
        group, self._waiting = self._waiting, []
        self._in_flight = group
        working = threading.Lock()
        working.acquire()
        self._queue.put((group, working))
        self._loop.call_later(_GUARD_FIRST, self._guard, working, _GUARD_FIRST)

    def _guard(self, working: threading.Lock, delay: float) -> None:
        """Let the writer have the interpreter lock. Each SQLite call gives that lock away, and beside a busy
        event loop the thread waits a whole switch interval to get it back, dozens of times a group. So
        while a group is in flight the loop itself waits for the thread now and then, for a bounded time."""
        if not working.acquire(timeout=_GUARD_WAIT):
            delay = min(delay * 2, _GUARD_LONGEST)
            self._loop.call_later(delay, self._guard, working, delay)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while (item := self._queue.get()) is not None:
                self._carry_out(*item)
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, or waits for ever
            failure = error
        with suppress(RuntimeError):  # the loop is gone: so are the callers
            self._loop.call_soon_threadsafe(self._end, failure)

    def _carry_out(self, group: Group, working: threading.Lock) -> None:
        self._begun = group
        try:
            outcomes, effects = self._engine.execute([operation for operation, _ in group])
        finally:
            working.release()  # by the thread that did not take it: it tells the guard that the group is done
        self._loop.call_soon_threadsafe(self._done, group, outcomes, effects)
        self._begun = []
        self._engine.ring(effects)

    def _done(self, group: Group, outcomes: list[object], effects: Effects) -> None:
        self._in_flight = []
        try:
            self._hearers.effects(effects)
        finally:
            self._wake(group, outcomes)
        if self._waiting or self._closing is None:
            # After the callers that just woke: what they submit now belongs to the next group.
            self._scheduled = True
            self._loop.call_soon(self._dispatch)
        elif not self._closing.done():
            self._closing.set_result(None)

    def _wake(self, group: Group, outcomes: list[object]) -> None:
        for (operation, future), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._hearers.refused(operation, outcome)
                if not future.done():
                    future.set_exception(outcome)
            elif not future.done():
                future.set_result(outcome)

    def _end(self, failure: BaseException | None) -> None:
        """The thread is gone. Of what it was at nobody knows whether it is stored, the rest is not."""
        self._ended = True
        if failure is not None:
            self._engine.stop()
            self._hearers.end()
        unknown = self._begun
        waiting = self._waiting if unknown else [*self._in_flight, *self._waiting]
        self._begun, self._in_flight, self._waiting = [], [], []
        self._wake(unknown, [_torn(failure) for _ in unknown])
        self._wake(waiting, [_not_begun(failure) for _ in waiting])
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    async def close(self) -> None:
        """Write what was submitted, then end the thread."""
        if self._closing is None:
            self._closing = self._loop.create_future()
            if self._ended or not (self._waiting or self._in_flight):
                self._closing.set_result(None)
            await asyncio.shield(self._closing)
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)


_RESTART = "end this process, look at the disk and at its memory, then start again"


def _torn(cause: BaseException | None) -> AmbiguousAppendError:
    error = AmbiguousAppendError(
        "the thread that writes ended in the middle: whether it is stored shows when the store is opened"
        " anew",
        hint=_RESTART,
    )
    error.__cause__ = cause
    return error


def _not_begun(cause: BaseException | None) -> StoreError:
    error = StoreError("the thread that writes has ended; nothing was stored", hint=_RESTART)
    error.__cause__ = cause
    return error
