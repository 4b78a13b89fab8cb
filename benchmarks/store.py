"""What the SQLite store does in a second, beside what SQLite itself does with the same rows.

    python -m benchmarks.store [--folder DIR]

"At the store" is `Store.append` with rows that are encoded and chained already, as bare SQLite gets them.
"Through the journal" is what a session does: encode, chain, fold, list in the catalog, append. The folder
must be on the disk that is to be measured, not on a memory filesystem.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from benchmarks.results import percentile
from benchmarks.running import Findings, Options, run
from benchmarks.sessions import new_journal, said
from outlast.journal import Journal, read_records
from outlast.records.codec import decode_body
from outlast.store.contract import Append, Lease, Row, Store
from outlast.store.sqlite import schema
from outlast.store.sqlite.layout import Layout, prepare
from outlast.store.sqlite.packing import Earlier, packed
from outlast.store.sqlite.transaction import INSERT_RECORD
from outlast.store.url import open_store, sqlite_url

SESSIONS = 100
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


class Session:
    def __init__(self, store: Store, lease: Lease) -> None:
        self.store, self.lease, self.seq = store, lease, 0

    async def append(self, count: int) -> None:
        rows = tuple(row(self.seq + 1 + i, self.lease.epoch) for i in range(count))
        await self.store.append(Append(self.lease.name, rows, self.seq, self.lease))
        self.seq += count


class Writing(Session):
    """The same through a session's journal."""

    def __init__(self, store: Store, journal: Journal) -> None:
        super().__init__(store, journal.lease)
        self.journal = journal

    async def append(self, count: int) -> None:
        await self.journal.append([said() for _ in range(count)])


async def at_the_store(store: Store, name: str) -> Session:
    return Session(store, await store.acquire(name))


async def through_the_journal(store: Store, name: str) -> Session:
    return Writing(store, await new_journal(store, name))


@dataclass(frozen=True)
class Load:
    """Callers that append at once, each into a session of its own; `size` gives the records of a batch."""

    callers: int
    seconds: float
    size: Callable[[], int] = lambda: 1
    session: Callable[[Store, str], Awaitable[Session]] = at_the_store


@dataclass(frozen=True)
class Done:
    """What was acknowledged: appends with their waits in seconds, records, and how long all took."""

    waits: list[float]
    rows: int
    seconds: float

    @property
    def appends_per_s(self) -> float:
        return len(self.waits) / self.seconds

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


async def append_at_once(store: Store, load: Load) -> Done:
    sessions = [await load.session(store, f"s{i}") for i in range(load.callers)]
    waits: list[float] = []
    rows = 0
    start = time.perf_counter()

    async def caller(session: Session) -> None:
        nonlocal rows
        while (begun := time.perf_counter()) < start + load.seconds:
            many = load.size()
            await session.append(many)
            rows += many
            waits.append(time.perf_counter() - begun)

    await asyncio.gather(*(caller(session) for session in sessions))
    return Done(waits, rows, time.perf_counter() - start)


@contextmanager
def raw(folder: Path) -> Iterator[apsw.Connection]:
    layout = Layout.of(folder / f"raw-{os.urandom(4).hex()}.db")
    prepare(layout)
    schema.make_current(layout, 5.0, 0)
    connection = schema.open_for_writing(layout, 5.0)
    yield connection
    connection.close()


def raw_rows(folder: Path, seconds: float, groups: Callable[[], list[int]]) -> Done:
    """Commits and rows of bare SQLite: the same table, rows and grouping, one thread, no acknowledgements.
    Making the rows is not counted."""
    with raw(folder) as connection:
        cursor = connection.cursor()
        seqs = [0] * SESSIONS
        waits: list[float] = []
        rows = 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            batch = []
            for s, many in enumerate(groups()):
                batch += [packed(s + 1, row(seqs[s] + 1 + i, 1), Earlier(1)) for i in range(many)]
                seqs[s] += many
            begun = time.perf_counter()
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(INSERT_RECORD, batch)
            cursor.execute("COMMIT")
            rows += len(batch)
            waits.append(time.perf_counter() - begun)
    return Done(waits, rows, sum(waits))


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


async def wake(store: Store, rounds: int) -> list[float]:
    """Half of the time from an append here over the answer's append there to its ring here, in seconds."""
    ping = await at_the_store(store, "ping")
    waits = []
    with echo(store.url), store.changes("pong") as bell:
        for seq in range(1, rounds + 1):
            await asyncio.sleep(0.01)
            begun = time.perf_counter()
            await ping.append(1)
            while (await store.tip("pong")).seq < seq:
                await bell.wait()
                bell.clear()
            waits.append((time.perf_counter() - begun) / 2)
    return waits


async def replay(store: Store, count: int) -> tuple[float, float]:
    """Records a second: read, verified and decoded; and the bare scan and decode of the same rows."""
    journal = await new_journal(store, "long")
    while journal.state.seq < count:
        await journal.append([said()] * 1000)
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
    return journal.state.seq / verified, journal.state.seq / bare


async def idle_cpu(store: Store, seconds: float) -> float:
    """Percent of one core that an idle owner with a waiter uses."""
    await store.acquire("idle")
    with store.changes("idle"):
        begun = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - begun
    return 100 * used / seconds


@asynccontextmanager
async def new_store(folder: Path) -> AsyncIterator[Store]:
    store = await open_store(sqlite_url(folder / f"store-{os.urandom(4).hex()}.db"))
    try:
        yield store
    finally:
        await store.close()


