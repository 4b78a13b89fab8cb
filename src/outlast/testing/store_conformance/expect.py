"""What a check expects, in a way that also `python -O` and a runner without pytest hold it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from outlast.errors import OutlastError

T = TypeVar("T")
E = TypeVar("E", bound=OutlastError)

PATIENCE = 20.0
"""Seconds until a fact that does not come true fails its check. No check depends on how fast anything is."""

_NAP = 0.02


class NotAsPromisedError(AssertionError):
    """The store does not keep the contract; the message says where."""


class UnsupportedError(Exception):
    """A check cannot be made on this store, or not in this way of running it; the message says why."""


def equal(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise NotAsPromisedError(f"{what}: {_shown(found)} instead of {_shown(wanted)}")


def holds(fact: object, what: str) -> None:
    """`what` says what must be so."""
    if not fact:
        raise NotAsPromisedError(f"not so: {what}")


@dataclass
class Refusal(Generic[E]):
    """The error that came, once the block has ended."""

    _error: E | None = None

    @property
    def error(self) -> E:
        assert self._error is not None  # the block has ended with it
        return self._error


@contextmanager
def refused(kind: type[E], what: str) -> Iterator[Refusal[E]]:
    """The block ends with an error of this kind, not of another and not without one."""
    refusal: Refusal[E] = Refusal()
    try:
        yield refusal
    except kind as error:
        refusal._error = error  # noqa: SLF001 - its maker
        return
    except OutlastError as error:
        raise NotAsPromisedError(f"{what}: {error!r} instead of {kind.__name__}") from error
    raise NotAsPromisedError(f"{what}: it was not refused ({kind.__name__})")


async def soon(work: Awaitable[T], what: str) -> T:
    """What `work` gives, in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await work
    except TimeoutError as error:
        raise NotAsPromisedError(f"did not happen within {PATIENCE:g} seconds: {what}") from error


@asynccontextmanager
async def begun(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """A task that goes on beside the block and does not outlive it."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(fact: Callable[[], Awaitable[T]], what: str) -> T:
    """What `fact` gives, once it gives something true; for facts that no event tells."""

    async def look() -> T:
        while not (found := await fact()):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(_NAP)
        return found

    return await soon(look(), what)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}… ({len(text)} characters)"
