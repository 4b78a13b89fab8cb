"""What a turn costs as its session grows, in time and in bytes.

    python -m benchmarks.turns

Three sessions of 100, 1,000 and 10,000 turns stand side by side in one store, and the turns that are
measured go round them, so that whatever else the machine does falls on all alike. A session is grown by
records: the inputs and records of a turn that a real agent has run are stored again under new ids. The turns
that are measured are real ones: an agent under guard and shim, a prompt, an answer, an end, all durable.
"""

from __future__ import annotations

import asyncio
import hashlib
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw
from msgspec.structs import replace

from benchmarks.results import Line, Plot
from benchmarks.running import Findings, Options, run
from outlast.agents import Command
from outlast.ids import new_id
from outlast.journal import Journal, read_records
from outlast.records.envelope import Draft, Record
from outlast.records.types import (
    Body,
    Fence,
    InputAccepted,
    InputReserved,
    TurnAttemptStarted,
    TurnStarted,
)
from outlast.runtime.runtime import Runtime
from outlast.store.contract import Admission, Store
from outlast.store.url import open_store, sqlite_url

AGENT = Path(__file__).with_name("agent.py")
AGENTS = {"bench": Command((sys.executable, "-I", "-S", str(AGENT)))}
HALF = 512
"""Bytes of an input, and of its answer: a turn has 1 KiB of content."""
REAL = 5
"""Turns with an agent before a session is grown: by then it has all the files that it will ever have."""


def prompt(half: int = HALF) -> str:
    order = f"\nsay {half}"
    return "x" * (half - len(order)) + order


async def real_turn(runtime: Runtime, session: str, half: int = HALF) -> float:
    """Seconds from the send to the outcome."""
    begun = time.perf_counter()
    turn = await runtime.session(session).send(prompt(half))
    (await turn.result()).raise_for_failure()
    return time.perf_counter() - begun


@dataclass(frozen=True)
class Template:
    """The drafts of one turn as an agent has run it, from its InputAccepted to its end."""

    drafts: tuple[Draft, ...]

    @classmethod
    def of(cls, records: Sequence[Record]) -> Template:
        """From the newest turn of a journal."""
        last = max(record.seq for record in records if isinstance(record.body, InputAccepted))
        return cls(
            tuple(
                Draft(record.body, record.loop, record.turn, record.cause, record.actor, record.cursor)
                for record in records
                if record.seq >= last
            )
        )

    def again(self, turn: str, index: int) -> list[Draft]:
        """The turn as the next agent would have run it: another id, another generation with processes of its
        own, and output that lies behind all that was before."""
        first = self.drafts[0].cause
        drafts = []
        for draft in self.drafts:
            cursor = draft.cursor
            if cursor is not None:
                cursor = replace(
                    cursor,
                    generation=_generation(index),
                    frame=cursor.frame + index * self.frames,
                    stdout=cursor.stdout + index * self.stdout,
                )
            cause = turn if draft.cause == first else draft.cause
            body = _again(draft.body, turn, index)
            drafts.append(
                replace(draft, body=body, turn=draft.turn and turn, cause=cause, cursor=cursor, id=None)
            )
        return drafts

    @property
    def frames(self) -> int:
        """Bytes of a spool that the turn takes, about: what it says, and the frames around it."""
        return self.stdout + HALF

    @property
    def stdout(self) -> int:
        return max(draft.cursor.stdout for draft in self.drafts if draft.cursor)


def _generation(index: int) -> str:
    return f"gen-{index:06}"


def _again(body: Body, turn: str, index: int) -> Body:
    match body:
        case InputAccepted():
            return replace(body, request_id=turn)
        case TurnStarted():
            return replace(body, request_id=turn, index=index)
        case InputReserved():
            digest = hashlib.sha256(turn.encode()).hexdigest()
            return replace(body, key=turn, generation=_generation(index), digest=digest)
        case TurnAttemptStarted():
            processes = [
                replace(
                    each, pid=1000 + (2 * index + place) % 30_000, start_ticks=each.start_ticks + 40 * index
                )
                for place, each in enumerate(body.processes)
            ]
            return replace(body, generation=_generation(index), processes=processes)
    return body


async def written_turn(store: Store, journal: Journal, template: Template) -> float:
    """Seconds that the records of a turn take: its input admitted, then each of its records durable before
    the next, as if an agent had run it."""
    turn = new_id()
    first, *rest = template.again(turn, journal.state.turns + 1)
    begun = time.perf_counter()
    await store.admit(Admission(journal.name, turn, "input", prompt().encode()))
    await journal.append([first], settle=[(turn, 0)])
    for draft in rest:
        await journal.append([draft])
    return time.perf_counter() - begun


async def grow(store: Store, journal: Journal, template: Template, turns: int) -> None:
    """Until the session has had so many turns. Each in one batch: growing is not what is measured."""
    for _ in range(turns - journal.state.turns):
        turn = new_id()
        await store.admit(Admission(journal.name, turn, "input", prompt().encode()))
        await journal.append(template.again(turn, journal.state.turns + 1), settle=[(turn, 0)])


