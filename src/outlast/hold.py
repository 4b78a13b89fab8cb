"""Seeing something through although its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Hold:
    """Keeps a caller at what must be known to its end. A cancellation meanwhile is for afterwards."""

    def __init__(self) -> None:
        self._cancelled: asyncio.CancelledError | None = None

    async def until_done(self, work: Awaitable[T]) -> T:
        """Its result, whatever happens to the caller. Raises what it raises."""
        future = asyncio.ensure_future(work)
        # Not the future itself is awaited: a cancelled task cancels that.
        while not future.done():
            ended = future.get_loop().create_future()
            future.add_done_callback(partial(_tell, ended))
            try:
                await ended
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


def _tell(ended: asyncio.Future[None], _: asyncio.Future[Any]) -> None:
    if not ended.done():
        ended.set_result(None)
