"""The SQLite store's asynchronous face. Writes go to the writer thread, reads are answered at once: each is a
few indexed rows from the page cache, cheaper than a hop to another thread."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from outlast import clock
from outlast.errors import FencedError, LeaseHeldError, OutlastError
from outlast.faults import point
from outlast.hold import Hold
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
from outlast.store.sqlite.blobs import Blobs
from outlast.store.sqlite.collection import COLLECTION, Collect, in_batches, unneeded
from outlast.store.sqlite.doorbell import Doorbell
from outlast.store.sqlite.engine import Engine, Settings, twin
from outlast.store.sqlite.incarnation import Incarnation, this_process
from outlast.store.sqlite.layout import Layout
from outlast.store.sqlite.mending import CutJournal, Mending
from outlast.store.sqlite.operations import Acquire, Admit, AppendRows, Operation, PutSnapshot, Release
from outlast.store.sqlite.reading import EVERYTHING, Reader
from outlast.store.sqlite.takeover import end_holder
from outlast.store.sqlite.transaction import Effects
from outlast.store.sqlite.writer import Hearers, Writer

_UNDER_LEASE = (AppendRows, PutSnapshot, Collect, CutJournal)
_AT_ONCE = AcquireOptions()
_ACQUIRE_POLL = 0.05
"""A holder that dies rings no bell; a look at its lock costs microseconds."""
_LOOK_PAUSE = 0.05
"""Between looks at whether this process was declared dead; the fence does not depend on them."""


@dataclass(frozen=True, slots=True)
class Address:
    """What a store is opened with."""

    url: str
    database: Path
    label: str
    """This process, for people."""
    memory: Path | None = None
    """Folder that remembers the highest epoch of each store."""
    busy_seconds: float = 10.0


class SqliteLease:
    """See `outlast.store.contract.Lease`. `lost` stays unset when it is given back: that is no loss."""

    def __init__(self, name: str, epoch: int, give_back: Callable[[SqliteLease], Awaitable[None]]) -> None:
        self.name = name
        self.epoch = epoch
        self.lost = asyncio.Event()
        self.reason: LossReason | None = None
        self._give_back = give_back

    def lose(self, reason: LossReason) -> None:
        self.reason = self.reason or reason
        self.lost.set()

    async def release(self) -> None:
        """Give it back. Raises StoreError when that cannot be stored; the lease is then still held, until
        the store is closed or the process ends."""
        if not self.lost.is_set() and self.reason is None:
            await self._give_back(self)
            self.reason = "released"


@dataclass(slots=True)
class _Parts:
    """What an open store consists of."""

    engine: Engine
    reader: Reader
    writer: Writer
    doorbell: Doorbell
    blobs: Blobs
    incarnation: Incarnation
    leases: dict[int, SqliteLease] = field(default_factory=dict)
    """By epoch."""
    registered: bool = False


class SqliteStore:
    """See `outlast.store.contract.Store`. Belongs to the event loop that opened it."""

    scope: Scope = "machine"

    def __init__(self, address: Address, engine: Engine) -> None:
        layout = Layout.of(address.database)
        self.url = address.url
        self.store_id = engine.store_id
        self.incarnation = engine.node
        self.label = address.label
        self.folder = layout.folder
        self.read_only = engine.behind
        self._layout = layout
        self._pid = os.getpid()
        self._closed = False
        self._closing: asyncio.Future[None] | None = None
        self._next_look = 0.0
        with ExitStack() as undo:
            reader = Reader(layout)
            undo.callback(reader.close)
            doorbell = Doorbell(layout.bell, reader, self._stirred)
            undo.callback(doorbell.close)
            self._parts = _Parts(
                engine=engine,
                reader=reader,
                doorbell=doorbell,
                blobs=Blobs(layout.blobs),
                incarnation=Incarnation(layout.nodes, this_process(engine.node, address.label)),
                # Last: nothing that could fail comes after its thread.
                writer=Writer(engine, Hearers(self._committed, self._refused, self._ended)),
            )
            undo.pop_all()
        self.mending = Mending(layout, engine.store_id, reader, self._submit)

    @classmethod
    async def open(cls, address: Address) -> SqliteStore:
        """Raises SchemaError, StoreFullError, StoreBusyError, PlatformError."""
        settings = Settings(
            Layout.of(address.database), uuid.uuid4().hex, address.busy_seconds, memory=address.memory
        )
        engine = await asyncio.to_thread(Engine, settings)
        try:
            return cls(address, engine)
        except BaseException:
            engine.close()
            raise

    # --- ledger ---

    def append(self, batch: Append) -> Awaitable[int]:
        # No coroutine: the journal would need a task for it, at each append.
        try:
            self._refuse_lost(batch.lease)
            return self._parts.writer.submit_kept(AppendRows(batch))
        except OutlastError as refusal:
            return _refused(refusal)

    def _refuse_lost(self, lease: Lease) -> None:
        self._open_parts(writing=True)
        if lease.lost.is_set() and not point("store.fence"):
            raise refusals.lost(lease.name, epoch=lease.epoch)

    async def read(self, name: str, after: int, limit: int = 1000) -> list[Row]:
        return self._open_parts().reader.page(name, after, limit)

    async def tip(self, name: str) -> Tip:
        return self._open_parts().reader.tip(name)

    def changes(self, name: str | None = None) -> AbstractContextManager[asyncio.Event]:
        return self._open_parts().doorbell.changes(name)

    # --- snapshots ---

    async def put_snapshot(self, snapshot: Snapshot, lease: Lease) -> None:
        self._refuse_lost(lease)
        await self._submit(PutSnapshot(snapshot, lease))

    async def snapshots(self, name: str) -> list[Snapshot]:
        return self._open_parts().reader.snapshots(name)

    # --- leases ---

    async def acquire(self, name: str, options: AcquireOptions = _AT_ONCE) -> Lease:
        parts = self._open_parts(writing=True)
        evicted = await self._take_over(name) if options.take_over else None
        deadline = clock.monotonic() + options.wait
        while True:
            try:
                return await self._acquire_once(parts, name, options.damaged, evicted)
            except LeaseHeldError:
                if not await self._until_free(name, deadline):
                    raise

    async def _until_free(self, name: str, deadline: float) -> bool:
        """False when the deadline comes first."""
        with self.changes(name) as changed:
            while (left := deadline - clock.monotonic()) > 0:
                changed.clear()
                if self._open_parts().reader.holder(name) is None:
                    return True
                try:
                    async with asyncio.timeout(min(left, _ACQUIRE_POLL)):
                        await changed.wait()
                except TimeoutError:
                    continue
        return False

    async def _acquire_once(
        self, parts: _Parts, name: str, damaged: bool, evicted: str | None
    ) -> SqliteLease:
        if not parts.incarnation.begun:
            parts.incarnation.begin()
        witness, me = parts.engine.witness, parts.incarnation.node
        operation = Acquire(name, me, witness, parts.registered, damaged, evicted)
        hold = Hold()
        try:
            lease = await hold.until_done(self._granted(parts, operation))
            if hold.cancelled:
                # A lease that nobody holds would keep everybody out for the life of this process.
                await hold.until_done(lease.release())
        except OutlastError as failure:
            hold.let_go(failure)
            raise
        hold.let_go()
        return lease

    async def _granted(self, parts: _Parts, operation: Acquire) -> SqliteLease:
        epoch = cast(int, await self._submit(operation))
        parts.registered = True
        lease = parts.leases[epoch] = SqliteLease(operation.name, epoch, self._release)
        return lease

    async def _take_over(self, name: str) -> str | None:
        """End the living holder. Returns it only if the kill was left out on purpose."""
        found = self._open_parts().reader.node(name)
        if found is None:
            return None
        epoch, node = found
        if point("takeover.kill"):
            return node.id
        await asyncio.to_thread(end_holder, self._layout.nodes, name, epoch, node)
        return None

    async def _release(self, lease: SqliteLease) -> None:
        await self._submit(Release(((lease.name, lease.epoch),)))
        self._parts.leases.pop(lease.epoch, None)

    async def holder(self, name: str) -> Holder | None:
        return self._open_parts().reader.holder(name)

    # --- inbox ---

    async def admit(self, admission: Admission) -> Admitted:
        return cast(Admitted, await self._submit(Admit.of(admission, clock.now())))

    async def pending(self, name: str) -> list[Entry]:
        return self._open_parts().reader.pending(name)

    async def settled(self, name: str, request_id: str) -> Tombstone | None:
        return self._open_parts().reader.settled(name, request_id)

    # --- blobs ---

    async def put_blob(self, data: bytes) -> str:
        return await asyncio.to_thread(self._open_parts(writing=True).blobs.put, data)

    async def get_blob(self, digest: str) -> bytes:
        return await asyncio.to_thread(self._open_parts().blobs.get, digest)

    async def collect_blobs(self, *, untouched_for: float = DAY, every: float = 0.0) -> Collected | None:
        blobs, now = self._open_parts(writing=True).blobs, clock.now()
        before = now - int(untouched_for * 1_000_000)
        if now - await asyncio.to_thread(blobs.collected_at) < every * 1_000_000:
            return None
        freed = Collected()
        lease: Lease | None = None
        batches = in_batches(blobs, before)
        try:
            while batch := await asyncio.to_thread(next, batches, ()):
                files = unneeded(self._open_parts().reader, batch)
                if not files:
                    continue
                lease = lease or await self.acquire(COLLECTION)
                point("store.collect.chosen")
                done = cast(Collected, await self._submit(Collect(lease, blobs, tuple(files), before)))
                freed = Collected(freed.blobs + done.blobs, freed.bytes + done.bytes)
        except LeaseHeldError:
            return None
        finally:
            if lease is not None and not self._closed:
                await lease.release()
        await asyncio.to_thread(blobs.note_collection)
        return freed

    # --- catalog ---

    async def list(self, query: CatalogQuery = EVERYTHING) -> list[Listed]:
        return self._open_parts().reader.list(query)

    async def listed(self, name: str) -> Listed | None:
        return self._open_parts().reader.listed(name)

    async def entry(self, name: str) -> CatalogEntry | None:
        return self._open_parts().reader.entry(name)

    async def find(self, name_or_prefix: str) -> str:
        return self._open_parts().reader.find(name_or_prefix)

    # --- life ---

    async def close(self) -> None:
        """Also when the disk is full: what cannot be released is freed by the lock that ends here."""
        if os.getpid() == self._pid:
            if self._closing is None:
                self._closing = asyncio.ensure_future(self._close())
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        parts = self._parts
        clean = True
        if parts.incarnation.begun:
            try:
                await self._submit(Release((), retire=parts.incarnation.node.id))
            except OutlastError:
                clean = False
        self._closed = True
        self._lose_all("closed")
        with ExitStack() as steps:  # each is taken, whatever becomes of those before it
            steps.callback(parts.engine.close)
            steps.callback(parts.reader.close)
            steps.callback(parts.incarnation.end, remove=clean)
            steps.callback(parts.doorbell.close)
            await parts.writer.close()

    # --- what the parts tell ---

    def _submit(self, operation: Operation) -> asyncio.Future[object]:
        return self._open_parts(writing=True).writer.submit(operation)

    def _open_parts(self, *, writing: bool = False) -> _Parts:
        if os.getpid() != self._pid:
            raise refusals.forked()
        if self._closed:
            raise refusals.closed()
        if writing and self._parts.engine.outdated is not None:
            raise twin(self._parts.engine.outdated)
        if writing and self.read_only:
            raise refusals.behind(self._layout.database)
        return self._parts

    def _committed(self, effects: Effects) -> None:
        self._parts.doorbell.ring(effects)

    def _refused(self, operation: Operation, refusal: BaseException) -> None:
        """The first refusal shuts the lease for everybody; a latched engine, which has refused too, shuts all
        of them."""
        if isinstance(refusal, FencedError) and isinstance(operation, _UNDER_LEASE):
            # One that was given back too, whatever became of it here.
            self._parts.leases.pop(operation.lease.epoch, None)
            operation.lease.lose("fenced")
        if self._parts.engine.latched:
            self._ended()

    def _ended(self) -> None:
        if self._parts.engine.outdated is None:
            self._lose_all("writer_ended")
        else:
            self._lose_all("outdated")

    def _stirred(self) -> None:
        """Somebody has written, maybe we ourselves: were we declared dead?"""
        parts = self._parts
        now = clock.monotonic()
        if not parts.leases or now < self._next_look or self._closing is not None:
            return  # Who closes the store has given its node up by itself.
        self._next_look = now + _LOOK_PAUSE
        with suppress(OutlastError):  # the next look, and the fence, are there
            if not parts.reader.has_node(parts.incarnation.node.id):
                self._lose_all("fenced")

    def _lose(self, epoch: int, reason: LossReason) -> None:
        lease = self._parts.leases.pop(epoch, None)
        if lease is not None:
            lease.lose(reason)

    def _lose_all(self, reason: LossReason) -> None:
        for epoch in list(self._parts.leases):
            self._lose(epoch, reason)


async def _refused(refusal: OutlastError) -> int:
    raise refusal
