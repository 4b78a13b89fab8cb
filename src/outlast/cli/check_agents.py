"""The doctor looks at agents: the programs that are here, and the lives that outlasted their owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.cli.findings import Finding, Patient
from outlast.cli.times import age, duration
from outlast.errors import OutlastError

if TYPE_CHECKING:
    from outlast.keep import Stray
    from outlast.store.sqlite.layout import Layout
    from outlast.store.sqlite.reading import Reader


def check_agents(patient: Patient) -> Iterator[Finding]:
    """Programs, then shims without owner, then orphans."""
    yield from check_programs(patient)
    if patient.layout.exists():
        yield from _lives(patient)


def check_programs(patient: Patient) -> Iterator[Finding]:
    """The agents that are configured or installed."""
    from outlast.agents.absent import AbsentAgent
    from outlast.cli.advice import how_to_have_an_agent
    from outlast.cli.agents import agent_row

    agents = patient.config.agents()
    if not agents:
        yield Finding(
            "agents",
            "warning",
            "no agent is configured or installed",
            how_to_have_an_agent(patient.environ),
        )
    for name, agent in sorted(agents.items()):
        if isinstance(agent, AbsentAgent):  # Only who uses it meets the error.
            yield Finding("configuration", "fault", agent.missing.message, agent.missing.hint)
            continue
        row = agent_row(name, agent)
        if row.problem is not None:
            yield Finding("agents", "warning", f"agent {name} cannot be launched here: {row.problem}")
        else:
            yield Finding("agents", "ok", f"agent {name} ({row.kind}) is {row.program}")


def _lives(patient: Patient) -> Iterator[Finding]:
    """Every agent folder of the store, with the session that it belongs to where the journal tells."""
    base = patient.layout.folder / "agents"
    folders = sorted(base.iterdir()) if base.is_dir() else []
    sessions = _sessions_by_folder(patient) if folders else {}
    found = False
    for stray in strays_of(patient.layout):
        found = True
        message = f"an agent of this store lives (pid {stray.pid}) and is not in its folder: {where(stray)}"
        yield Finding("shims", "warning", message, f"kill {stray.pid}, where no other store has it")
    for folder in folders:
        for finding in _looked_at(folder, sessions.get(folder.name), patient.layout):
            found = True
            yield finding
    if not found:
        yield Finding("shims", "ok", "no agent lives without an owner, and none has left processes behind")


def strays_of(layout: Layout) -> list[Stray]:
    """Living agents of the store that its folder does not hold; none where the store cannot be read."""
    from outlast.errors import OutlastError
    from outlast.keep import strays
    from outlast.store.sqlite.reading import Reader

    try:
        reader = Reader(layout)
    except OutlastError:  # the database's own finding tells of it
        return []
    store_id = reader.store_id
    reader.close()
    return strays(store_id, layout.folder / "agents")


def where(stray: Stray) -> str:
    return f"{stray.folder}, which was removed" if stray.removed else str(stray.folder)


def _looked_at(folder: Path, session: Owned | None, layout: Layout) -> list[Finding]:
    """The findings on one folder; one that cannot be read is a finding itself, not the doctor's end."""
    try:
        return list(_life(folder, session, layout))
    except OSError as error:
        return [Finding("shims", "warning", f"{folder} cannot be looked at: {error.strerror or error}")]


