"""The keep: a shim's start, memory and idleness, a message's way, the spool beside a bare pipe, an attach.

python -m benchmarks.keep
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.running import Findings, Options, run
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

STARTS, MESSAGES = 15, 1000
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


WRITER = """
import os, sys
block = bytes(1 << 20)
for _ in range(int(sys.argv[1])):
    view = memoryview(block)
    while view: view = view[os.write(1, view):]
"""


async def throughput(folder: AgentFolder, scratch: Path, megabytes: int) -> dict[str, float]:
    argv = (sys.executable, "-I", "-S", "-c", WRITER, str(megabytes))
    begin = time.perf_counter()
    with (scratch / "raw").open("wb") as file:
        producer = subprocess.Popen(argv, stdout=subprocess.PIPE)  # noqa: ASYNC220
        assert producer.stdout is not None
        with producer.stdout as pipe:
            while data := os.read(pipe.fileno(), 1 << 20):
                file.write(data)
        producer.wait()
    raw = megabytes / (time.perf_counter() - begin)
    (scratch / "raw").unlink()
    begin = time.perf_counter()
    generation, client = await started(folder, argv)
    await client.lost.wait()
    through = megabytes / (time.perf_counter() - begin)
    await client.close()
    begin = time.perf_counter()
    frames = SpoolReader(generation).frames()
    size = sum(len(frame.data) for frame in frames if isinstance(frame, OutputChunk))
    assert size == megabytes << 20
    return {
        "spool_mib_s": through,
        "raw_pipe_to_file_mib_s": raw,
        "spool_share_of_raw": through / raw,
        "read_mib_s": megabytes / (time.perf_counter() - begin),
    }


WHAT = {
    "start_to_exec_ms": ("guard, shim and agent: start to exec", "ms"),
    "bare_interpreter_ms": ("a bare interpreter's start and end", "ms"),
    "start_over_bare": ("start of the three, to a bare interpreter", "x"),
    "fdatasync_ms": ("one fdatasync of 120 bytes", "ms"),
    "rss_mib": ("guard and shim: resident memory", "MiB"),
    "pss_mib": ("guard and shim: their own share of memory", "MiB"),
    "wakes_in_2s_idle": ("wake-ups of both in 2 s of idleness", ""),
    "input_accepted_ms": ("an input, to its durable acceptance", "ms"),
    "input_to_output_ms": ("an input, to the agent's answer read from the spool", "ms"),
    "attach_ms": ("attach to a living shim", "ms"),
    "spool_mib_s": ("agent output through the shim into the spool", "MiB/s"),
    "raw_pipe_to_file_mib_s": ("a bare pipe into a file", "MiB/s"),
    "spool_share_of_raw": ("the spool, of the bare pipe", "of raw"),
    "read_mib_s": ("the spool read back", "MiB/s"),
}


async def one_run(folder: Path, megabytes: int) -> dict[str, float]:
    agent = AgentFolder.create(folder / "agent")
    whole, bare = await start_times(agent)
    return {
        "start_to_exec_ms": statistics.median(whole),
        "bare_interpreter_ms": statistics.median(bare),
        "start_over_bare": statistics.median(whole) / statistics.median(bare),
        "fdatasync_ms": sync_cost(folder),
        **await messages(agent),
        **await throughput(AgentFolder.create(folder / "loud"), folder, megabytes),
    }


def measure(options: Options) -> Findings:
    runs = []
    for number in range(options.pick(3, 1)):
        folder = options.folder / str(number)
        folder.mkdir()
        runs.append(asyncio.run(one_run(folder, options.pick(400, 50))))
    found = Findings()
    for key, (what, unit) in WHAT.items():
        found.add(f"keep.{key}", what, unit, [figures[key] for figures in runs])
    return found


if __name__ == "__main__":
    run("keep", measure)
