"""What a plan looks at of the agents' own sessions, as the start of each agent will find them: how what its
program keeps stands, who else drives it, and what it has lost of the turns that the journal has. Takes no
lock and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from outlast.agents.contract import Agent
from outlast.agents.provider_state import KeepsState
from outlast.errors import AgentError, UsageError, in_words
from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.restore.facts import AgentFacts, Facts
from outlast.restore.probe import Resolve, known_agent
from outlast.state.model import Loop, State
from outlast.store.contract import Store
from outlast.turns.hosting import Hosting
from outlast.turns.lacking import news_lacking
from outlast.turns.sole_driver import driven_by, kept_by
from outlast.turns.standing import standing

_RESUMED = ("whole", "as_is", "put_back", "absent")
"""Verdicts after which the agent is started on the session that it had."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A journal that is only read (`turns.lacking.Told`)."""

    store: Store
    state: State

    def read(self, after: int = 0) -> AsyncIterator[Record]:
        return read_records(self.store, self.state.session, after)


async def with_sessions(facts: Facts, journal: Stored, hosting: Hosting, resolve: Resolve) -> Facts:
    """The facts with what each agent that is to be started would find of its own session. Its whole file is
    read."""
    seen = [
        await _with_session(facts.agents[loop.loop], journal, loop, hosting, resolve)
        for loop in journal.state.loops.values()
    ]
    return replace(facts, agents={agent.loop: agent for agent in seen})


async def _with_session(
    found: AgentFacts, journal: Stored, loop: Loop, hosting: Hosting, resolve: Resolve
) -> AgentFacts:
    agent = known_agent(loop.agent, resolve)
    kept = None if agent is None or found.alive else kept_by(agent, loop, hosting)
    if agent is None or kept is None:
        return found
    keeper, place = kept
    try:
        session = await asyncio.to_thread(standing, keeper, place, loop)
        seen = replace(found, on_lost=agent.on_lost, session=session)
        if session.verdict not in _RESUMED:
            return seen
        if session.verdict == "whole":
            lacks = await news_lacking(journal, agent, loop, hosting)
            seen = replace(seen, lacks="" if lacks is None else lacks[1])
        return replace(seen, driven_by=await asyncio.to_thread(_driven_by, agent, keeper, loop, hosting))
    except (AgentError, OSError) as error:
        fault = in_words(error)[0] if isinstance(error, OSError) else str(error)
        return replace(found, on_lost=agent.on_lost, session_fault=fault)


def _driven_by(agent: Agent, keeper: KeepsState, loop: Loop, hosting: Hosting) -> str:
    try:
        return driven_by(agent, keeper, loop, hosting)
    except UsageError as error:  # No place for claims: the start of the agent fails of that.
        return str(error)
