"""What the SQLite store does in a second, beside what SQLite itself does with the same rows.

    python benchmarks/store.py [--folder DIR] [--seconds 3] [--runs 3]

Prints one JSON object: rows and commits per second, milliseconds, and ratios of medians. The folder must be
on the disk that is to be measured, not on a memory filesystem.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from outlast.journal import Journal, read_records
from outlast.records.codec import decode_body
from outlast.records.envelope import Draft
from outlast.records.types import AgentEventRecorded, Fence, LoopStarted
from outlast.store.contract import Append, CatalogEntry, Lease, Row, Store
from outlast.store.sqlite import schema
from outlast.store.sqlite.layout import Layout, prepare
from outlast.store.sqlite.transaction import INSERT_RECORD
from outlast.store.url import open_store, sqlite_url

SESSIONS = 100
MAIN_LOOP = LoopStarted(loop="main", name="main", agent="a", agent_kind="command")
BODY = b'{"kind":"message","text":"' + b"x" * 180 + b'"}'


def row(seq: int, epoch: int) -> Row:
    id_, chain = os.urandom(16), os.urandom(16)
    return Row(
        seq,
        epoch,
        id_,
        1_700_000_000_000_000,
        "AgentEventRecorded",
        1,
        "l",
        "t",
        None,
        None,
        None,
        BODY,
        chain,
    )


def entry(name: str, seq: int) -> CatalogEntry:
    return CatalogEntry(name, seq, "title", "running", "codex", "/w", 1, seq, 1, 0, 0)


class Session:
    def __init__(self, store: Store, lease: Lease) -> None:
        self.store, self.lease, self.seq = store, lease, 0

    async def append(self, count: int) -> None:
        rows = tuple(row(self.seq + 1 + i, self.lease.epoch) for i in range(count))
        await self.store.append(Append(self.lease.name, rows, self.seq, self.lease))
        self.seq += count


async def callers(
    store: Store, count: int, seconds: float, size: Callable[[], int]
) -> tuple[int, int, list[float]]:
    """Appends and rows that `count` callers, each with its session, have acknowledged; and each latency."""
    sessions = [Session(store, await store.acquire(f"s{i}-{os.urandom(4).hex()}")) for i in range(count)]
    waits: list[float] = []
    rows = 0
    end = time.perf_counter() + seconds

    async def caller(session: Session) -> None:
        nonlocal rows
        while (begun := time.perf_counter()) < end:
            many = size()
            await session.append(many)
            rows += many
            waits.append(time.perf_counter() - begun)

    await asyncio.gather(*(caller(session) for session in sessions))
    for session in sessions:
        await session.lease.release()
    return len(waits), rows, waits


@contextmanager
def raw(folder: Path) -> Iterator[apsw.Connection]:
    layout = Layout.of(folder / f"raw-{os.urandom(4).hex()}.db")
    prepare(layout)
    schema.make_current(layout, 5.0, 0)
    connection = schema.open_for_writing(layout, 5.0)
    yield connection
    connection.close()


def raw_rows(folder: Path, seconds: float, groups: Callable[[], list[int]]) -> tuple[int, int, list[float]]:
    """Commits and rows of bare SQLite: the same table, rows and grouping, one thread, no acknowledgements."""
    with raw(folder) as connection:
        cursor = connection.cursor()
        seqs = [0] * SESSIONS
        waits: list[float] = []
        rows = 0
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            batch = []
            for s, many in enumerate(groups()):
                batch += [(s + 1, *row(seqs[s] + 1 + i, 1)) for i in range(many)]
                seqs[s] += many
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(INSERT_RECORD, batch)
            cursor.execute("COMMIT")
            rows += len(batch)
            waits.append(time.perf_counter() - begun)
    return len(waits), rows, waits


async def busy_loop(seconds: float) -> None:
    """An event loop with 4 ms of work in every tick."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        until = time.perf_counter() + 0.004
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


ECHO = """
import asyncio, os, sys
from outlast.store.contract import Append, Row
from outlast.store.url import open_store
async def main(url):
    store = await open_store(url)
    lease = await store.acquire("pong")
    seen = 0
    print("ready", flush=True)
    with store.changes("ping") as bell:
        while True:
            await bell.wait()
            bell.clear()
            tip = await store.tip("ping")
            if tip.seq > seen:
                seen = tip.seq
                ids = os.urandom(16), os.urandom(16)
                row = Row(seen, lease.epoch, ids[0], 1, "T", 1, None, None, None, None, None, b"{}", ids[1])
                await store.append(Append("pong", (row,), seen - 1, lease))
asyncio.run(main(sys.argv[1]))
"""


