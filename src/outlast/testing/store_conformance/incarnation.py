"""An incarnation in a process of its own, which does what it is told on standard input (see `wire`)."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any

import msgspec

from outlast.errors import OutlastError, StoreError
from outlast.store.contract import AcquireOptions, Lease, LossReason, Snapshot, Store
from outlast.store.url import open_store
from outlast.testing.store_conformance import wire
from outlast.testing.store_conformance.harness import Opener

_AT_ONCE = frozenset({"watch", "unwatch", "cancel"})


async def open_by_url(url: str, label: str) -> Store:
    """What `Opener` is for the stores that outlast has."""
    return await open_store(url, label=label)


def opener_named(reference: str) -> Opener:
    """`module:function`. Raises ImportError, AttributeError."""
    module, _, function = reference.partition(":")
    found: Opener = getattr(import_module(module), function)
    return found


class Incarnation:
    """Its public methods are those of `wire.METHODS` that are not the store's own."""

    def __init__(self, url: str, opener: Opener) -> None:
        self._url = url
        self._opener = opener
        self._store: Store | None = None
        self._leases: dict[int, Lease] = {}
        self._told_lost: set[int] = set()
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._losses: set[asyncio.Task[None]] = set()

    @property
    def store(self) -> Store:
        assert self._store is not None  # the first call opens it
        return self._store

    async def serve(self, stream: asyncio.StreamReader) -> None:
        """Until the other side is gone. Calls are begun in their order and run beside each other."""
        while True:
            try:
                (size,) = wire.SIZE.unpack(await stream.readexactly(wire.SIZE.size))
                call = wire.decode_call(await stream.readexactly(size))
            except asyncio.IncompleteReadError:
                return
            if call.method in _AT_ONCE:
                self._at_once(call)
                continue
            task = self._calls[call.number] = asyncio.create_task(self._answer(call))
            task.add_done_callback(partial(self._ended, call.number))

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(number, None)
        if task.cancelled():  # before it began
            say(wire.failed(number, StoreError("called off")))

    def _at_once(self, call: wire.Call) -> None:
        """What is asked after it may count on it. Nothing is answered."""
        given = msgspec.msgpack.decode(call.given, type=wire.METHODS[call.method].takes)
        match call.method:
            case "watch":
                self._watch(*given)
            case "unwatch":
                self._unwatch(given[0])
            case _:
                task = self._calls.get(given[0])
                if task is not None:
                    task.cancel()

    async def _answer(self, call: wire.Call) -> None:
        said: wire.Said
        try:
            given = msgspec.msgpack.decode(call.given, type=wire.METHODS[call.method].takes)
            result = await self._method(call.method)(*given)
            said = wire.Answer(call.number, msgspec.Raw(wire.encode(result)))
        except OutlastError as error:
            said = wire.failed(call.number, error)
        except asyncio.CancelledError:
            said = wire.failed(call.number, StoreError("called off"))
        for epoch, lease in self._leases.items():
            self._tell_lost(epoch, lease)
        say(said)

    def _method(self, name: str) -> Callable[..., Awaitable[Any]]:
        own: Callable[..., Awaitable[Any]] | None = getattr(self, name, None)
        return own or getattr(self.store, name)

    def _tell_lost(self, epoch: int, lease: Lease) -> None:
        if lease.lost.is_set() and epoch not in self._told_lost:
            self._told_lost.add(epoch)
            say(wire.Lost(epoch, lease.reason))

    # --- life ---

    async def open(self, label: str) -> wire.Opened:
        self._store = store = await self._opener(self._url, label)
        self._leases.clear()
        self._told_lost.clear()
        return wire.Opened(
            store.url,
            store.store_id,
            store.scope,
            store.read_only,
            os.fspath(store.folder),
            store.incarnation,
            store.label,
        )

    async def close(self) -> None:
        await self.store.close()

    async def limit_files(self, size: int) -> None:
        """No file of this process grows past `size` bytes (0: no limit): a full disk without one."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size or hard, hard))

    # --- leases, which stay here ---

    async def acquire(self, name: str, options: AcquireOptions) -> int:
        lease = await self.store.acquire(name, options)
        self._leases[lease.epoch] = lease
        task = asyncio.create_task(self._until_lost(lease))
        self._losses.add(task)
        task.add_done_callback(self._losses.discard)
        return lease.epoch

    async def _until_lost(self, lease: Lease) -> None:
        await lease.lost.wait()
        self._tell_lost(lease.epoch, lease)

    async def release(self, epoch: int) -> None:
        await self._leases[epoch].release()

    async def lose(self, epoch: int, reason: LossReason) -> None:
        self._leases[epoch].lose(reason)

    async def append(self, batch: wire.Batch) -> int:
        return await self.store.append(batch.under(self._leases[batch.epoch]))

    async def put_snapshot(self, snapshot: Snapshot, epoch: int) -> None:
        await self.store.put_snapshot(snapshot, self._leases[epoch])

    async def collect_blobs(self, untouched_for: float, every: float) -> object:
        return await self.store.collect_blobs(untouched_for=untouched_for, every=every)

    # --- doorbells ---

    def _unwatch(self, number: int) -> None:
        task = self._watches.pop(number, None)
        if task is not None:
            task.cancel()

    def _watch(self, number: int, name: str | None) -> None:
        try:
            changes = self.store.changes(name)
        except OutlastError:  # a store that is closed; whoever waits looks for himself
            say(wire.Rang(number))
            return
        event = changes.__enter__()

        async def listen() -> None:
            try:
                while True:
                    await event.wait()
                    event.clear()
                    say(wire.Rang(number))
            finally:
                changes.__exit__(None, None, None)

        self._watches[number] = asyncio.create_task(listen())


def say(message: wire.Said) -> None:
    data = wire.encode(message)
    sys.stdout.buffer.write(wire.SIZE.pack(len(data)) + data)
    sys.stdout.buffer.flush()


def live(url: str, opener: str) -> None:
    """The life of such a process: until whoever tells it what to do is gone. It gives nothing back then."""

    async def serve() -> None:
        stream = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin.buffer)
        await Incarnation(url, opener_named(opener)).serve(stream)
        os._exit(0)

    asyncio.run(serve())
