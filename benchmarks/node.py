"""What a node takes that holds many open sessions, none of which runs an agent.

    python -m benchmarks.node

A session has had one real turn; the others are copies of its journal under their own names. A new process
restores them all and stays their owner. Only what was measured is said: 1,000 sessions are no 10,000.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from benchmarks.running import Findings, Options, run
from benchmarks.turns import AGENTS, prompt
from outlast.journal import Journal, read_records
from outlast.records.envelope import Draft
from outlast.records.types import Fence
from outlast.runtime.runtime import Runtime
from outlast.store.url import open_store, sqlite_url


class Held(msgspec.Struct):
    """Of the process that holds the sessions."""

    before_mib: float
    after_mib: float
    open_ms: float
    """Of each session: the whole time, by their number."""
    idle_cpu_percent: float


async def fill(url: str, folder: Path, sessions: int) -> None:
    """`s0` has run a turn; the other sessions have the records of one."""
    async with Runtime(url, agents=AGENTS) as runtime:
        session = runtime.session("s0", workspace=folder)
        (await (await session.send(prompt())).result()).raise_for_failure()
    store = await open_store(url)
    records = [record async for record in read_records(store, "s0")]
    for number in range(1, sessions):
        lease = await store.acquire(f"s{number}")
        journal = await Journal.open(store, lease)
        fence = Draft(Fence(epoch=lease.epoch, holder="bench"))
        again = [
            Draft(record.body, record.loop, record.turn, record.cause, record.actor, record.cursor)
            for record in records
            if not isinstance(record.body, Fence)
        ]
        await journal.append([fence, *again])
        await lease.release()
    await store.close()


def resident() -> float:
    """MiB that this process has resident."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def hold(url: str, sessions: int, seconds: float) -> Held:
    async with Runtime(url, agents=AGENTS) as runtime:
        await runtime.restore("s0")
        before, begun = resident(), time.perf_counter()
        for number in range(1, sessions):
            await runtime.restore(f"s{number}")
        took = time.perf_counter() - begun
        after, cpu = resident(), time.process_time()
        await asyncio.sleep(seconds)
        idle = (time.process_time() - cpu) / seconds
    return Held(before, after, took / (sessions - 1) * 1e3, idle * 100)


def measure(options: Options) -> Findings:
    sessions = options.pick(1000, 100)
    url = sqlite_url(options.folder / "node.db")
    asyncio.run(fill(url, options.folder, sessions))
    argv = [sys.executable, "-m", "benchmarks.node", "child", url, str(sessions), str(options.pick(5, 2))]
    runs = []
    for _ in range(options.pick(3, 1)):
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=120)
        runs.append(msgspec.json.decode(done.stdout, type=Held))
    each = [(held.after_mib - held.before_mib) / (sessions - 1) * 1024 for held in runs]
    found = Findings()
    what = f"memory of a process with {sessions:,} open sessions"
    found.add("node.resident_mib", what, "MiB", [held.after_mib for held in runs])
    found.add("node.session_kib", "of it for each session", "KiB", each)
    found.add("node.open_ms", "restore of one of them", "ms", [held.open_ms for held in runs])
    found.add("node.idle_cpu_percent", "processor time of the process while all are idle", "%",
              [held.idle_cpu_percent for held in runs])  # fmt: skip
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        held = asyncio.run(hold(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
        print(msgspec.json.encode(held).decode())
    else:
        run("node", measure)
