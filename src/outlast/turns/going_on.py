"""Whether an agent is asked to go on with a turn, or is given the turn's input: by what its session holds."""

from __future__ import annotations

import asyncio

from outlast.agents.contract import Agent
from outlast.agents.transcript import HoldsPrompts, SentPrompt
from outlast.state.model import State
from outlast.turns.hosting import Hosting
from outlast.turns.report import report


async def goes_on(state: State, turn_id: str, agent: Agent, hosting: Hosting) -> bool:
    """Whether the agent's session holds the input of a turn that is to be continued. Its own transcript tells
    it, where that can be read; else the journal does, by what the session was given."""
    turn = state.open_turns[turn_id]
    loop = state.loops[turn.loop]
    if turn.mode != "continue" or loop.resumes is None:
        return loop.goes_on(turn)
    if not isinstance(agent, HoldsPrompts):
        return loop.goes_on(turn)
    sent = SentPrompt(turn.turn, turn.attempts)
    try:
        held = await asyncio.to_thread(
            agent.holds_prompt, sent, loop.resumes, hosting.workspace, hosting.environ
        )
    except OSError as error:
        report("the agent's transcript could not be read: the journal tells what it was given", error)
        held = None
    return loop.goes_on(turn) if held is None else held
