"""Incarnations in processes of their own, which can really be killed. To a check each is a store like any
other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from outlast.errors import StoreError
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
    Store,
    Tip,
    Tombstone,
)
from outlast.testing.store_conformance import wire
from outlast.testing.store_conformance.expect import until
from outlast.testing.store_conformance.harness import Harness

OPEN_BY_URL = "outlast.testing.store_conformance.incarnation:open_by_url"
"""The opener of every store that outlast has, as the other process imports it."""

_PROGRAM = """
import sys
from outlast.testing.store_conformance.incarnation import live
live(*sys.argv[1:])
"""

_AT_ONCE = AcquireOptions()
_EVERYTHING = CatalogQuery()


class Child:
    """Another process with one incarnation."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self.bells: dict[int, asyncio.Event] = {}
        self.leases: dict[int, RemoteLease] = {}
        self._hearing = asyncio.create_task(self._hear())

    @classmethod
    async def begin(cls, url: str, opener: str, variables: Mapping[str, str]) -> Child:
        path = os.pathsep.join(filter(None, sys.path))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            url,
            opener,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **variables},
        )
        return cls(process)

    async def call(self, method: str, *given: object) -> Any:
        """What the store's method gives. Raises what it raises, and StoreError once the process is gone."""
        asked = wire.METHODS[method]
        try:
            raw = msgspec.Raw(wire.encode(given))
        except UnicodeEncodeError as error:
            raise StoreError(f"cannot be said to another process: {error}") from error
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._numbers = number = self._numbers + 1
        self._waiting[number] = answer
        self.tell(number, method, raw)
        if self._hearing.done():
            self._nobody_answers()
        try:
            found = await asyncio.shield(answer)
        except asyncio.CancelledError:
            await self._call_off(number, answer, method)
            raise
        return msgspec.msgpack.decode(found, type=asked.gives)

    async def _call_off(self, number: int, answer: asyncio.Future[msgspec.Raw], method: str) -> None:
        """The other side ends the call as this side was told to; nobody keeps a lease that it brought, also
        not one that comes when this wait was cancelled in its turn."""
        self.tell(0, "cancel", msgspec.Raw(wire.encode((number,))))
        if method == "acquire":
            answer.add_done_callback(self._give_back)
        await asyncio.wait((answer,))

    def _give_back(self, answer: asyncio.Future[msgspec.Raw]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.tell(0, "release", msgspec.Raw(wire.encode((msgspec.msgpack.decode(answer.result()),))))

    def tell(self, number: int, method: str, given: msgspec.Raw) -> None:
        data = wire.encode(wire.Call(number, method, given))
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(wire.SIZE.pack(len(data)) + data)

    def watch(self, name: str | None) -> tuple[int, asyncio.Event]:
        self._numbers += 1
        event = self.bells[self._numbers] = asyncio.Event()
        self.tell(0, "watch", msgspec.Raw(wire.encode((self._numbers, name))))
        return self._numbers, event

    def unwatch(self, number: int) -> None:
        del self.bells[number]
        self.tell(0, "unwatch", msgspec.Raw(wire.encode((number,))))

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        stream = self._process.stdout
        try:
            while True:
                (size,) = wire.SIZE.unpack(await stream.readexactly(wire.SIZE.size))
                self._take(wire.decode_said(await stream.readexactly(size)))
        except asyncio.IncompleteReadError:
            self._nobody_answers()

    def _take(self, said: wire.Said) -> None:
        match said:
            case wire.Rang(watch):
                if watch in self.bells:
                    self.bells[watch].set()
            case wire.Lost(epoch, reason):
                if epoch in self.leases:
                    self.leases[epoch].note_lost(reason)
            case _:
                self._answered(said)

    def _answered(self, said: wire.Answer | wire.Failed) -> None:
        future = self._waiting.pop(said.number, None)
        if future is None or future.done():  # nobody waits for it
            return
        if isinstance(said, wire.Answer):
            future.set_result(said.result)
        else:
            future.set_exception(wire.as_error(said))

    def _nobody_answers(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(StoreError(f"process {self.pid} of this incarnation has ended"))

    @property
    def living(self) -> bool:
        return self._process.returncode is None and not self._hearing.done()

    def go_on(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)

    async def until_stopped(self) -> None:
        """It has come to rest: /proc says so."""
        stat = Path(f"/proc/{self.pid}/stat")

        async def stopped() -> bool:
            text = await asyncio.to_thread(stat.read_text, "utf-8", "replace")
            return text.rpartition(")")[2].split()[0] == "T"

        await until(stopped, f"process {self.pid} stops")

    async def kill(self) -> None:
        """SIGKILL, and until it is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self.until_gone()

    async def until_gone(self) -> None:
        await self._process.wait()
        await asyncio.gather(self._hearing, return_exceptions=True)
        if self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(ConnectionError):
                await self._process.stdin.wait_closed()


class RemoteLease:
    """A lease of another process."""

    def __init__(self, name: str, epoch: int, child: Child) -> None:
        self.name = name
        self.epoch = epoch
        self.lost = asyncio.Event()
        self.reason: LossReason | None = None
        self._child = child

    def note_lost(self, reason: LossReason | None) -> None:
        self.reason = self.reason or reason
        self.lost.set()

    def lose(self, reason: LossReason) -> None:
        self.note_lost(reason)
        self._child.tell(0, "lose", msgspec.Raw(wire.encode((self.epoch, reason))))

    async def release(self) -> None:
        await self._child.call("release", self.epoch)
        if not self.lost.is_set():
            self.reason = self.reason or "released"


class RemoteStore:
    """See `outlast.store.contract.Store`: the store of another process."""

    def __init__(self, child: Child, opened: wire.Opened) -> None:
        self.child = child
        self.url = opened.url
        self.store_id = opened.store_id
        self.scope: Scope = opened.scope
        self.read_only = opened.read_only
        self.folder = Path(opened.folder)
        self.incarnation = opened.incarnation
        self.label = opened.label
        self._call = child.call

    async def append(self, batch: Append) -> int:
        seq: int = await self._call("append", wire.Batch.of(batch))
        return seq

    async def read(self, name: str, after: int, limit: int = 1000) -> list[Row]:
        rows: list[Row] = await self._call("read", name, after, limit)
        return rows

    async def tip(self, name: str) -> Tip:
        tip: Tip = await self._call("tip", name)
        return tip

    @contextmanager
    def _changes(self, name: str | None) -> Iterator[asyncio.Event]:
        number, event = self.child.watch(name)
        try:
            yield event
        finally:
            self.child.unwatch(number)

    def changes(self, name: str | None = None) -> AbstractContextManager[asyncio.Event]:
        return self._changes(name)

    async def put_snapshot(self, snapshot: Snapshot, lease: Lease) -> None:
        await self._call("put_snapshot", snapshot, lease.epoch)

    async def snapshots(self, name: str) -> list[Snapshot]:
        found: list[Snapshot] = await self._call("snapshots", name)
        return found

    async def acquire(self, name: str, options: AcquireOptions = _AT_ONCE) -> Lease:
        epoch: int = await self._call("acquire", name, options)
        lease = self.child.leases[epoch] = RemoteLease(name, epoch, self.child)
        return lease

    async def holder(self, name: str) -> Holder | None:
        holder: Holder | None = await self._call("holder", name)
        return holder

    async def admit(self, admission: Admission) -> Admitted:
        admitted: Admitted = await self._call("admit", admission)
        return admitted

    async def pending(self, name: str) -> list[Entry]:
        entries: list[Entry] = await self._call("pending", name)
        return entries

    async def settled(self, name: str, request_id: str) -> Tombstone | None:
        tombstone: Tombstone | None = await self._call("settled", name, request_id)
        return tombstone

    async def put_blob(self, data: bytes) -> str:
        digest: str = await self._call("put_blob", data)
        return digest

    async def get_blob(self, digest: str) -> bytes:
        data: bytes = await self._call("get_blob", digest)
        return data

    async def collect_blobs(self, *, untouched_for: float = DAY, every: float = 0.0) -> Collected | None:
        collected: Collected | None = await self._call("collect_blobs", untouched_for, every)
        return collected

    async def list(self, query: CatalogQuery = _EVERYTHING) -> list[Listed]:
        rows: list[Listed] = await self._call("list", query)
        return rows

    async def listed(self, name: str) -> Listed | None:
        row: Listed | None = await self._call("listed", name)
        return row

    async def entry(self, name: str) -> CatalogEntry | None:
        entry: CatalogEntry | None = await self._call("entry", name)
        return entry

    async def find(self, name_or_prefix: str) -> str:
        name: str = await self._call("find", name_or_prefix)
        return name

    async def close(self) -> None:
        await self._call("close")


def child_of(store: Store) -> Child:
    assert isinstance(store, RemoteStore)  # a harness of processes opens no other
    return store.child


class Processes(Harness):
    """Each incarnation a process, killed by SIGKILL. `opener` is `module:function` of an `Opener`."""

    def __init__(self, url: str, opener: str = OPEN_BY_URL) -> None:
        super().__init__()
        self.url = url
        self._opener = opener
        self._used: list[Child] = []
        self._special: list[Child] = []
        """Processes with variables of their own."""
        self._spare: list[Child] = []
        """Processes whose store is closed: the next check opens another one in them."""

    async def start(self, label: str) -> Store:
        child = self._spare.pop() if self._spare else await self._begin({})
        self._used.append(child)
        return await _opened(child, label)

    async def start_with(self, label: str, variables: Mapping[str, str]) -> Store:
        """In a process with these environment variables beside the usual ones."""
        child = await self._begin(variables)
        self._special.append(child)
        return await _opened(child, label)

    async def _begin(self, variables: Mapping[str, str]) -> Child:
        return await Child.begin(self.url, self._opener, variables)

    async def kill(self, store: Store) -> None:
        await child_of(store).kill()

    async def close(self) -> None:
        for child in self._special:
            child.go_on()
        await super().close()
        used, self._used = self._used, []
        self._spare += [child for child in used if child.living]
        special, self._special = self._special, []
        for child in (*special, *(child for child in used if not child.living)):
            await child.kill()

    async def end(self) -> None:
        await super().end()
        spare, self._spare = self._spare, []
        for child in spare:
            await child.kill()


async def _opened(child: Child, label: str) -> Store:
    opened: wire.Opened = await child.call("open", label)
    return RemoteStore(child, opened)
