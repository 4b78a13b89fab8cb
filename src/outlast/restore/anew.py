"""Beginning a session again of whose journal not even the beginning is left, when a person asks for it.

Its name, its folder, its agent and what waits for it stay; what it was told and did is gone, and its journal
says so. Its agent begins a session of its own, for nobody knows which one it had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from outlast.agents.contract import Agent
from outlast.errors import IntegrityError, OutlastError, StoreBusyError
from outlast.ids import new_id
from outlast.journal import load_state
from outlast.journal.integrity import Verified
from outlast.keep import AgentFolder, probe
from outlast.records.envelope import Draft
from outlast.restore.opening import Opening, decode_opening
from outlast.restore.start import beginning
from outlast.state.model import State
from outlast.store.contract import CatalogQuery, Store

_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Anew:
    """`resolve` gives the agent of a name, or raises AgentNotFoundError. `agent` is the one that a person has
    named. `otherwise` opens a session of which nothing tells folder and agent, or raises."""

    resolve: Callable[[str], Agent]
    otherwise: Callable[[], Opening]
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """What a repaired journal goes on from: `state`, or an empty one and the `first` records of it."""

    state: State
    first: tuple[Draft, ...] = ()

    @property
    def loop(self) -> str | None:
        """The root loop that the first records begin."""
        return self.first[-1].loop if self.first else None


async def begin_anew(store: Store, found: Verified, anew: Anew) -> Begun:
    """To be called under the session's lease. Raises StoreBusyError while an agent lives that may be its."""
    opening = await _opening(store, found) or anew.otherwise()
    if anew.agent is not None:
        opening = msgspec.structs.replace(opening, agent=anew.agent)
    agent = anew.resolve(opening.agent)
    await _refuse_while_its_agent_may_live(store, found.session)
    return Begun(State(found.session), tuple(beginning(opening, new_id(), agent)))


async def _opening(store: Store, found: Verified) -> Opening | None:
    """As the journal's good beginning, an input that waits or the list has it."""
    state = found.state
    if state.manifest is not None:
        return Opening(
            agent=state.manifest.agent, workspace=state.workspace, title=state.title, labels=state.labels
        )
    for entry in await store.pending(found.session):
        if entry.opening_body is not None:
            return decode_opening(entry.opening_body)
    row = await store.listed(found.session)
    if row is None or not row.entry.agent:
        return None
    entry_ = row.entry
    return Opening(
        agent=entry_.agent, workspace=entry_.workspace, title=entry_.title, labels=dict(entry_.labels)
    )


async def _refuse_while_its_agent_may_live(store: Store, session: str) -> None:
    """Only the lost records knew where its agent is: any that no other session has may be it."""
    living = await asyncio.to_thread(_living, store.folder / "agents")
    if living:
        for row in await store.list(CatalogQuery(limit=_ALL)):
            if row.entry.session != session:
                living.pop(await _lineage(store, row.entry.session), None)
    if living:
        pids = " ".join(str(pid) for pid in living.values())
        raise StoreBusyError(
            f"an agent lives that may be the one of {session}, and would be given a second: pid {pids}",
            hint=f"`kill {pids}` ends it in order; then the same again",
            session_id=session,
        )


async def _lineage(store: Store, session: str) -> str:
    """Empty where the journal does not tell."""
    try:
        return (await load_state(store, session)).lineage
    except (IntegrityError, OutlastError):
        return ""


def _living(base: Path) -> dict[str, int]:
    """The shims that live in the agent folders, by the lineage that they serve."""
    found: dict[str, int] = {}
    for path in sorted(base.iterdir()) if base.is_dir() else ():
        facts = probe(AgentFolder(path))
        if facts.shim_alive and facts.latest is not None and facts.latest.shim is not None:
            lineage = facts.floor.lineage if facts.floor is not None else path.name
            found[lineage] = facts.latest.shim.pid
    return found
