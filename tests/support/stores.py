"""Small real things for tests of stores: rows, sessions, and other processes that use the same store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from outlast.store.contract import (
    Admission,
    Admitted,
    Append,
    CatalogEntry,
    EntryKind,
    Lease,
    Row,
    Settlement,
    Store,
)

T = TypeVar("T")
PATIENCE = 20.0
"""Seconds until a test gives up; no test depends on how fast anything is."""


def row(seq: int, epoch: int, body: bytes = b"{}") -> Row:
    return Row(
        seq, epoch, os.urandom(16), 1_000_000, "T", 1, "l", None, "c", None, None, body, os.urandom(16)
    )


def rows(lease: Lease, after: int, count: int, body: bytes = b"{}") -> tuple[Row, ...]:
    return tuple(row(after + 1 + i, lease.epoch, body) for i in range(count))


def entry(name: str, seq: int = 0, **changes: Any) -> CatalogEntry:
    given = {"title": "t", "state": "new", "agent": "a", "workspace": "/w", "created_at": 1}
    given |= {"last_activity_at": 1, "turns": 0, "queued": 0, "open_gates": 0, "labels": ()}
    return CatalogEntry(session=name, seq=seq, **cast(Any, given | changes))


async def append(
    store: Store, lease: Lease, count: int = 1, settle: tuple[str, ...] = (), blobs: tuple[str, ...] = ()
) -> int:
    """`count` more rows at the tip; the first one settles the named requests, and they refer to `blobs`."""
    tip = (await store.tip(lease.name)).seq
    settled = tuple(Settlement(request, tip + 1) for request in settle)
    return await store.append(Append(lease.name, rows(lease, tip, count), tip, lease, settled, blobs=blobs))


async def admit(
    store: Store, name: str, request: str, body: bytes = b"hi", kind: EntryKind = "input"
) -> Admitted:
    admission = Admission(name, request, kind, body, "me", opening=entry(name), opening_body=b"{}")
    return await store.admit(admission)


async def seqs(store: Store, name: str) -> list[int]:
    found: list[int] = []
    while page := await store.read(name, found[-1] if found else 0):
        found += [row.seq for row in page]
    return found


async def eventually(event: asyncio.Event) -> None:
    await in_time(event.wait())


async def in_time(work: Awaitable[T]) -> T:
    """`work`, which a test waits for, but not for ever."""
    async with asyncio.timeout(PATIENCE):
        return await work


class Other:
    """Another process with the same store open, told what to do line by line (see `store_process`)."""

    def __init__(self, url: str, folder: Path, faults: str = "") -> None:
        environ = {"PATH": os.environ["PATH"], "OUTLAST_STATE_DIR": str(folder / "state")}
        environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "LANG": "C.UTF-8"}
        environ |= {"OUTLAST_FAULTS": faults, "OUTLAST_FAULTS_TESTING": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.store_process", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            cwd=Path(__file__).parents[2],
        )
        self.pid = self.process.pid

    def say(self, command: str, *arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, *arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """The result; a string `error: CODE` where the store refused, None if the process has died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, command: str, *arguments: object) -> Any:
        self.say(command, *arguments)
        return self.hear()

    async def ask_meanwhile(self, command: str, *arguments: object) -> Any:
        """`ask` while this process's event loop goes on."""
        return await asyncio.to_thread(self.ask, command, *arguments)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        """SIGSTOP, and wait until it has come to rest."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def other(url: str, folder: Path, faults: str = "") -> Iterator[Other]:
    process = Other(url, folder, faults)
    try:
        yield process
    finally:
        process.close()
