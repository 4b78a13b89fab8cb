"""The store in memory as its users see it. Each open store is an incarnation of its own."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from outlast import clock
from outlast.errors import FencedError, LeaseHeldError, UsageError
from outlast.store import refusals
from outlast.store.contract import (
    DAY,
    AcquireOptions,
    Admission,
    Admitted,
    Append,
    CatalogEntry,
    CatalogQuery,
    Collected,
    Entry,
    Holder,
    Lease,
    Listed,
    LossReason,
    Row,
    Scope,
    Snapshot,
    Tip,
    Tombstone,
)
from outlast.store.memory.tables import Tables
from outlast.store.waiters import Waiters

_AT_ONCE = AcquireOptions()
_EVERYTHING = CatalogQuery()
_PREFIX = "memory://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_named: dict[str, Tables] = {}
"""Stores with a name live as long as the process."""


class MemoryLease:
    """See `outlast.store.contract.Lease`."""

    def __init__(self, name: str, epoch: int, store: MemoryStore) -> None:
        self.name = name
        self.epoch = epoch
        self.lost = asyncio.Event()
        self.reason: LossReason | None = None
        self._store = store

    def lose(self, reason: LossReason) -> None:
        self.reason = self.reason or reason
        self.lost.set()

    async def release(self) -> None:
        if not self.lost.is_set() and self.reason is None:
            self._store.give_back(self)
            self.reason = "released"


class MemoryStore:
    """See `outlast.store.contract.Store`. Belongs to the event loop that opened it."""

    scope: Scope = "process"
    read_only = False

    def __init__(self, url: str, label: str, tables: Tables) -> None:
        self.url = url
        self.label = label
        self.incarnation = uuid.uuid4().hex
        self.store_id = tables.store_id
        self.folder = tables.folder
        self.tables = tables
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._closed = False
        self._leases: dict[int, MemoryLease] = {}
        self._waiters = Waiters()
        tables.join(self.incarnation, label, self._told)

    @classmethod
    def open(cls, url: str, label: str) -> Self:
        """Raises UsageError."""
        return cls(url, label, cls.tables_at(url))

    @staticmethod
    def tables_at(url: str) -> Tables:
        """`memory://` is a new store, `memory://NAME` the one of that name in this process. Raises UsageError
        for another address."""
        name = url.removeprefix(_PREFIX)
        if not url.startswith(_PREFIX) or (name and not _NAME.fullmatch(name)):
            raise UsageError(
                "a memory address is memory:// or memory://NAME",
                hint="a name is letters, digits, dots, dashes and underscores",
            )
        if not name:
            return Tables()
        return _named.get(name) or _named.setdefault(name, Tables())

    # --- ledger ---

    async def append(self, batch: Append) -> int:
        tables = await self._ready(batch.lease)
        with self._losing(batch.lease):
            return tables.append(batch, self.incarnation)

    async def read(self, name: str, after: int, limit: int = 1000) -> list[Row]:
        return self._open().read(name, after, limit)

    async def tip(self, name: str) -> Tip:
        return self._open().tip(name)

    def changes(self, name: str | None = None) -> AbstractContextManager[asyncio.Event]:
        self._open()
        return self._waiters.waiting(name)

    # --- snapshots ---

    async def put_snapshot(self, snapshot: Snapshot, lease: Lease) -> None:
        tables = await self._ready(lease)
        with self._losing(lease):
            tables.put_snapshot(snapshot, lease, self.incarnation)

    async def snapshots(self, name: str) -> list[Snapshot]:
        return self._open().snapshots(name)

    # --- leases ---

    async def acquire(self, name: str, options: AcquireOptions = _AT_ONCE) -> Lease:
        deadline = clock.monotonic() + options.wait
        with self.changes(name) as changed:
            while True:
                changed.clear()
                tables = await self._ready()
                try:
                    epoch = tables.acquire(name, self.incarnation, take_over=options.take_over)
                except LeaseHeldError:
                    if not await _until(changed, deadline):
                        raise
                else:
                    lease = self._leases[epoch] = MemoryLease(name, epoch, self)
                    return lease

    def give_back(self, lease: MemoryLease) -> None:
        """A stale one frees nobody."""
        self._open().release(lease.name, lease.epoch, self.incarnation)
        self._leases.pop(lease.epoch, None)

    async def holder(self, name: str) -> Holder | None:
        return self._open().holder(name)

    # --- inbox ---

    async def admit(self, admission: Admission) -> Admitted:
        tables = await self._ready()
        return tables.admit(admission, clock.now())

    async def pending(self, name: str) -> list[Entry]:
        return self._open().pending(name)

    async def settled(self, name: str, request_id: str) -> Tombstone | None:
        return self._open().settled(name, request_id)

    # --- blobs ---

    async def put_blob(self, data: bytes) -> str:
        tables = await self._ready()
        return tables.put_blob(data, clock.now())

    async def get_blob(self, digest: str) -> bytes:
        return self._open().get_blob(digest)

    async def collect_blobs(self, *, untouched_for: float = DAY, every: float = 0.0) -> Collected | None:
        tables, now = await self._ready(), clock.now()
        return tables.collect_blobs(now - _micros(untouched_for), now - _micros(every), now)

    # --- catalog ---

    async def list(self, query: CatalogQuery = _EVERYTHING) -> list[Listed]:
        return self._open().list_sessions(query)

    async def listed(self, name: str) -> Listed | None:
        return self._open().listed(name)

    async def entry(self, name: str) -> CatalogEntry | None:
        return self._open().entry(name)

    async def find(self, name_or_prefix: str) -> str:
        return self._open().find(name_or_prefix)

    # --- life ---

    async def close(self) -> None:
        if os.getpid() == self._pid and not self._closed:
            self.tables.leave(self.incarnation)
            self._end()

    def vanish(self) -> None:
        """For tests: end as a killed process does. Nothing is given back; who waits for what it owned notices
        the death."""
        self.tables.vanish(self.incarnation)
        self._end()

    def _end(self) -> None:
        self._closed = True
        self._lose_all("closed")
        self._waiters.ring_all()

    # --- what the parts tell ---

    async def _ready(self, lease: Lease | None = None) -> Tables:
        """As with any store, others get their turn before a write. Raises FencedError for a lost lease."""
        self._open()
        await asyncio.sleep(0)
        if lease is not None and lease.lost.is_set():
            raise refusals.lost(lease.name, epoch=lease.epoch)
        return self._open()

    def _open(self) -> Tables:
        if os.getpid() != self._pid:
            raise refusals.forked()
        if self._closed:
            raise refusals.closed()
        return self.tables

    @contextmanager
    def _losing(self, lease: Lease) -> Iterator[None]:
        """The first refusal shuts the lease for everybody."""
        try:
            yield
        except FencedError:
            lease.lose("fenced")
            raise

    def _told(self, name: str | None) -> None:
        """From whichever thread has written."""
        try:
            self._loop.call_soon_threadsafe(self._heard, name)
        except RuntimeError:  # the loop is closed: nobody waits there any more
            self.tables.vanish(self.incarnation)

    def _heard(self, name: str | None) -> None:
        if self.tables.is_dead(self.incarnation):
            self._lose_all("fenced")
        if name is None:
            self._waiters.ring_all()
        else:
            self._waiters.ring((name,))

    def _lose_all(self, reason: LossReason) -> None:
        for lease in self._leases.values():
            lease.lose(reason)
        self._leases.clear()


async def _until(changed: asyncio.Event, deadline: float) -> bool:
    """False when the deadline comes first."""
    left = deadline - clock.monotonic()
    if left <= 0:
        return False
    try:
        async with asyncio.timeout(left):
            await changed.wait()
    except TimeoutError:
        return False
    return True


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
