"""Ours beside the peers, each from its wheel, in one run on one machine.

    python -m benchmarks.beside

The peers run in an environment of their own (`make bench` makes it from requirements/bench.txt); its Python
is `peers/bin/python` beside ours, or what OUTLAST_PEERS names. What is compared is said in the notes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec

from benchmarks.recovery import Restored, kill_agents
from benchmarks.results import Line, Plot
from benchmarks.running import Findings, Options, run
from benchmarks.sessions import TEXT, new_journal, said
from benchmarks.turns import AGENTS, HALF, REAL, Template, grow, on_disk, owned, prompt, written_turn
from outlast.journal import Journal, read_records
from outlast.records.envelope import Draft
from outlast.records.types import CallObserved, Fence
from outlast.runtime.runtime import Runtime
from outlast.store.contract import Store
from outlast.store.url import open_store, sqlite_url
from outlast.testing.journals import JournalBuilder

PROGRAMS = Path(__file__).with_name("peers")
PATIENCE = 120.0

T = TypeVar("T")


class DbosSteps(msgspec.Struct):
    steps_per_s: float
    journal: str
    synchronous: int


class OpenAiItems(msgspec.Struct):
    items_per_s: float
    journal: str
    synchronous: int


class Mark(msgspec.Struct):
    turns: int
    bytes: int
    ms: float


class LangGraphTurns(msgspec.Struct):
    marks: list[Mark]
    journal: str
    synchronous: int


def peers_python() -> str:
    """Raises SystemExit where the environment is missing."""
    python = os.environ.get("OUTLAST_PEERS") or str(Path(sys.prefix) / "peers/bin/python")
    if not Path(python).exists():
        raise SystemExit(f"the peers' environment is missing ({python}): run `make bench`, which makes it")
    return python


def peer(program: str, kind: type[T], *arguments: object) -> T:
    """What the peer's program prints."""
    argv = [peers_python(), str(PROGRAMS / program), *map(str, arguments)]
    done = subprocess.run(argv, env=environment(), stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
    return msgspec.json.decode(done.stdout, type=kind)


def environment() -> dict[str, str]:
    """No peer reports to anybody."""
    return {"PATH": os.defpath, "HOME": "/nonexistent", "LANGSMITH_TRACING": "false"}


# --- steps and items, one after another ---------------------------------------------------------


async def running_turn(store: Store) -> Journal:
    """A session whose turn runs, so that calls may be recorded in it."""
    lease = await store.acquire("steps")
    journal = await Journal.open(store, lease)
    drafts = JournalBuilder("steps").running("turn").drafts[1:]
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="bench")), *drafts])
    return journal


async def our_steps(folder: Path, seconds: float) -> float:
    """Steps a second: that it begins is durable before it runs, its outcome before the next one."""
    store = await open_store(sqlite_url(folder / "steps.db"))
    journal = await running_turn(store)
    count, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        count += 1
        call = f"c{count}"
        started = CallObserved(call=call, name="step", status="started")
        ended = CallObserved(call=call, name="step", status="completed", output=TEXT)
        await journal.append([Draft(started, loop="main", turn="turn")])
        await journal.append([Draft(ended, loop="main", turn="turn")])
    rate = count / (time.perf_counter() - begun)
    await store.close()
    return rate


async def our_items(folder: Path, seconds: float) -> float:
    store = await open_store(sqlite_url(folder / "items.db"))
    journal = await new_journal(store, "items")
    count, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        await journal.append([said()])
        count += 1
    rate = count / (time.perf_counter() - begun)
    await store.close()
    return rate


