"""A process that uses a store as it is told: one JSON array a line in, one JSON value a line out."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable

from tests.support.stores import admit, append, seqs

from outlast.errors import OutlastError
from outlast.store.contract import AcquireOptions, CatalogQuery, Lease, Store
from outlast.store.url import open_store

Command = Callable[..., Awaitable[object]]


class Told:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: dict[str, Lease] = {}

    async def acquire(self, name: str, wait: float = 0.0, take_over: bool = False) -> int:
        lease = await self._store.acquire(name, AcquireOptions(wait, take_over))
        self._leases[name] = lease
        return lease.epoch

    async def release(self, name: str) -> None:
        await self._leases[name].release()

    async def append(self, name: str, count: int = 1) -> int:
        return await append(self._store, self._leases[name], count)

    async def append_many(self, name: str, times: int) -> int:
        """One durable append after the other; each acknowledged one is said."""
        seq = 0
        for _ in range(times):
            seq = await append(self._store, self._leases[name])
            print(seq, flush=True)
        return seq

    async def admit(self, name: str, request: str, body: str = "hi") -> bool:
        return (await admit(self._store, name, request, body.encode())).created

    async def put_blob(self, text: str) -> str:
        return await self._store.put_blob(text.encode())

    async def lost(self, name: str) -> bool:
        return self._leases[name].lost.is_set()

    async def until_lost(self, name: str) -> bool:
        await self._leases[name].lost.wait()
        return True

    async def tip(self, name: str) -> int:
        return (await self._store.tip(name)).seq

    async def seqs(self, name: str) -> list[int]:
        return await seqs(self._store, name)

    async def epochs(self, name: str) -> list[int]:
        return [row.epoch for row in await self._store.read(name, 0)]

    async def owners(self) -> list[object]:
        listed = await self._store.list(CatalogQuery())
        return [row.owner and row.owner.pid for row in listed]

    async def change(self, name: str) -> int:
        """Wait for a change of `name`; the tip then."""
        with self._store.changes(name) as changed:
            print(json.dumps("waiting"), flush=True)
            await changed.wait()
        return await self.tip(name)

    async def fork(self) -> int:
        """A child that only waits; its pid."""
        child = os.fork()
        if child == 0:
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            while True:
                signal.pause()
        return child

    async def limit_files(self, size: int) -> None:
        """No file of this process grows past `size` bytes: a full disk without one."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size if size else hard, hard))

    async def close(self) -> None:
        await self._store.close()


async def main(url: str) -> None:
    try:
        store = await open_store(url, label=f"other {os.getpid()}")
    except OutlastError as error:
        print(json.dumps(f"error: {error.code}"), flush=True)
        return
    told = Told(store)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, *arguments = json.loads(line)
        command: Command = getattr(told, name)
        try:
            answer = await command(*arguments)
        except OutlastError as error:
            answer = f"error: {error.code}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
