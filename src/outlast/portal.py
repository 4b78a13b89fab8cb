"""An event loop in a thread of its own, and how threads without one have it work for them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar, cast

from outlast.errors import ForkedError, UsageError

T = TypeVar("T")


class Portal:
    """From its making to `stop()` a thread runs an event loop. Every method may be called by any other
    thread; what is asked of it after its end raises UsageError, in a forked child ForkedError."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a finaliser may come at any point, also inside of `_submit`
        self._open = True
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: set[Future[Any]] = set()
        self._iterated: set[AsyncIterator[Any]] = set()
        """Touched by the loop's thread alone."""
        self._thread = threading.Thread(target=self._serve, name="outlast.blocking", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. KeyboardInterrupt while waiting cancels it, and goes on when it has ended."""
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self._loop.create_task(work)
            tasks.append(task)
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._hand_over(done, outcome))

        def cancel() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # interrupted before it was handed in
                outcome.cancel()

        try:
            try:
                self._refuse_own_thread()
                self._submit(begin, outcome)
            except UsageError:
                work.close()
                raise
            return outcome.result()
        except KeyboardInterrupt:
            with suppress(UsageError):
                self._submit(cancel)
                wait([outcome])
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items one by one. Whoever drops the iterator, or closes it, ends the work behind it."""
        try:
            while True:
                try:
                    yield self.run(self._next(items))
                except StopAsyncIteration:
                    return
        finally:
            # Not waited for: a finaliser may run in any thread, also in the loop's own.
            if self._open and os.getpid() == self._pid:
                self._submit(lambda: self._keep(self._loop.create_task(self._end(items))))

    def leave(self, last: Coroutine[Any, Any, None]) -> None:
        """End what other threads still wait for and every iteration, do `last`, stop."""
        try:
            self.run(self._leave(last))
        finally:
            self.stop()

    def stop(self) -> None:
        """End the loop and its thread; what still runs in it is cancelled."""
        with self._lock:
            if self._open:
                self._open = False
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # --- in the loop's thread ---------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._until_stopped())
        finally:
            with self._lock:
                self._open = False
            for future in self._waiting:
                if not future.done():
                    future.set_exception(_closed())

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    async def _leave(self, last: Coroutine[Any, Any, None]) -> None:
        others = self._tasks - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for items in list(self._iterated):
            await self._end(items)
        await last

    async def _next(self, items: AsyncIterator[T]) -> T:
        self._iterated.add(items)
        return await anext(items)

    async def _end(self, items: AsyncIterator[Any]) -> None:
        self._iterated.discard(items)
        await cast("AsyncGenerator[Any, None]", items).aclose()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hand_over(self, task: asyncio.Task[T], outcome: Future[T]) -> None:
        self._tasks.discard(task)
        self._waiting.discard(outcome)
        if task.cancelled():
            outcome.set_exception(_closed())
        elif (error := task.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    # --- in the callers' threads ------------------------------------------------------------------

    def _submit(self, begin: Callable[[], Any], outcome: Future[Any] | None = None) -> None:
        if os.getpid() != self._pid:
            raise ForkedError("the thread that does the work is the parent process's", hint="open it anew")
        with self._lock:
            if not self._open:
                raise _closed()
            if outcome is not None:
                self._waiting.add(outcome)
            # In order with `stop`: what is asked before it is begun, and then ended, before the loop closes.
            self._loop.call_soon_threadsafe(begin)

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a blocking call from the event loop's own thread would wait for itself",
                hint="use the asynchronous handles there",
            )


def _closed() -> UsageError:
    return UsageError("it was left, or its thread has ended", hint="use it within its `with` block")
