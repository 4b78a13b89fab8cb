"""The id of an agent's session where we may choose it: chosen, and in the journal, before the agent is
started, so that there is never a session that nobody can find again."""

from __future__ import annotations

from outlast.agents.contract import Agent
from outlast.ids import new_id
from outlast.records.types import AgentSessionChanged
from outlast.state.model import Loop
from outlast.turns.merge import begun_anew


def chosen_session(loop: Loop, agent: Agent) -> AgentSessionChanged | None:
    """The session that the agent is to begin; None where it resumes one, or names its own."""
    if not agent.capabilities.choose_id or loop.resumes is not None:
        return None
    anew = loop.provider_session is not None
    return AgentSessionChanged(
        provider=agent.kind,
        provider_session=new_id(),
        state="reseeded" if anew else "bound",
        source="chosen",
        reason=begun_anew(loop.decided, loop.lost_because) if anew else "",
    )
