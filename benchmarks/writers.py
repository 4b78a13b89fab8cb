"""Eight processes that write to one store file: does each get its share, and how long does any wait?

    python -m benchmarks.writers

Each process owns a session and appends one record at a time through its `Journal`, the next as soon as the
last is acknowledged. A wait is the whole time from the call to the acknowledgement.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from benchmarks.results import percentile
from benchmarks.running import Findings, Options, run
from benchmarks.sessions import new_journal, said
from outlast.store.url import open_store, sqlite_url

PROCESSES = 8


class Waits(msgspec.Struct):
    """Of one process, in seconds."""

    waits: list[float]


async def write(url: str, name: str, seconds: float) -> list[float]:
    """Append until the time is over; begins when a line comes on standard input."""
    store = await open_store(url)
    journal = await new_journal(store, name)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    waits: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        await journal.append([said()])
        waits.append(time.perf_counter() - begun)
    await store.close()
    return waits


def together(folder: Path, seconds: float) -> list[list[float]]:
    """The waits of each process."""
    url = sqlite_url(folder / "writers.db")
    children = []
    try:
        for number in range(PROCESSES):
            argv = [sys.executable, "-m", "benchmarks.writers", "child", url, f"s{number}", str(seconds)]
            children.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
        return [
            msgspec.json.decode(child.communicate(timeout=seconds + 60)[0], type=Waits).waits
            for child in children
        ]
    finally:
        for child in children:
            child.kill()
            child.wait()


def measure(options: Options) -> Findings:
    seconds = options.pick(60, 5)
    each = together(options.folder, seconds)
    everything = [wait for waits in each for wait in waits]
    counts = [len(waits) for waits in each]
    found = Findings()
    found.add("writers.least_share", "least share of a process, of an even one", "",
              [min(counts) * PROCESSES / sum(counts)])  # fmt: skip
    found.add("writers.p99_ms", "99 of 100 appends acknowledged within", "ms",
              [percentile(everything, 0.99) * 1e3])  # fmt: skip
    found.add("writers.longest_ms", "longest wait", "ms", [max(everything) * 1e3])
    found.add("writers.appends_per_s", "appends, all processes together", "/s", [sum(counts) / seconds])
    found.notes.append(f"{PROCESSES} processes for {seconds} s, one record a batch, one session each.")
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        taken = asyncio.run(write(sys.argv[2], sys.argv[3], float(sys.argv[4])))
        print(msgspec.json.encode(Waits(taken)).decode())
    else:
        run("writers", measure)
