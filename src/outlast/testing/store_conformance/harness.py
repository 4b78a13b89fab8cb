"""How the suite reaches one store, and what it can have happen to it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Literal

from outlast.errors import OutlastError
from outlast.store.contract import Store
from outlast.testing.store_conformance.expect import UnsupportedError

Opener = Callable[[str, str], Awaitable[Store]]
"""(url, label) -> an incarnation; `outlast.store.url.open_store` with its keyword given by place."""

Moment = Literal["before_commit", "after_commit"]


class Harness(ABC):
    """One store of one back end. Only `start` has to be written; each other method that is makes more checks
    possible. What is left out, or cannot be done, raises UnsupportedError, and the check says why it was
    skipped."""

    def __init__(self) -> None:
        self._open: list[Store] = []
        self._names = 0
        self._run = os.urandom(4).hex()

    # --- for back ends -------------------------------------------------------------------------

    @abstractmethod
    async def start(self, label: str) -> Store:
        """A fresh incarnation on the store; the store is the same every time."""

    async def kill(self, store: Store) -> None:
        """End an incarnation as `kill -9` ends a process: nothing is given back and nobody is told."""
        raise UnsupportedError("its incarnations cannot be killed here")

    async def start_evictor(self) -> Store:
        """An incarnation whose take-over leaves the process of the old owner alive, to be fenced."""
        raise UnsupportedError("no take-over here leaves the old owner alive")

    async def start_dying(self, moment: Moment) -> Store:
        """An incarnation that is killed by itself at that moment of its first append."""
        raise UnsupportedError("no incarnation can be killed in the middle of an append here")

    async def start_stopping(self) -> Store:
        """An incarnation that stops (SIGSTOP) between choosing a blob to delete and deleting it."""
        raise UnsupportedError("a collection of blobs cannot be stopped in the middle here")

    async def until_stopped(self, store: Store) -> None:
        """What `start_stopping` gave has come to its stop."""
        raise UnsupportedError("nothing stops here")

    async def go_on(self, store: Store) -> None:
        """Wake what `start_stopping` has stopped."""
        raise UnsupportedError("nothing was stopped")

    async def start_read_only(self) -> Store:
        """An incarnation that may only read."""
        raise UnsupportedError("there is no read-only store here")

    def without_space(self, store: Store) -> AbstractAsyncContextManager[None]:
        """Within the block nothing more can be stored through `store`, for want of space."""
        raise UnsupportedError("a full disk cannot be made here")

    def busy(self) -> AbstractAsyncContextManager[Store]:
        """An incarnation that, within the block, waits in vain for its turn to write, and not for long."""
        raise UnsupportedError("nobody can keep writers out here")

    async def change_blob(self, digest: str, data: bytes) -> None:
        """Replace the content of a blob under the store."""
        raise UnsupportedError("blobs cannot be changed under the store here")

    async def backdate_blob(self, digest: str, seconds: float) -> None:
        """As if the blob had last been put so many seconds earlier."""
        raise UnsupportedError("the age of a blob cannot be set here")

    # --- for checks ----------------------------------------------------------------------------

    async def open(self, label: str = "conformance") -> Store:
        """A fresh incarnation that is closed with the check."""
        return self.closed_later(await self.start(label))

    async def end_somehow(self, store: Store) -> None:
        """Kill an incarnation, or close it where it cannot be killed."""
        try:
            await self.kill(store)
        except UnsupportedError:
            await store.close()

    def closed_later(self, store: Store) -> Store:
        self._open.append(store)
        return store

    def name(self, what: str = "s") -> str:
        """A session's name that was never used before."""
        self._names += 1
        return f"conformance-{self._run}-{self._names}-{what}"

    async def close(self) -> None:
        """Close the incarnations of a check; those that died are closed already."""
        stores, self._open = self._open, []
        for store in stores:
            with suppress(OutlastError):
                await store.close()

    async def end(self) -> None:
        """After the last check."""
        await self.close()


class Incarnations(Harness):
    """Incarnations in this process, opened by a function. What else is possible, a subclass says."""

    def __init__(self, url: str, opener: Opener) -> None:
        super().__init__()
        self.url = url
        self._opener = opener

    async def start(self, label: str) -> Store:
        return await self._opener(self.url, label)
