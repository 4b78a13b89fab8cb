"""From the event loop to the engine: one thread, one group in flight.

Everything that was submitted while a group was written makes the next group; a group costs one queue put
and one call back into the loop, however many callers wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from outlast.errors import StoreError
from outlast.store.sqlite.engine import Engine
from outlast.store.sqlite.operations import Operation
from outlast.store.sqlite.transaction import Effects

_GUARD_FIRST = 0.002
_GUARD_LONGEST = 0.016
_GUARD_WAIT = 0.002

Group = list[tuple[Operation, "asyncio.Future[Any]"]]
Told = Callable[[Operation, object], None]


class Writer:
    """Used from one event loop. `on_effects` hears of each committed group before its callers wake."""

    def __init__(self, engine: Engine, on_effects: Callable[[Effects], None], on_outcome: Told) -> None:
        self._loop = asyncio.get_running_loop()
        self._engine = engine
        self._on_effects = on_effects
        self._on_outcome = on_outcome
        self._waiting: Group = []
        self._in_flight = False
        self._scheduled = False
        self._closing: asyncio.Future[None] | None = None
        self._queue: SimpleQueue[tuple[Group, threading.Lock] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outlast-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation) -> asyncio.Future[Any]:
        """The operation's outcome; it is carried out also if the future is cancelled."""
        if self._closing is not None:
            raise StoreError("the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((operation, future))
        self._schedule()
        return future

    def _schedule(self) -> None:
        if not self._scheduled and not self._in_flight:
            self._scheduled = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        if self._in_flight or not self._waiting:
            return
        group, self._waiting = self._waiting, []
        self._in_flight = True
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
        while (item := self._queue.get()) is not None:
            group, working = item
            try:
                outcomes, effects = self._engine.execute([operation for operation, _ in group])
            except Exception as error:  # noqa: BLE001 — a caller must hear of it, or it waits for ever
                outcomes, effects = [error] * len(group), Effects()
            working.release()  # by the thread that did not take it: it tells the guard that the group is done
            try:
                self._loop.call_soon_threadsafe(self._done, group, outcomes, effects)
            except RuntimeError:
                return  # The loop is gone: so are the callers.
            self._engine.ring(effects)

    def _done(self, group: Group, outcomes: list[object], effects: Effects) -> None:
        self._in_flight = False
        self._on_effects(effects)
        for (operation, future), outcome in zip(group, outcomes, strict=True):
            self._on_outcome(operation, outcome)
            if future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if self._waiting or self._closing is None:
            # After the callers that just woke: what they submit now belongs to the next group.
            self._scheduled = True
            self._loop.call_soon(self._dispatch)
        elif not self._closing.done():
            self._closing.set_result(None)

    async def close(self) -> None:
        """Write what was submitted, then end the thread."""
        if self._closing is None:
            self._closing = self._loop.create_future()
            if not self._waiting and not self._in_flight:
                self._closing.set_result(None)
            await asyncio.shield(self._closing)
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
