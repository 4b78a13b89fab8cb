"""What `outlast bench` measures, each with the public parts that do the work in earnest."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from outlast.agents import Command
from outlast.journal import Journal
from outlast.keep import AgentFolder, Claim, LaunchRequest, ShimClient, start_idle
from outlast.records.envelope import Draft
from outlast.records.types import AgentEventRecorded, Fence, LoopStarted
from outlast.runtime.runtime import Runtime
from outlast.store.url import open_store, sqlite_url

if TYPE_CHECKING:
    from outlast.store.contract import Store

SESSIONS, BATCH = 100, 10
TEXT = "x" * 180
SAYS = r"""read -r _; printf '{"type":"message","role":"assistant","text":"hi"}\n{"type":"done"}\n'"""
"""A whole command agent in one line of shell."""
PEER = """
import asyncio, sys
from outlast.cli.measuring import answer_knocks
asyncio.run(answer_knocks(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    key: str
    name: str
    value: float
    unit: str

    @property
    def shown(self) -> str:
        return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.2f}"


async def measure(folder: Path, seconds: float) -> list[Figure]:
    """Every figure, in the order of a turn's way. `seconds` bounds each part."""
    figures = [Figure("raw_commit", "one raw SQLite commit", raw_commit(folder, seconds), "ms")]
    async with _store(folder, "appends") as store:
        figures.append(Figure("append_alone", "one durable append, alone", await alone(store, seconds), "ms"))
        figures.append(
            Figure("records", "durable records, 100 sessions", await together(store, seconds), "/s")
        )
    figures.append(Figure("wake", "wake of another process", await wake(folder, seconds), "ms"))
    figures.append(
        Figure("shim_start", "a shim's start to its agent's exec", await shim_start(folder, seconds), "ms")
    )
    turn, restore = await turns(folder, seconds)
    figures.append(Figure("turn", "a whole turn of a shell agent", turn, "ms"))
    figures.append(Figure("restore", "a restore after it", restore, "ms"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*figures, Figure("peak_memory", "peak memory of this process", peak, "MiB")]


def raw_commit(folder: Path, seconds: float) -> float:
    """Median milliseconds of one small row, committed in full, with nothing of ours around it."""
    connection = apsw.Connection(str(folder / "raw.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
    taken: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        begun = time.perf_counter()
        connection.execute("INSERT INTO t (b) VALUES (?)", (TEXT.encode(),))
        taken.append(time.perf_counter() - begun)
    connection.close()
    return statistics.median(taken) * 1e3


async def alone(store: Store, seconds: float) -> float:
    """Median milliseconds of one record, acknowledged before the next."""
    journal = await _journal(store, "alone")
    taken: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        begun = time.perf_counter()
        await journal.append([_draft()])
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e3


async def together(store: Store, seconds: float) -> float:
    """Records a second, in batches of ten, of a hundred sessions at once."""
    journals = [await _journal(store, f"s{number}") for number in range(SESSIONS)]
    written = 0
    deadline = time.perf_counter() + seconds

    async def write(journal: Journal) -> None:
        nonlocal written
        while time.perf_counter() < deadline:
            await journal.append([_draft() for _ in range(BATCH)])
            written += BATCH

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for journal in journals:
            group.create_task(write(journal))
    return written / (time.perf_counter() - begun)


async def wake(folder: Path, seconds: float) -> float:
    """Median milliseconds from a durable record here to its being read by another process: half of the way
    there and back. The answer's own append is in it."""
    url = sqlite_url(folder / "wake.db")
    async with _store(folder, "wake") as store:
        peer = subprocess.Popen([sys.executable, "-c", PEER, url])  # noqa: ASYNC220 - a vfork
        try:
            journal = await _journal(store, "knocks")
            await _knock(store, journal)  # the first answer says that the peer is there
            taken: list[float] = []
            deadline = time.perf_counter() + seconds
            while time.perf_counter() < deadline:
                taken.append(await _knock(store, journal))
        finally:
            peer.kill()
            peer.wait()
    return statistics.median(taken) * 1e3 / 2


async def _knock(store: Store, journal: Journal) -> float:
    """Seconds until the other process has answered a durable record with one of its own."""
    with store.changes("answers") as bell:
        (record,) = await journal.append([_draft()])
        begun = time.perf_counter()
        while (await store.tip("answers")).seq < record.seq:
            async with asyncio.timeout(30):
                await bell.wait()
            bell.clear()
        return time.perf_counter() - begun


async def answer_knocks(url: str) -> None:
    """The other process of `wake`: keeps its journal as long as the other's. Runs until it is ended."""
    store = await open_store(url, label="outlast bench")
    journal = await _journal(store, "answers")
    with store.changes("knocks") as bell:
        while True:
            bell.clear()
            while journal.state.seq < (await store.tip("knocks")).seq:
                await journal.append([_draft()])
            await bell.wait()


async def shim_start(folder: Path, seconds: float) -> float:
    """Median milliseconds until guard, shim and agent run."""
    claim = Claim("bench", "bench", 1, "bench")
    keep = AgentFolder.create(folder / "keep")
    taken: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(taken) < 3:
        begun = time.perf_counter()
        client = await ShimClient.connect(await start_idle(keep, claim))
        await client.attach(claim)
        await client.start(LaunchRequest(("/bin/cat",), {"PATH": os.defpath}, "/"))
        taken.append(time.perf_counter() - begun)
        await client.kill(0.0)
        await client.close()
    return statistics.median(taken[1:]) * 1e3


async def turns(folder: Path, seconds: float) -> tuple[float, float]:
    """Median milliseconds of a turn from `send` to its outcome, and of a restore afterwards."""
    url = sqlite_url(folder / "turns.db")
    agents = {"sh": Command(("/bin/sh", "-c", SAYS))}
    taken: list[float] = []
    async with Runtime(url, agents=agents, label="outlast bench") as runtime:
        session = runtime.session("bench", workspace=folder)
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline or len(taken) < 3:
            begun = time.perf_counter()
            (await (await session.send("go")).result()).raise_for_failure()
            taken.append(time.perf_counter() - begun)
    restored: list[float] = []
    for _ in range(3):
        async with Runtime(url, agents=agents, label="outlast bench") as runtime:
            begun = time.perf_counter()
            await runtime.restore("bench")
            restored.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e3, statistics.median(restored) * 1e3


@contextlib.asynccontextmanager
async def _store(folder: Path, name: str) -> AsyncIterator[Store]:
    store = await open_store(sqlite_url(folder / f"{name}.db"), label="outlast bench")
    try:
        yield store
    finally:
        await store.close()


async def _journal(store: Store, name: str) -> Journal:
    """A journal with the little that every session begins with."""
    lease = await store.acquire(name)
    journal = await Journal.open(store, lease)
    loop = LoopStarted(loop="main", name="main", agent="bench", agent_kind="command")
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="bench")), Draft(loop, loop="main")])
    return journal


def _draft() -> Draft:
    return Draft(AgentEventRecorded(kind="message", text=TEXT), loop="main")