def add_rates(found: Findings, options: Options) -> None:
    seconds, steps = options.pick(3, 1), options.pick(1000, 100)
    ours: list[float] = []
    items: list[float] = []
    theirs: dict[str, list[float]] = {"default": [], "wal": [], "openai": []}
    settings: set[str] = set()
    for folder in folders(options, "rates"):
        ours.append(asyncio.run(our_steps(folder, seconds)))
        for mode in ("default", "wal"):
            dbos = peer("dbos_steps.py", DbosSteps, folder / f"dbos-{mode}.db", mode, steps)
            theirs[mode].append(dbos.steps_per_s)
            settings.add(f"DBOS with journal_mode={dbos.journal}, synchronous={dbos.synchronous}")
        items.append(asyncio.run(our_items(folder, seconds)))
        openai = peer("openai_items.py", OpenAiItems, folder / "openai.db", seconds)
        theirs["openai"].append(openai.items_per_s)
        settings.add(f"SQLiteSession with journal_mode={openai.journal}, synchronous={openai.synchronous}")
    best = [max(pair) for pair in zip(theirs["default"], theirs["wal"], strict=True)]
    found.add("beside.steps_per_s", "ours: steps, two commits each", "/s", ours)
    found.add("beside.dbos_steps_per_s", "DBOS: steps, as it comes", "/s", theirs["default"])
    found.add("beside.dbos_wal_steps_per_s", "DBOS: steps, its file set to WAL", "/s", theirs["wal"])
    found.add(
        "beside.steps_to_dbos", "steps: ours, to DBOS as it comes", "x", ratios(ours, theirs["default"])
    )
    found.add("beside.steps_to_faster_dbos", "steps: ours, to the faster DBOS", "x", ratios(ours, best))
    found.add("beside.items_per_s", "ours: records, one commit each", "/s", items)
    found.add("beside.openai_items_per_s", "OpenAI SQLiteSession: items", "/s", theirs["openai"])
    found.add(
        "beside.items_to_openai", "records: ours, to SQLiteSession", "x", ratios(items, theirs["openai"])
    )
    found.notes += [
        (
            "Steps: outlast has no loop of its own yet. Ours are what one would do: a record that the step"
            " begins, durable, then its outcome, durable, through the journal of one session. DBOS runs empty"
            " `@DBOS.step`s of one workflow and commits once a step, its outcome. Both keep 180 bytes of it."
        ),
        "Items: `SQLiteSession.add_items` with one item, beside one record; 180 bytes of text.",
        "; ".join(sorted(settings)) + "; ours with journal_mode=wal, synchronous=FULL (2).",
    ]


# --- turns of a thread ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Grown:
    """A session at its marks: milliseconds of the records of a turn, and bytes on the disk."""

    ms: dict[int, float]
    bytes: dict[int, int]


async def our_turns(folder: Path, marks: list[int]) -> Grown:
    database = folder / "thread.db"
    url = sqlite_url(database)
    async with Runtime(url, agents=AGENTS) as runtime:
        session = runtime.session("thread", workspace=folder)
        for _ in range(REAL):
            (await (await session.send(prompt())).result()).raise_for_failure()
    store = await open_store(url)
    template = Template.of([record async for record in read_records(store, "thread")])
    journal = await owned(store, "thread")
    grown = Grown({}, {})
    for mark in marks:
        await grow(store, journal, template, max(mark - 10, REAL))
        taken = [await written_turn(store, journal, template) for _ in range(mark - journal.state.turns)]
        grown.ms[mark] = median(taken) * 1e3
        grown.bytes[mark] = on_disk(database)
    await store.close()
    return grown


def add_turns(found: Findings, options: Options) -> None:
    marks = [10, 50, 100, 250, 500] if not options.short else [10, 50, 100]
    ours: list[Grown] = []
    theirs: list[LangGraphTurns] = []
    for folder in folders(options, "turns"):
        ours.append(asyncio.run(our_turns(folder, marks)))
        theirs.append(peer("langgraph_turns.py", LangGraphTurns, folder / "thread.sqlite", HALF, *marks))
        (folder / "thread.sqlite").unlink()  # half a gigabyte
    last = marks[-1]
    content = 2 * HALF * last
    our_bytes = [grown.bytes[last] / content for grown in ours]
    their_bytes = [turns.marks[-1].bytes / content for turns in theirs]
    our_ms, their_ms = [grown.ms[last] for grown in ours], [turns.marks[-1].ms for turns in theirs]
    found.add("beside.bytes", f"ours: stored bytes, to content, {last} turns", "x", our_bytes)
    found.add(
        "beside.langgraph_bytes", f"LangGraph: stored bytes, to content, {last} turns", "x", their_bytes
    )
    found.add(
        "beside.bytes_to_langgraph", "stored bytes: LangGraph, to ours", "x", ratios(their_bytes, our_bytes)
    )
    found.add("beside.turn_ms", f"ours: the records of turn {last}", "ms", our_ms)
    found.add("beside.langgraph_turn_ms", f"LangGraph: turn {last}", "ms", their_ms)
    found.notes.append(
        "Turns of a thread: 512 bytes asked and 512 answered. LangGraph invokes a graph of one node that does"
        " nothing, with add_messages, SqliteSaver (WAL, synchronous=FULL) and durability=sync. Ours are the"
        " records of a turn of a command agent, without the agent: both are bookkeeping alone."
    )
    their_shares = [(float(mark.turns), mark.bytes / (2 * HALF * mark.turns)) for mark in theirs[0].marks]
    our_shares = [(float(mark), ours[0].bytes[mark] / (2 * HALF * mark)) for mark in marks]
    lines = [Line("LangGraph SqliteSaver", their_shares), Line("outlast", our_shares)]
    title = "Bytes stored for a byte of content"
    found.plots.append(Plot("bytes-beside", title, "turns", "x", lines, log=True))


