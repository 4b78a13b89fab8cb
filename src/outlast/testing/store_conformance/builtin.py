"""The harnesses of the stores that outlast has."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from outlast import clock
from outlast.store import refusals
from outlast.store.contract import Append, Store
from outlast.store.memory.store import MemoryStore
from outlast.store.memory.tables import Tables
from outlast.store.sqlite.blobs import Blobs
from outlast.store.sqlite.layout import Layout
from outlast.store.sqlite.store import Address, SqliteStore
from outlast.store.sqlite.turnstile import Turnstile
from outlast.store.url import database_path
from outlast.testing.store_conformance.expect import UnsupportedError
from outlast.testing.store_conformance.harness import Harness, Incarnations, Moment
from outlast.testing.store_conformance.incarnation import open_by_url, opener_named
from outlast.testing.store_conformance.processes import OPEN_BY_URL, Processes, child_of

_SHORT = 0.2
"""Seconds that a writer waits where it is to wait in vain."""


def harnesses(url: str, opener: str = OPEN_BY_URL) -> dict[str, Harness]:
    """Every way in which the store at `url` can be tried, by a name for people. `opener` is `module:function`
    of an `Opener` for back ends of others. Raises UsageError, ImportError, AttributeError."""
    if opener != OPEN_BY_URL:
        return {
            "in one process": Incarnations(url, opener_named(opener)),
            "a process each": Processes(url, opener),
        }
    if url.startswith("memory:"):
        return {"in one process": InMemory(url)}
    database_path(url, os.environ)
    return {"in one process": Sqlite(url), "a process each": SqliteProcesses(url)}


class InMemory(Harness):
    """`memory://`: incarnations of one store of this process, which die when they are told to. `tables` is a
    store of its own, for whoever tries the suite on one that is broken."""

    def __init__(self, url: str = "memory://", tables: Tables | None = None) -> None:
        super().__init__()
        self.url = url
        # Without a name each open would be another store.
        self.tables: Tables = tables or MemoryStore.tables_at(url)

    async def start(self, label: str) -> Store:
        return MemoryStore(self.url, label, self.tables)

    async def start_evictor(self) -> Store:
        return await self.start("evictor")

    async def start_dying(self, moment: Moment) -> Store:
        return _Dying(self.url, self.tables, moment)

    async def kill(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        store.vanish()

    async def change_blob(self, digest: str, data: bytes) -> None:
        self.tables.change_blob(digest, data=data)

    async def backdate_blob(self, digest: str, seconds: float) -> None:
        self.tables.change_blob(digest, at=clock.now() - int(seconds * 1_000_000))


class _Dying(MemoryStore):
    """Dies in its first append."""

    def __init__(self, url: str, tables: Tables, moment: Moment) -> None:
        super().__init__(url, "dying", tables)
        self._moment = moment

    async def append(self, batch: Append) -> int:
        if self._moment == "after_commit":
            await super().append(batch)
        self.vanish()
        raise refusals.closed()


class _SqliteFiles:
    """What can be done to a SQLite store from beside it."""

    url: str

    @property
    def _layout(self) -> Layout:
        return Layout.of(database_path(self.url, os.environ))

    async def start_read_only(self) -> Store:
        """As after a restored backup: this machine remembers a higher epoch than the store has."""
        layout = self._layout
        store = await self._opened(None)
        await store.close()
        with tempfile.TemporaryDirectory(prefix="outlast-conformance-") as folder:
            memory = Path(folder)
            (memory / store.store_id).write_text(f"{2**62}", "ascii")
            return await SqliteStore.open(Address(self.url, layout.database, "reader", memory=memory))

    def busy(self) -> AbstractAsyncContextManager[Store]:
        return self._busy()

    @asynccontextmanager
    async def _busy(self) -> AsyncIterator[Store]:
        store = await self._opened(_SHORT)
        turnstile = Turnstile(self._layout)
        try:
            turn = turnstile.turn(10.0)
            await asyncio.to_thread(turn.__enter__)
            try:
                yield store
            finally:
                turn.__exit__(None, None, None)
        finally:
            turnstile.close()
            await store.close()

    async def _opened(self, busy_seconds: float | None) -> SqliteStore:
        address = Address(self.url, self._layout.database, "impatient", busy_seconds=busy_seconds or 10.0)
        return await SqliteStore.open(address)

    async def change_blob(self, digest: str, data: bytes) -> None:
        self._blob(digest).write_bytes(data)

    async def backdate_blob(self, digest: str, seconds: float) -> None:
        path = self._blob(digest)
        at = path.stat().st_mtime - seconds
        os.utime(path, (at, at))

    def _blob(self, digest: str) -> Path:
        return Blobs(self._layout.blobs).path(digest)


class Sqlite(_SqliteFiles, Incarnations):
    """Incarnations of this one process, which see each other as alive."""

    def __init__(self, url: str) -> None:
        super().__init__(url, open_by_url)

    async def kill(self, store: Store) -> None:
        raise UnsupportedError("its incarnations are one process: it would kill itself")


class SqliteProcesses(_SqliteFiles, Processes):
    """Each incarnation a process, with the fault points of the store."""

    async def _start_with_faults(self, label: str, plan: str) -> Store:
        faults: Mapping[str, str] = {"OUTLAST_FAULTS": plan, "OUTLAST_FAULTS_TESTING": "1"}
        return await self.start_with(label, faults)

    async def start_evictor(self) -> Store:
        return await self._start_with_faults("evictor", "takeover.kill=skip")

    async def start_dying(self, moment: Moment) -> Store:
        return await self._start_with_faults("dying", f"store.append.{moment}@1=kill")

    async def start_stopping(self) -> Store:
        return await self._start_with_faults("stopping", "store.collect.chosen@1=stop")

    async def until_stopped(self, store: Store) -> None:
        await child_of(store).until_stopped()

    async def go_on(self, store: Store) -> None:
        child_of(store).go_on()

    def without_space(self, store: Store) -> AbstractAsyncContextManager[None]:
        return self._without_space(store)

    @asynccontextmanager
    async def _without_space(self, store: Store) -> AsyncIterator[None]:
        child = child_of(store)
        await child.call("limit_files", 8 * 1024)
        try:
            yield
        finally:
            await child.call("limit_files", 0)