async def owned(store: Store, session: str) -> Journal:
    lease = await store.acquire(session)
    journal = await Journal.open(store, lease)
    fence = Fence(epoch=lease.epoch, holder="bench", previous_epoch=journal.state.epoch)
    await journal.append([Draft(fence)])
    return journal


async def prepare(url: str, folder: Path, sizes: Sequence[int]) -> dict[int, Template]:
    """Sessions named by their size, each of that many turns."""
    async with Runtime(url, agents=AGENTS) as runtime:
        for size in sizes:
            session = runtime.session(str(size), workspace=folder)
            for _ in range(2):  # the first turn has records that no later one has
                (await (await session.send(prompt())).result()).raise_for_failure()
    templates = {}
    store = await open_store(url)
    for size in sizes:
        templates[size] = Template.of([record async for record in read_records(store, str(size))])
        journal = await owned(store, str(size))
        await grow(store, journal, templates[size], size)
        await journal.lease.release()
    await store.close()
    return templates


@dataclass
class Costs:
    """Seconds of each measured turn, by the size of its session."""

    real: dict[int, list[float]]
    written: dict[int, list[float]]


async def turn_costs(folder: Path, sizes: Sequence[int], rounds: int) -> Costs:
    url = sqlite_url(folder / "turns.db")
    templates = await prepare(url, folder, sizes)
    costs = Costs({size: [] for size in sizes}, {size: [] for size in sizes})
    async with Runtime(url, agents=AGENTS) as runtime:
        for number in range(rounds + 1):
            for size in sizes:
                seconds = await real_turn(runtime, str(size))
                if number > 0:  # the first turn restores its session
                    costs.real[size].append(seconds)
    store = await open_store(url)
    journals = {size: await owned(store, str(size)) for size in sizes}
    for _ in range(rounds * 5):
        for size in sizes:
            costs.written[size].append(await written_turn(store, journals[size], templates[size]))
    await store.close()
    return costs


async def stored_bytes(folder: Path, half: int, marks: Sequence[int]) -> list[tuple[float, float]]:
    """(turns, bytes stored for each byte of content) at each of the marks."""
    database = folder / f"bytes-{half}.db"
    url = sqlite_url(database)
    async with Runtime(url, agents=AGENTS) as runtime:
        session = runtime.session("bytes", workspace=folder)
        for _ in range(REAL):
            (await (await session.send(prompt(half))).result()).raise_for_failure()
    found: list[tuple[float, float]] = []
    store = await open_store(url)
    template = Template.of([record async for record in read_records(store, "bytes")])
    journal = await owned(store, "bytes")
    for mark in marks:
        await grow(store, journal, template, mark)
        found.append((float(mark), on_disk(database) / (2 * half * mark)))
    await store.close()
    return found


def on_disk(database: Path) -> int:
    """Bytes of the database without its log, and of all files that belong to the store."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    size = int(connection.pragma("page_count")) * int(connection.pragma("page_size"))
    connection.close()
    return size + sum(file.stat().st_size for file in database.with_suffix(".d").rglob("*") if file.is_file())


def add_costs(found: Findings, costs: Costs, sizes: Sequence[int]) -> None:
    small, large = sizes[0], sizes[-1]
    lines = []
    for key, what, taken in (
        ("real", "a turn with an agent", costs.real),
        ("records", "a turn's records alone", costs.written),
    ):
        medians = {size: statistics.median(taken[size]) * 1e3 for size in sizes}
        for size in sizes:
            found.add(f"turns.{key}_{size}_ms", f"{what}, after {size:,} turns", "ms", [medians[size]])
        name = f"{what}: after {large:,} turns, to after {small:,}"
        found.add(f"turns.{key}_ratio", name, "x", [medians[large] / medians[small]])
        lines.append(Line(what, [(float(size), medians[size]) for size in sizes]))
    found.plots.append(
        Plot("turn-cost", "What a turn costs as its session grows", "turns", "ms", lines, True)
    )


def measure(options: Options) -> Findings:
    sizes = (100, 1000, options.pick(10_000, 2000))
    found = Findings()
    add_costs(found, asyncio.run(turn_costs(options.folder, sizes, options.pick(60, 5))), sizes)
    marks = (10, 50, 100, 250, 500, options.pick(10_000, 1000))
    shares = {half: dict(asyncio.run(stored_bytes(options.folder, half, marks))) for half in (HALF, 4 * HALF)}
    for half, by_mark in shares.items():
        for mark in (500, marks[-1]):
            what = f"stored bytes, to content: {mark:,} turns of {2 * half:,} bytes"
            found.add(f"turns.bytes_{2 * half}_{mark}", what, "x", [by_mark[mark]])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found.add("turns.peak_mib", "peak memory of the process", "MiB", [peak])
    found.notes.append(
        "Content is what was asked and what was answered. Stored is the database and every other file of the"
        " store; the log of SQLite is not counted, it is bounded and becomes part of the database."
    )
    return found


if __name__ == "__main__":
    run("turns", measure)