# --- recovery ------------------------------------------------------------------------------------


@contextmanager
def child(argv: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end of the block."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    """The first line that it prints. Raises SystemExit if it ends without one; it ends by itself in time."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args!r} ended without a word")
    return line


def recovered(begin: list[str], again: list[str], env: dict[str, str], dead: Callable[[], None]) -> float:
    """Milliseconds that a new process says it took, after the first was killed where it said it was."""
    with child(begin, env) as first:
        line_of(first)
        first.kill()
        first.wait()
    dead()
    with child(again, env) as second:
        return msgspec.json.decode(line_of(second), type=Restored).ms


def our_recovery(folder: Path, steps: int) -> float:
    database = folder / f"ours-{steps}.db"
    argv = [sys.executable, "-m", "benchmarks.recovery"]
    url = sqlite_url(database)
    env = dict(os.environ)
    return recovered(
        [*argv, "begin", url, str(steps)],
        [*argv, "restore", url, str(steps)],
        env,
        lambda: kill_agents(database.with_suffix(".d")),
    )


def dbos_recovery(folder: Path, steps: int) -> float:
    argv = [peers_python(), str(PROGRAMS / "dbos_recovery.py"), str(folder / f"dbos-{steps}.db")]
    return recovered(
        [*argv, "begin", str(steps)], [*argv, "recover", str(steps)], environment(), lambda: None
    )


def add_recovery(found: Findings, options: Options) -> None:
    few, many = 10, options.pick(2000, 200)
    ours: dict[int, list[float]] = {few: [], many: []}
    theirs: dict[int, list[float]] = {few: [], many: []}
    for folder in folders(options, "recovery"):
        for steps in (few, many):
            ours[steps].append(our_recovery(folder, steps))
            theirs[steps].append(dbos_recovery(folder, steps))
    for steps, key in ((few, "few"), (many, "many")):
        found.add(f"beside.restore_{key}_ms", f"ours: restore after {steps:,} steps", "ms", ours[steps])
        found.add(f"beside.dbos_{key}_ms", f"DBOS: recovery after {steps:,} steps", "ms", theirs[steps])
    found.add(
        "beside.restore_ratio",
        f"ours: after {many:,} steps, to after {few}",
        "x",
        ratios(ours[many], ours[few]),
    )
    found.add("beside.dbos_to_restore", f"recovery after {many:,} steps: DBOS, to ours", "x",
              ratios(theirs[many], ours[many]))  # fmt: skip
    found.notes.append(
        "Recovery: the process is killed in a step (with ours, its agent too) and a new one is started. Of"
        " DBOS it is the time from its construction until it is in that step again, which it runs anew. Ours"
        " is the time from the Runtime's construction until the session is restored, with the turn closed as"
        " interrupted: the step is not run again. DBOS looks for work once a second, so most of its time"
        " may be waiting. Starting Python and importing is in neither."
    )


def ratios(over: list[float], under: list[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def folders(options: Options, name: str) -> Iterator[Path]:
    """One for each run."""
    for number in range(options.pick(3, 1)):
        folder = options.folder / f"{name}-{number}"
        folder.mkdir()
        yield folder


def measure(options: Options) -> Findings:
    peers_python()
    found = Findings()
    add_rates(found, options)
    add_turns(found, options)
    add_recovery(found, options)
    return found


if __name__ == "__main__":
    run("beside", measure)