async def loaded(folder: Path, load: Load) -> Done:
    async with new_store(folder) as store:
        return await append_at_once(store, load)


async def under_a_busy_loop(folder: Path, seconds: float) -> Done:
    async with new_store(folder) as store:
        spinning = asyncio.create_task(busy_loop(seconds))
        done = await append_at_once(store, Load(10, seconds))
        await spinning
        return done


Figures = dict[str, float]


async def rates(folder: Path, seconds: float) -> Figures:
    """Appends of many callers, beside bare SQLite with the same rows in the same groups."""
    dice = random.Random(1)  # noqa: S311 - the same sizes in each run

    def sizes() -> int:
        return dice.randint(5, 20)

    batches = await loaded(folder, Load(SESSIONS, seconds, sizes))
    raw = raw_rows(folder, seconds, lambda: [sizes() for _ in range(SESSIONS)])
    journals = await loaded(folder, Load(SESSIONS, seconds, sizes, through_the_journal))
    singles = await loaded(folder, Load(SESSIONS, seconds))
    written = await loaded(folder, Load(SESSIONS, seconds, session=through_the_journal))
    return {
        "raw_batches_rows_per_s": raw.rows_per_s,
        "batches_rows_per_s": batches.rows_per_s,
        "batches_to_raw": batches.rows_per_s / raw.rows_per_s,
        "journal_batches_per_s": journals.rows_per_s,
        "journal_batches_to_raw": journals.rows_per_s / raw.rows_per_s,
        "singles_per_s": singles.appends_per_s,
        "journal_singles_per_s": written.appends_per_s,
    }


async def delays(folder: Path, options: Options) -> Figures:
    """One append alone, beside a bare commit; appends beside a busy event loop; a wake; idleness."""
    seconds = options.pick(3, 1)
    raw = raw_rows(folder, seconds, lambda: [1])
    alone = await loaded(folder, Load(1, seconds))
    written = await loaded(folder, Load(1, seconds, session=through_the_journal))
    busy = await under_a_busy_loop(folder, seconds)
    async with new_store(folder) as store:
        wakes = await wake(store, options.pick(200, 50))
    async with new_store(folder) as store:
        idle = await idle_cpu(store, options.pick(5, 2))
    commit, one, whole = (statistics.median(done.waits) for done in (raw, alone, written))
    return {
        "raw_commit_ms": commit * 1e3,
        "alone_ms": one * 1e3,
        "alone_to_raw": one / commit,
        "journal_alone_ms": whole * 1e3,
        "journal_alone_to_raw": whole / commit,
        "busy_loop_p99_ms": percentile(busy.waits, 0.99) * 1e3,
        "wake_p50_ms": statistics.median(wakes) * 1e3,
        "wake_p99_ms": percentile(wakes, 0.99) * 1e3,
        "idle_cpu_percent": idle,
    }


async def reads(folder: Path, count: int) -> Figures:
    async with new_store(folder) as store:
        verified, bare = await replay(store, count)
    return {"read_per_s": verified, "raw_scan_decode_per_s": bare, "read_to_raw": verified / bare}


WHAT = {
    "raw_batches_rows_per_s": ("rows: bare SQLite, batches of 5-20, 100 sessions", "/s"),
    "batches_rows_per_s": ("rows: at the store, the same batches", "/s"),
    "batches_to_raw": ("batches at the store, of bare SQLite", "of raw"),
    "journal_batches_per_s": ("rows: through the journal, the same batches", "/s"),
    "journal_batches_to_raw": ("batches through the journal, of bare SQLite", "of raw"),
    "singles_per_s": ("appends of one record, 100 callers: at the store", "/s"),
    "journal_singles_per_s": ("appends of one record, 100 callers: through the journal", "/s"),
    "raw_commit_ms": ("one row alone: bare SQLite, a FULL commit", "ms"),
    "alone_ms": ("one row alone: at the store", "ms"),
    "alone_to_raw": ("one row alone at the store, to bare SQLite", "x raw"),
    "journal_alone_ms": ("one record alone: through the journal", "ms"),
    "journal_alone_to_raw": ("one record alone through the journal, to bare SQLite", "x raw"),
    "busy_loop_p99_ms": ("99 of 100 appends beside a busy event loop within", "ms"),
    "wake_p50_ms": ("wake of another process: median", "ms"),
    "wake_p99_ms": ("wake of another process: 99 of 100 within", "ms"),
    "idle_cpu_percent": ("processor time of an idle owner", "%"),
    "read_per_s": ("records read, verified and decoded", "/s"),
    "raw_scan_decode_per_s": ("records: bare scan and decode", "/s"),
    "read_to_raw": ("reading with the chain, of bare scan and decode", "of raw"),
}


async def one_run(folder: Path, options: Options) -> Figures:
    figures = await rates(folder, options.pick(3, 1))
    figures |= await delays(folder, options)
    return figures | await reads(folder, options.pick(100_000, 20_000))


def measure(options: Options) -> Findings:
    runs = []
    for number in range(options.pick(3, 1)):
        folder = options.folder / str(number)
        folder.mkdir()
        runs.append(asyncio.run(one_run(folder, options)))
    found = Findings()
    for key, (what, unit) in WHAT.items():
        found.add(f"store.{key}", what, unit, [figures[key] for figures in runs])
    found.notes.append("A busy event loop works for 4 ms in every tick, beside ten callers.")
    found.notes.append(
        "A wake is half of the way from an append over the answer of another process back to here; both"
        " appends are in it."
    )
    return found


if __name__ == "__main__":
    run("store", measure)
