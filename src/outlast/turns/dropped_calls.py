"""Calls that an agent had made before its life ended, and that its own session does not hold: no model would
ever hear of them, unless the next prompt tells it.

Most programs tell it themselves, when they resume a session with such a call in it. A program that writes its
transcript after the fact can lose the call, or even one that had ended (`DropsCalls`). What the transcript
mentions is never told by us: the program tells it then, or an earlier prompt has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outlast.agents.contract import Agent
from outlast.agents.transcript import DropsCalls
from outlast.journal import Journal
from outlast.records.types import CallObserved
from outlast.state.model import Loop
from outlast.turns.hosting import Hosting
from outlast.turns.report import report

NAMED = 20
"""Calls of a kind that are named; the others are counted."""
SHOWN = 600
"""Characters of a call's input, and of its output."""

_HEAD = (
    "[outlast: for your information, no new request] The program that runs you was cut off, and your own"
    " record lacks calls that you had made."
)
_OPEN = (
    "These had started. They may have run wholly or in part, and how they ended is not known: look before you"
    " repeat one."
)
_ENDED = "These had ended, as is told here: do not repeat them because your record lacks them."


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call as far as its agent has shown it; without an `outcome` it had started."""

    call: str
    name: str
    input: str
    outcome: str = ""
    """`completed` or `failed`."""
    output: str = ""


async def notice_of(journal: Journal, agent: Agent, loop: Loop, hosting: Hosting) -> str:
    """What the next prompt of `loop` has to tell of calls that its agent's session lacks; empty where that is
    nothing."""
    since, session = loop.called_since, loop.provider_session
    # What tells the whole story (`turns.telling`) tells these, too.
    if since is None or session is None or loop.untold is not None or not isinstance(agent, DropsCalls):
        return ""
    calls = await made_calls(journal, loop.loop, since, loop.life_since)
    names = [call.call for call in calls]
    try:
        lacking = await asyncio.to_thread(
            agent.unmentioned_calls, names, session, hosting.workspace, hosting.environ
        )
    except OSError as error:
        report("the agent's transcript could not be read: what was cut off is told", error)
        lacking = frozenset(names)
    return in_words([call for call in calls if call.call in lacking])


async def made_calls(journal: Journal, loop: str, since: int, until: int) -> list[MadeCall]:
    """The calls of `loop` that were made after record `since` and before record `until`, oldest first. What
    the agent's present life, which began there, has made it still knows."""
    made: dict[str, MadeCall] = {}
    async for record in journal.read(after=since):
        if record.seq >= until:
            break
        body = record.body
        if record.loop != loop or not isinstance(body, CallObserved):
            continue
        if body.status == "started":
            made[body.call] = MadeCall(body.call, body.name, body.input)
        else:
            begun = made.get(body.call) or MadeCall(body.call, body.name, body.input)
            made[body.call] = replace(begun, outcome=body.status, output=body.output)
    return list(made.values())


def in_words(calls: Sequence[MadeCall]) -> str:
    """The calls, for a model; each by the id that its own record would hold."""
    if not calls:
        return ""
    cut = [call for call in calls if not call.outcome]
    ended = [call for call in calls if call.outcome]
    return "\n".join([_HEAD, *_listed(_OPEN, cut), *_listed(_ENDED, ended)])


def _listed(head: str, calls: Sequence[MadeCall]) -> Iterator[str]:
    if calls:
        yield head
    for call in calls[:NAMED]:
        yield f"- {call.name} ({call.call}): {_short(call.input)}"
        if call.outcome:
            yield f"  {call.outcome}: {_short(call.output)}" if call.output else f"  {call.outcome}"
    if len(calls) > NAMED:
        yield f"- and {len(calls) - NAMED} more"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text) - SHOWN} more)"
