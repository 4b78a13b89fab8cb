"""The owning of a session while it is under way, for all who wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Claim(Generic[T]):
    """One attempt. Whoever wants the same joins it; when the last one gives up it is taken back: nobody would
    ever hear of the session that it owns."""

    def __init__(self, work: Coroutine[Any, Any, T], name: str, at_end: Callable[[], object]) -> None:
        self._task = asyncio.create_task(work, name=name)
        self._task.add_done_callback(_heard)
        self._task.add_done_callback(lambda _: at_end())
        self._waiting = 0
        self.given_up = False
        """It comes to nothing: whoever comes now waits for `ended` and makes one of his own."""

    async def result(self) -> T:
        """What came of it, or what it failed of. A caller that gives up as the last one goes on when all that
        was taken is given back."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._waiting == 1:
                self.give_up()
                await self.ended()
            raise
        finally:
            self._waiting -= 1

    def give_up(self) -> None:
        self.given_up = True
        self._task.cancel()

    async def ended(self) -> None:
        """Until it is at its end, whatever that is."""
        await asyncio.wait([self._task])


def _heard(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # There may be nobody left to be told.
