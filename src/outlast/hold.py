"""Seeing something through although its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class Kept(asyncio.Future[T]):
    """A future that outlives the cancellation of whoever awaits it: a task that is cancelled meanwhile hears
    of it when this is done."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False


class Hold:
    """Keeps a caller at what must be known to its end. A cancellation meanwhile is for afterwards."""

    def __init__(self) -> None:
        self._cancelled: asyncio.CancelledError | None = None

    async def until_done(self, work: Awaitable[T]) -> T:
        """Its result, whatever happens to the caller. Raises what it raises."""
        future = asyncio.ensure_future(work)
        try:
            # Of others not the future itself is awaited: a cancelled task cancels that.
            await (future if isinstance(future, Kept) else _end_of(future))
        except asyncio.CancelledError as error:
            self._cancelled = error
        return future.result()

    @property
    def cancelled(self) -> bool:
        return self._cancelled is not None

    def let_go(self, failure: Exception | None = None) -> None:
        """Raises the cancellation, if there was one, with `failure` as its cause."""
        if self._cancelled is not None:
            raise self._cancelled from failure


def _end_of(future: asyncio.Future[Any]) -> Kept[None]:
    """Done as soon as `future` is, however that ends."""
    ended: Kept[None] = Kept(loop=future.get_loop())
    future.add_done_callback(lambda _: ended.set_result(None))
    return ended