def _life(path: Path, session: Owned | None, layout: Layout) -> Iterator[Finding]:
    from outlast.keep import AgentFolder, Alive, Unknown, probe, stopped, tree_dead

    facts = probe(AgentFolder(path))
    latest = facts.latest
    name = None if session is None else session.session
    fault = facts.fault or ("" if latest is None else latest.fault)
    if fault:
        # An owner goes on without what cannot be read, and says so in the journal.
        mends = None if name is None else way_back(layout, name)
        yield Finding("shims", "warning", f"{path}: {fault}", mends, name)
    for process in () if latest is None else stopped(latest.generation):
        whose = f"of session {name}" if name is not None else f"in {path}"
        message = f"the {process.role} (pid {process.pid}) {whose} is stopped: {_MISSED[process.role]}"
        yield Finding("shims", "fault", message, f"kill -CONT {process.pid}", name)
    if latest is None or (session is not None and session.owned):
        return
    remedy = None if name is None else f"{way_back(layout, name)}, or outlast kill {_quoted(name)}"
    if facts.shim_alive and latest.shim is not None:
        if session is None:
            since = f"it was started {duration(_age(latest.shim.start_ticks))} ago"
            whose = f"an agent of an unknown session ({path})"
            told = f"{whose} lives; whether somebody owns it cannot be told; {since}"
        else:
            since = f"the last record is {age(session.last_activity_at)} old"
            told = f"an agent of session {name} lives without owner; {since}"
        yield Finding("shims", "warning", told, remedy, name)
        return
    verdict = tree_dead(latest.generation)
    if isinstance(verdict, Alive) and verdict.pids:
        pids = " ".join(map(str, verdict.pids))
        message = f"the agent of {path.name} is gone and has left processes behind: {pids}"
        yield Finding("orphans", "fault", message, remedy or f"kill -KILL {pids}", name)
    elif isinstance(verdict, Unknown) and latest.copied:
        pids = f" (pid {' '.join(map(str, verdict.pids))})" if verdict.pids else ""
        message = f"{path} is a copy: the agent that it tells of runs elsewhere{pids} and is not this store's"
        yield Finding("shims", "warning", message, None, name)
    elif isinstance(verdict, Unknown) and not verdict.pids:
        gone = latest.generation.path
        aside = f"mv {_quoted(str(gone))} {_quoted(str(gone.with_name(f'damaged-{gone.name}')))}"
        message = f"{gone}: nobody can tell whether its agent is dead: {verdict.evidence}; no other begins"
        yield Finding("shims", "fault", message, f"when none of its processes runs: {aside}", name)
    elif isinstance(verdict, Unknown):
        pids = " ".join(map(str, verdict.pids))
        message = f"{path.name}: {verdict.evidence}; perhaps: {pids}"
        yield Finding("orphans", "warning", message, f"ps -fp {pids}", name)


_MISSED = {
    "shim": "nobody can hear, feed or end its agent",
    "guard": "nobody ends what its agent leaves behind",
}
"""What does not happen while one of an agent's two keepers is stopped."""


class Owned:
    """A session, when its owner last wrote, and whether somebody owns it now."""

    __slots__ = ("last_activity_at", "owned", "session")

    def __init__(self, session: str, last_activity_at: int, *, owned: bool) -> None:
        self.session = session
        self.last_activity_at = last_activity_at
        self.owned = owned


def _sessions_by_folder(patient: Patient) -> dict[str, Owned]:
    """Agent folders by name. Only sessions that the catalog shows can be told; a folder's name is derived
    from its session's and loop's ids, so the newest attempt's record is what names it."""
    from outlast.store.contract import CatalogQuery
    from outlast.store.sqlite.reading import Reader
    from outlast.turns.hosting import agent_folder

    base = patient.layout.folder / "agents"
    try:
        reader = Reader(patient.layout)
    except OutlastError:  # the database's own finding tells of it
        return {}
    try:
        rows = reader.list(CatalogQuery(limit=10_000))
        store = reader.store_id
        return {
            agent_folder(base, store, row.entry.session, loop).path.name: Owned(
                row.entry.session, row.entry.last_activity_at, owned=row.owner is not None
            )
            for row in rows
            for loop in loops(reader, row.entry.session)
        }
    except OutlastError:  # of a damaged list, likewise
        return {}
    finally:
        reader.close()


def loops(reader: Reader, session: str) -> Iterator[str]:
    """The loops of a session: they are started at its beginning. None where that cannot be read, which its
    journal's own finding tells of."""
    try:
        rows = reader.page(session, 0, FIRST_RECORDS)
    except OutlastError:
        return
    for row in rows:
        if row.type == "LoopStarted" and row.loop is not None:
            yield row.loop


FIRST_RECORDS = 16


def way_back(layout: Layout, session: str) -> str:
    """What goes on with the session."""
    import asyncio

    from outlast.cli.check_journals import read_only
    from outlast.cli.owners import needed
    from outlast.cli.present import way_back_words
    from outlast.store.sqlite.reading import Reader

    try:
        with closing(Reader(layout)) as reader:
            needs = asyncio.run(needed(read_only(layout, reader), session))
    except OutlastError:  # the database's own finding tells of it
        needs = ()
    return way_back_words(session, needs=needs)


def _age(start_ticks: int) -> float:
    """Seconds since a process started, by its start ticks."""
    import os

    from outlast.clock import boottime

    return max(0.0, boottime() / 1e9 - start_ticks / os.sysconf("SC_CLK_TCK"))


def _quoted(text: str) -> str:
    from shlex import quote

    return quote(text)
