"""Figures of the keep on this machine: start, memory, a message's way, the spool, attach, idle wake-ups.

Prints one JSON object: medians, and ratios against the raw limit measured in the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from outlast.keep import (
    AgentFolder,
    Claim,
    Generation,
    LaunchRequest,
    ShimClient,
    SpoolReader,
    probe,
    start_idle,
)
from outlast.keep.reader import OutputChunk

STARTS, MESSAGES, MEGABYTES = 15, 1000, 400
ECHO = ("/bin/cat",)
CLAIM = Claim("store", "lineage", 1, "bench")


@contextlib.contextmanager
def timed(into: list[float]) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    into.append((time.perf_counter() - begin) * 1000)


async def started(folder: AgentFolder, argv: tuple[str, ...]) -> tuple[Generation, ShimClient]:
    generation = await start_idle(folder, CLAIM)
    client = await ShimClient.connect(generation)
    await client.attach(CLAIM)
    await client.start(LaunchRequest(argv, {"PATH": "/usr/bin:/bin"}, "/"))
    return generation, client


async def start_times(folder: AgentFolder) -> tuple[list[float], list[float]]:
    whole: list[float] = []
    bare: list[float] = []
    base = getattr(sys, "_base_executable", sys.executable)
    for _ in range(STARTS):
        with timed(bare):
            subprocess.run([base, "-I", "-S", "-E", "-c", ""], check=True)  # noqa: ASYNC221
        with timed(whole):
            _, client = await started(folder, ECHO)
        await client.kill()
        await client.close()
    return whole, bare


def memory(pid: int) -> tuple[int, int]:
    """(RSS, PSS) in KiB."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    )
    return int(lines["Rss"].split()[0]), int(lines["Pss"].split()[0])


def switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("voluntary")).split()[1])


def sync_cost(folder: Path) -> float:
    costs: list[float] = []
    fd = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT)
    for _ in range(200):
        os.write(fd, bytes(120))
        with timed(costs):
            os.fdatasync(fd)
    os.close(fd)
    return statistics.median(costs)


async def messages(folder: AgentFolder) -> dict[str, float]:
    generation, client = await started(folder, ECHO)
    facts = probe(folder).latest
    assert facts is not None
    assert facts.shim is not None
    assert facts.guard is not None
    sizes = [memory(facts.shim.pid), memory(facts.guard.pid)]
    before = switches(facts.shim.pid) + switches(facts.guard.pid)
    await asyncio.sleep(2)
    wakes = switches(facts.shim.pid) + switches(facts.guard.pid) - before
    accepted: list[float] = []
    around: list[float] = []
    reader = SpoolReader(generation)
    for n in range(1, MESSAGES + 1):
        begin = time.perf_counter()
        with timed(accepted):
            await client.input(n, b'{"n": %d}\n' % n)
        echoed = False
        while not echoed:
            await client.wait_tip(reader.position)
            for frame in reader.frames():
                echoed = echoed or isinstance(frame, OutputChunk)
        around.append((time.perf_counter() - begin) * 1000)
    attach: list[float] = []
    for _ in range(50):
        with timed(attach):
            other = await ShimClient.connect(generation)
            await other.attach(CLAIM)
        await client.close()
        client = other
    await client.kill()
    await client.close()
    return {
        "rss_mib": sum(rss for rss, _ in sizes) / 1024,
        "pss_mib": sum(pss for _, pss in sizes) / 1024,
        "wakes_in_2s_idle": wakes,
        "input_accepted_ms": statistics.median(accepted),
        "input_to_output_ms": statistics.median(around),
        "attach_ms": statistics.median(attach),
    }


WRITER = f"""
import os
block = bytes(1 << 20)
for _ in range({MEGABYTES}):
    view = memoryview(block)
    while view: view = view[os.write(1, view):]
"""


async def throughput(folder: AgentFolder, scratch: Path) -> dict[str, float]:
    argv = (sys.executable, "-I", "-S", "-c", WRITER)
    begin = time.perf_counter()
    with (scratch / "raw").open("wb") as file:
        producer = subprocess.Popen(argv, stdout=subprocess.PIPE)  # noqa: ASYNC220
        assert producer.stdout is not None
        with producer.stdout as pipe:
            while data := os.read(pipe.fileno(), 1 << 20):
                file.write(data)
        producer.wait()
    raw = MEGABYTES / (time.perf_counter() - begin)
    (scratch / "raw").unlink()
    begin = time.perf_counter()
    generation, client = await started(folder, argv)
    await client.lost.wait()
    through = MEGABYTES / (time.perf_counter() - begin)
    await client.close()
    begin = time.perf_counter()
    frames = SpoolReader(generation).frames()
    size = sum(len(frame.data) for frame in frames if isinstance(frame, OutputChunk))
    assert size == MEGABYTES << 20
    return {
        "spool_mib_s": through,
        "raw_pipe_to_file_mib_s": raw,
        "spool_share_of_raw": through / raw,
        "read_mib_s": MEGABYTES / (time.perf_counter() - begin),
    }


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = AgentFolder.create(scratch / "agent")
        whole, bare = await start_times(folder)
        found = {
            "start_to_exec_ms": statistics.median(whole),
            "bare_interpreter_ms": statistics.median(bare),
            "start_over_bare": statistics.median(whole) / statistics.median(bare),
            "fdatasync_ms": sync_cost(scratch),
            **await messages(folder),
            **await throughput(AgentFolder.create(scratch / "loud"), scratch),
        }
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    asyncio.run(main())
