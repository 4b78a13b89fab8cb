"""What restoring a session costs, by the length of its journal; and reading a journal whole.

    python -m benchmarks.restore

Sessions of 10, 10,000 and 1,000,000 records, about, stand side by side in one store, and the restores that
are measured go round them. A session begins with a real turn of an agent; it is grown by the records of that
turn, stored again under new ids. What is timed is `Runtime.restore` in an open runtime: lease, read, look,
plan and the restore's own records, all durable; no agent is started. The journals are read whole, without
their snapshots, by a process of its own each.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.results import Line, Plot
from benchmarks.running import Findings, Options, run
from outlast.agents import Command
from outlast.ids import new_id
from outlast.journal import Journal, load
from outlast.journal.reader import Place, read_on
from outlast.journal.snapshots import LEAST
from outlast.records.codec import record_of
from outlast.records.envelope import Draft
from outlast.records.types import Fence, InputAccepted, TurnDone, TurnStarted
from outlast.runtime.runtime import Runtime
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.store.contract import Store
from outlast.store.url import open_store, sqlite_url
from outlast.testing.agents import ECHO, command

AGENTS = {"bench": Command(command(ECHO))}
PROMPT = "x" * 300
BATCH = 1000
"""Records in one append, about, while a session is grown."""
LONG_TAIL = LEAST * 7 // 8
"""Near to what makes a snapshot due, and far enough for the records of the restores that are measured."""


@dataclass(frozen=True)
class Grower:
    """A session's owner, who writes the turn that its agent has run again and again."""

    journal: Journal
    turn: tuple[Draft, ...]

    @classmethod
    async def of(cls, store: Store, session: str) -> Grower:
        records = [record_of(row, session) for row in await store.read(session, 0, 100)]
        first = next(record.seq for record in records if isinstance(record.body, InputAccepted))
        last = next(record.seq for record in records if isinstance(record.body, TurnDone))
        kept = records[first - 1 : last]
        turn = tuple(Draft(r.body, r.loop, r.turn, r.cause, r.actor, r.cursor) for r in kept)
        lease = await store.acquire(session)
        journal = await Journal.open(store, lease)
        fence = Fence(epoch=lease.epoch, holder="bench", previous_epoch=journal.state.epoch)
        await journal.append([Draft(fence)])
        return cls(journal, turn)

    def _again(self, index: int) -> list[Draft]:
        name, drafts = new_id(), []
        for draft in self.turn:
            body = draft.body
            if isinstance(body, InputAccepted):
                body = msgspec.structs.replace(body, request_id=name)
            elif isinstance(body, TurnStarted):
                body = msgspec.structs.replace(body, request_id=name, index=index)
            drafts.append(msgspec.structs.replace(draft, body=body, turn=draft.turn and name))
        return drafts

    async def turns(self, count: int) -> None:
        """So many more, in one append."""
        first = self.journal.state.turns + 1
        await self.journal.append([d for index in range(first, first + count) for d in self._again(index)])

    async def until(self, records: int) -> None:
        while (missing := records - self.journal.state.seq) >= len(self.turn):
            await self.turns(min(missing, BATCH) // len(self.turn) or 1)


async def begin(url: str, folder: Path, sizes: list[int]) -> None:
    async with Runtime(url, agents=AGENTS) as runtime:
        for size in sizes:
            turn = await runtime.session(str(size), workspace=folder).send(PROMPT)
            (await turn.result()).raise_for_failure()


async def grow(url: str, sizes: list[int]) -> None:
    store = await open_store(url)
    for size in sizes:
        grower = await Grower.of(store, str(size))
        await grower.until(size)
        await grower.journal.release()
    await store.close()


async def lengthen_tails(url: str, sizes: list[int]) -> None:
    """Until a snapshot is nearly due."""
    store = await open_store(url)
    for size in sizes:
        grower = await Grower.of(store, str(size))
        while not 0 < LONG_TAIL - (await load(store, str(size))).tail < 8_000:
            await grower.turns(1)
        await grower.journal.release()
    await store.close()


async def restores(url: str, sizes: list[int], rounds: int) -> dict[int, list[float]]:
    """Milliseconds of each restore, by the size of its session. One that comes first warms up."""
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(rounds + 1):
        for size in sizes:
            async with Runtime(url, agents=AGENTS) as runtime:
                begun = time.perf_counter()
                await runtime.restore(str(size))
                if number:
                    taken[size].append((time.perf_counter() - begun) * 1e3)
    return taken


async def looked(url: str, size: int) -> tuple[int, int, int]:
    """Records of the journal, of its tail, and bytes of the tail."""
    store = await open_store(url)
    loaded = await load(store, str(size))
    await store.close()
    return loaded.state.seq, loaded.state.seq - loaded.verified_from, loaded.tail


async def replay(url: str, session: str) -> dict[str, float]:
    """Read and fold a whole journal, and what it took."""
    store = await open_store(url)
    state = State(session)
    begun = time.process_time()
    async for record in read_on(store, session, Place(), large="outline"):
        apply(state, record)
    seconds = time.process_time() - begun
    await store.close()
    return {"per_s": state.seq / seconds, "peak_mib": peak_mib()}


def peak_mib() -> float:
    """Of this program alone: what getrusage tells begins with the memory of the process that forked."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def replayed(url: str, size: int) -> dict[str, float]:
    code = (
        "import asyncio, json, sys; from benchmarks.restore import replay;"
        "print(json.dumps(asyncio.run(replay(*sys.argv[1:]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url, str(size)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def add_restores(found: Findings, taken: dict[int, list[float]], key: str, what: str) -> list[float]:
    medians = []
    for size, runs in taken.items():
        found.add(f"restore.{key}_{size}_ms", f"restore, {what}, of {size:,} records", "ms", runs)
        medians.append(statistics.median(runs))
    return medians


def measure(options: Options) -> Findings:
    sizes = [10, 10_000, options.pick(1_000_000, 50_000)]
    rounds = options.pick(25, 3)
    url = sqlite_url(options.folder / "restore.db")
    found = Findings()
    asyncio.run(begin(url, options.folder, sizes))
    asyncio.run(grow(url, sizes))
    short = asyncio.run(restores(url, sizes, rounds))
    medians = add_restores(found, short, "as_left", "as it was left")
    found.add("restore.ratio", f"restore of {sizes[-1]:,} records, to of {sizes[0]}", "x",
              [medians[-1] / medians[0]])  # fmt: skip
    found.add("restore.slowest_ms", "the slowest restore of all", "ms", [max(max(r) for r in short.values())])
    asyncio.run(lengthen_tails(url, sizes[1:]))
    tails = [asyncio.run(looked(url, size)) for size in sizes]
    long = asyncio.run(restores(url, sizes, rounds))
    longest = add_restores(found, long, "long_tail", "with the longest tail")
    found.add("restore.long_tail_ratio", f"with the longest tail: {sizes[-1]:,} records, to {sizes[0]}", "x",
              [longest[-1] / longest[0]])  # fmt: skip
    for size in sizes[1:]:
        runs = [replayed(url, size) for _ in range(options.pick(3, 1))]
        found.add(f"restore.replay_{size}_per_s", f"records read whole, of {size:,}", "/s",
                  [each["per_s"] for each in runs])  # fmt: skip
        found.add(f"restore.replay_{size}_mib", f"peak memory of that, of {size:,}", "MiB",
                  [each["peak_mib"] for each in runs])  # fmt: skip
    points = [(float(size), value) for size, value in zip(sizes, medians, strict=True)]
    found.plots.append(
        Plot(
            "restore",
            "A restore, by the length of the journal",
            "records",
            "ms",
            [Line("outlast", points)],
            True,
        )
    )
    for (records, after, size), name in zip(tails, sizes, strict=True):
        found.notes.append(
            f"{name:,}: {records:,} records; the longest tail {after} of them, {size / 1024:.0f} KiB."
        )
    found.notes.append("Reading whole is processor time, the rest is wall time with every commit synced.")
    return found


if __name__ == "__main__":
    run("restore", measure)
