"""A client of a store: the same handles, owning nothing. For web tiers and scripts."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from outlast.errors import ForkedError, UsageError
from outlast.runtime import arguments
from outlast.runtime.actor import SessionActor
from outlast.runtime.arguments import given, words
from outlast.runtime.backing import Delta
from outlast.runtime.handles import Session
from outlast.runtime.home import here
from outlast.store.contract import Store
from outlast.store.url import default_url, open_store


class Client:
    """Sends, follows, answers and looks through the store; sessions are owned and run by others.

    Used as `async with`.
    """

    def __init__(self, url: str | None = None, *, label: str | None = None) -> None:
        self._url = default_url(os.environ) if url is None else words(url, "address of the store")
        self._label = given(words, label, "label")
        self._pid = os.getpid()
        self._entered = False
        self._store: Store | None = None

    async def __aenter__(self) -> Client:
        if self._entered:
            raise UsageError("this client is open already", hint="connect another one")
        self._entered = True
        try:
            self._store = await open_store(self._url, label=self._label)
        except BaseException:
            self._entered = False
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End it; what was sent stays sent."""
        store, self._store = self._store, None
        self._entered = False
        if store is not None:
            await store.close()

    def session(self, session: str | None = None, *, workspace: str | Path | None = None) -> Session:
        """A handle: no I/O. Without an id it is a new session."""
        return Session(self, arguments.session_or_new(session), arguments.folder(workspace))

    # --- what a handle asks for (runtime.backing.Backing) ----------------------------------------

    @property
    def store(self) -> Store:
        if os.getpid() != self._pid:
            raise ForkedError("this client was made by the parent process", hint="connect in the child")
        if self._store is None:
            raise UsageError("the client is not open", hint="use it as `async with outlast.connect(url)`")
        return self._store

    def serve(self, session: str) -> None:
        """A client owns nothing."""

    def actor(self, session: str) -> SessionActor | None:
        return None

    def serving_failed(self, session: str) -> BaseException | None:
        return None

    def opening(self, agent: str | None, workspace: str | None) -> tuple[str, str]:
        """Raises UsageError when the session would be new and no agent is named."""
        if agent is None:
            raise UsageError("a new session needs an agent", hint="pass agent=…")
        return agent, here() if workspace is None else workspace

    def serving(self, session: str) -> bool:
        return False

    def listen(self, session: str) -> AbstractContextManager[asyncio.Queue[Delta]] | None:
        return None


def connect(url: str | None = None, *, label: str | None = None) -> Client:
    """A client of the store at `url` (None: the default one), for `async with`."""
    return Client(url, label=label)