@contextmanager
def echo(url: str) -> Iterator[None]:
    """Another process that answers each record in `ping` by one in `pong`."""
    child = subprocess.Popen([sys.executable, "-c", ECHO, url], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    try:
        yield
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


async def wake(url: str, rounds: int) -> list[float]:
    """Half of the time from an append here over the answer's append there to its ring here."""
    store = await open_store(url)
    ping = Session(store, await store.acquire("ping"))
    waits = []
    with echo(url), store.changes("pong") as bell:
        for seq in range(1, rounds + 1):
            await asyncio.sleep(0.01)
            begun = time.perf_counter()
            await ping.append(1)
            while (await store.tip("pong")).seq < seq:
                await bell.wait()
                bell.clear()
            waits.append((time.perf_counter() - begun) / 2)
    await store.close()
    return waits


async def replay(url: str, count: int) -> tuple[float, float]:
    """Records a second: read, verified and decoded; and the bare scan and decode of the same rows."""
    store = await open_store(url)
    lease = await store.acquire("long")
    journal = await Journal.open(store, lease)
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="bench"))])
    await journal.append([Draft(MAIN_LOOP)])
    said = Draft(AgentEventRecorded(kind="message", text="x" * 180), loop="main")
    while journal.state.seq < count:
        await journal.append([said] * 1000)
    begun = time.perf_counter()
    async for _ in read_records(store, "long"):
        pass
    verified = time.perf_counter() - begun
    begun = time.perf_counter()
    after = 0
    while page := await store.read("long", after):
        after = page[-1].seq
        for found in page:
            decode_body(found.type, found.v, found.body)
    bare = time.perf_counter() - begun
    await store.close()
    return journal.state.seq / verified, journal.state.seq / bare


async def idle_cpu(url: str, seconds: float) -> float:
    """Percent of one core that an idle owner with a waiter uses."""
    store = await open_store(url)
    await store.acquire("idle")
    with store.changes("idle"):
        begun = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - begun
    await store.close()
    return 100 * used / seconds


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def with_store(folder: Path, work: Callable[[Store], Awaitable[dict[str, float]]]) -> dict[str, float]:
    store = await open_store(sqlite_url(folder / f"store-{os.urandom(4).hex()}.db"))
    try:
        return await work(store)
    finally:
        await store.close()


def measure(folder: Path, seconds: float) -> dict[str, float]:
    dice = random.Random(1)  # noqa: S311 — the same sizes in each run

    def sizes() -> int:
        return dice.randint(5, 20)

    figures: dict[str, float] = {}

    async def batches(store: Store) -> dict[str, float]:
        _, rows, _ = await callers(store, SESSIONS, seconds, sizes)
        return {"batches_rows_per_s": rows / seconds}

    async def singles(store: Store) -> dict[str, float]:
        count, _, waits = await callers(store, SESSIONS, seconds, lambda: 1)
        return {"single_appends_per_s": count / seconds, "single_p99_ms": percentile(waits, 0.99) * 1000}

    async def alone(store: Store) -> dict[str, float]:
        _, _, waits = await callers(store, 1, seconds, lambda: 1)
        return {"alone_ms": statistics.median(waits) * 1000}

    async def busy(store: Store) -> dict[str, float]:
        spinning = asyncio.create_task(busy_loop(seconds))
        _, _, waits = await callers(store, 10, seconds, lambda: 1)
        await spinning
        return {"busy_loop_p99_ms": percentile(waits, 0.99) * 1000}

    for work in (batches, singles, alone, busy):
        figures |= asyncio.run(with_store(folder, work))
    _, rows, _ = raw_rows(folder, seconds, lambda: [sizes() for _ in range(SESSIONS)])
    figures["raw_batches_rows_per_s"] = rows / seconds
    _, _, waits = raw_rows(folder, seconds, lambda: [1])
    figures["raw_commit_ms"] = statistics.median(waits) * 1000
    figures["replay_per_s"], figures["raw_scan_decode_per_s"] = asyncio.run(
        replay(sqlite_url(folder / "long.db"), 100_000)
    )
    waits = asyncio.run(wake(sqlite_url(folder / f"wake-{os.urandom(4).hex()}.db"), 100))
    figures["wake_p50_ms"] = statistics.median(waits) * 1000
    figures["idle_cpu_percent"] = asyncio.run(idle_cpu(sqlite_url(folder / "idle.db"), max(seconds, 3.0)))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    runs = []
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            os.environ["OUTLAST_STATE_DIR"] = str(Path(folder) / "state")
            runs.append(measure(Path(folder), arguments.seconds))
    medians = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}
    medians["batches_to_raw"] = round(medians["batches_rows_per_s"] / medians["raw_batches_rows_per_s"], 3)
    medians["alone_to_raw_commit"] = round(medians["alone_ms"] / medians["raw_commit_ms"], 3)
    medians["replay_to_raw"] = round(medians["replay_per_s"] / medians["raw_scan_decode_per_s"], 3)
    print(json.dumps({"benchmark": "store", "runs": arguments.runs, "medians": medians}, indent=2))


if __name__ == "__main__":
    main()
