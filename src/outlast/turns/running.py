"""Which effects run on this machine: a body holds a lock for as long as it runs, owned or not.

A body that is a plain function runs in a thread that nobody can end, and one that is async may take no notice
of its end. Its owner leaves it behind, and the next one must neither take "absent" for an answer nor begin
another body, while it may still do what it was to do. The lock is the system's own: it goes with the process.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from outlast.turns.effects import EffectContext


class BodyLock:
    """The lock of the bodies of one effect, in `folder`. Any thread may release it, once or more often."""

    def __init__(self, folder: Path, effect: str) -> None:
        self._path = folder / hashlib.sha256(effect.encode()).hexdigest()
        self._file = -1
        self._turn = threading.Lock()

    def take(self) -> bool:
        """Make it ours; False while a body of the effect runs. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = os.fstat(file).st_nlink > 0  # else who had it has removed the file meanwhile
            except BlockingIOError:
                os.close(file)
                return False
            except OSError:
                os.close(file)
                raise
            if mine:
                self._file = file
                return True
            os.close(file)

    def release(self) -> None:
        """Nothing of a body runs any more."""
        with self._turn:
            file, self._file = self._file, -1
        if file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(file)


def begin(
    function: Callable[[EffectContext], Any], given: EffectContext, lock: BodyLock | None = None
) -> asyncio.Task[Any]:
    """The call of `function`. `lock` is released once nothing of it runs any more, which is after the task
    where it is left behind in its thread."""
    call = _Call(function, given, lock)
    task = asyncio.create_task(call.result(), name=f"effect {given.name}")
    task.add_done_callback(call.leave)  # Also of one that was cancelled before it had begun.
    return task


class BodyRaised(Exception):  # noqa: N818 - says what was raised
    """A body raised what would end more than itself: the loop, the process, the task that waits for it."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"it raised {type(raised).__name__}")
        self.raised = raised


def kind_raised(error: BaseException) -> str:
    """The name of the type that a body raised."""
    return type(error.raised if isinstance(error, BodyRaised) else error).__name__


def _may_be_raised(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


async def _harmless(body: Awaitable[Any]) -> Any:
    """What a body that runs in the loop gives."""
    try:
        return await body
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise  # The second is a person's at the keyboard here, unlike in a thread.
    except BaseException as raised:
        if _may_be_raised(raised):
            raise
        raise BodyRaised(raised) from raised


class _Call:
    def __init__(
        self, function: Callable[[EffectContext], Any], given: EffectContext, lock: BodyLock | None
    ) -> None:
        self._function, self._given, self._lock = function, given, lock
        self._mutex = threading.Lock()
        self._in_thread, self._left = threading.Event(), threading.Event()

    async def result(self) -> Any:
        function = self._function
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await _harmless(function(self._given))
        found, raised = await asyncio.to_thread(self._run)
        if raised is not None:
            raise raised if _may_be_raised(raised) else BodyRaised(raised)
        return await _harmless(found) if isinstance(found, Awaitable) else found

    def _run(self) -> tuple[Any, BaseException | None]:
        """What it gave and what it raised: a future takes no StopIteration, and then never ends."""
        with self._mutex:
            if self._left.is_set():
                return None, None  # No thread was free for it until then.
            self._in_thread.set()
        try:
            return self._function(self._given), None
        except BaseException as raised:  # noqa: BLE001 - of a body in its thread, not of this process
            return None, raised
        finally:
            with self._mutex:
                self._in_thread.clear()
                left = self._left.is_set()
            if left:
                self._end()

    def leave(self, _: object) -> None:
        with self._mutex:
            self._left.set()
            runs = self._in_thread.is_set()
        if not runs:
            self._end()

    def _end(self) -> None:
        if self._lock is not None:
            self._lock.release()
