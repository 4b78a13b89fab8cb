"""Calls that had started when their agent was cut off, and that its own session does not hold: no model would
ever hear of them, unless the next prompt tells it.

Most programs tell it themselves, when they resume a session with such a call in it. A program that writes its
transcript after the fact can lose the call (`DropsCalls`). What the transcript mentions is never told by us:
the program tells it then, or an earlier prompt has."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from outlast.agents.contract import Agent
from outlast.agents.transcript import DropsCalls
from outlast.journal import Journal
from outlast.records.types import CallObserved
from outlast.state.model import Loop
from outlast.turns.hosting import Hosting
from outlast.turns.report import report

NAMED = 20
"""Calls that are named; the others are counted."""
INPUT_SHOWN = 600
"""Characters of a call's input."""

_HEAD = (
    "[outlast: for your information, no new request] These calls of yours had started when the program that"
    " runs you was cut off. Your own record does not hold them. They may have run wholly or in part, and how"
    " they ended is not known: look before you repeat one."
)


@dataclass(frozen=True, slots=True)
class CutCall:
    call: str
    name: str
    input: str


async def notice_of(journal: Journal, agent: Agent, loop: Loop, hosting: Hosting) -> str:
    """What the next prompt of `loop` has to tell of calls that were cut off; empty where that is nothing."""
    since, session = loop.cut_since, loop.provider_session
    # What tells the whole story (`turns.telling`) tells these, too.
    if since is None or session is None or loop.untold is not None or not isinstance(agent, DropsCalls):
        return ""
    calls = await cut_calls(journal, loop.loop, since)
    names = [call.call for call in calls]
    try:
        lacking = await asyncio.to_thread(
            agent.unmentioned_calls, names, session, hosting.workspace, hosting.environ
        )
    except OSError as error:
        report("the agent's transcript could not be read: what was cut off is told", error)
        lacking = frozenset(names)
    return in_words([call for call in calls if call.call in lacking])


async def cut_calls(journal: Journal, loop: str, since: int) -> list[CutCall]:
    """The calls of `loop` after record `since` that have started and have no outcome, oldest first."""
    cut: dict[str, CutCall] = {}
    async for record in journal.read(after=since):
        body = record.body
        if record.loop != loop or not isinstance(body, CallObserved):
            continue
        if body.status == "started":
            cut[body.call] = CutCall(body.call, body.name, body.input)
        else:
            cut.pop(body.call, None)
    return list(cut.values())


def in_words(calls: list[CutCall]) -> str:
    """The calls, for a model; each by the id that its own record would hold."""
    if not calls:
        return ""
    lines = [_HEAD, *(f"- {call.name} ({call.call}): {_short(call.input)}" for call in calls[:NAMED])]
    if len(calls) > NAMED:
        lines.append(f"- and {len(calls) - NAMED} more")
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= INPUT_SHOWN else f"{text[:INPUT_SHOWN]}… ({len(text) - INPUT_SHOWN} more)"
