"""What a restore finds outside the journal. Data only; `restore.probe` looks, `restore.plan` decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlast.agents.contract import ExitInfo, Failure
from outlast.records.types import OnInterrupt
from outlast.turns.landing import Landing
from outlast.turns.lost import OnLost
from outlast.turns.standing import Standing


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """One loop's agent, as found."""

    loop: str
    known: bool
    """This runtime has a configuration for the agent's name."""
    kind: str | None = None
    """Of the adapter that the agent's name stands for today; None where there is none."""
    many_turns: bool = False
    on_interrupt: OnInterrupt = "skip"
    on_lost: OnLost = "ask"
    session: Standing | None = None
    """How its own session stands, as the next start of it will find that; None where its program keeps none
    that can be looked at, or nobody looked."""
    session_fault: str = ""
    """Why that could not be looked at."""
    driven_by: str = ""
    """Who else drives its own session, as a part of a sentence: the next start of it is refused for that."""
    lacks: str = ""
    """The first turn that was worked on and that its own session, whole as it is, holds nothing of any more:
    the next prompt tells that one and those after it."""
    generation: str | None = None
    """The generation looked at: the one that the journal names."""
    found: bool = False
    """Its folder is there."""
    elsewhere: str = ""
    """Its folder here is a copy of the one that it ran in: what it does there is not known here."""
    alive: bool = False
    """Its shim lives."""
    started: bool = False
    """Its agent was started."""
    exit: ExitInfo | None = None
    landing: Landing = "none"
    terminal: str | None = None
    """The spool holds the agent's own end of the turn: `done`, `cancelled` or `failed`."""
    failure: Failure | None = None
    """What the turn failed of, by that end."""
    retry_attempts: int = 0
    """The most retries in a row that a policy may make."""
    readable: bool = False
    """Its spool can be folded from the journal's cursor on."""
    stored: bool | None = None
    """Whether the agent's own transcript holds the turn's prompt; None where nothing proves either."""
    gone: bool = True
    """The agent's process tree is proven dead."""
    note: str = ""
    """Anything a person should read, as one sentence."""


@dataclass(frozen=True, slots=True)
class Facts:
    agents: Mapping[str, AgentFacts] = field(default_factory=dict)
    """By loop."""
    inbox: int = 0
    """Unsettled inbox entries."""
    verified_from: int = 0
    """The journal's records after this one were read and held against the chain; what came before them is
    from a snapshot. 0: all were."""

    def lines(self) -> list[str]:
        """One plain sentence per fact."""
        lines = [f"inbox: {self.inbox} unsettled"]
        for agent in self.agents.values():
            lines.append(f"loop {agent.loop}: {describe(agent)}")
            if told := describe_session(agent):
                lines.append(f"loop {agent.loop}: {told}")
            if agent.driven_by:
                lines.append(f"loop {agent.loop}: the agent's own session is in use: {agent.driven_by}")
        return lines


def describe(agent: AgentFacts) -> str:
    """The agent's facts as one sentence; the evidence of a plan."""
    if agent.generation is None:
        return "no agent was started"
    if agent.elsewhere:
        return _with_landing([f"{agent.generation} ran elsewhere", agent.elsewhere], agent)
    if not agent.found:
        return f"{agent.generation} is not here" + (f", {agent.note}" if agent.note else "")
    if agent.alive:
        return f"{agent.generation} lives" + ("" if agent.started else ", its agent was never started")
    parts = [f"{agent.generation} has ended"]
    if agent.exit is not None:
        parts.append(describe_exit(agent.exit))
    elif not agent.started:
        parts.append("its agent was never started")
    else:
        parts.append("no exit was recorded")
    return _with_landing(parts, agent)


def describe_session(agent: AgentFacts) -> str:
    """How the agent's own session was found; empty where nobody looked."""
    if agent.session_fault:
        return f"the agent's own file of the session cannot be used: {agent.session_fault}"
    if agent.session is None or agent.session.verdict == "given_up":
        return ""
    if agent.session.verdict == "whole" and agent.lacks:
        lost = f"the agent's own file of the session holds nothing of turn {agent.lacks} any more"
        return f"{lost}, which the next prompt tells it"
    if agent.session.verdict == "whole":
        return "nothing is wrong with the agent's own file of the session"
    if agent.session.verdict == "absent":
        return "the agent has no file of its session, and nothing of it was captured"
    return f"the agent's own file of the session: {agent.session.why}"


def _with_landing(parts: list[str], agent: AgentFacts) -> str:
    if agent.terminal is not None:
        parts.append(f"its spool holds the turn's end ({agent.terminal})")
    elif agent.landing != "none":
        parts.append(_LANDING[agent.landing])
    if agent.stored is not None:
        parts.append(f"the agent's own transcript {'holds' if agent.stored else 'does not hold'} it")
    if not agent.gone and not agent.elsewhere:
        parts.append("processes of its tree may still live")
    if agent.note:
        parts.append(agent.note)
    return ", ".join(parts)


def describe_exit(exit: ExitInfo) -> str:
    """How a process ended, in words."""
    if exit.signal is not None:
        how = f"the agent was ended by signal {exit.signal}"
    elif exit.status is not None:
        how = f"the agent exited with status {exit.status}"
    else:
        how = "the agent ended, its status was not seen"
    return how + (" (out of memory)" if exit.oom else "") + (", tree verified gone" if exit.verified else "")


_LANDING: Mapping[str, str] = {
    "none": "no input was reserved",
    "never_written": "the input was never written",
    "never_read": "the input was never read: the agent had died before",
    "accepted": "the input was accepted",
    "unknown": "the input may have been written in part",
    "written": "the input was written",
    "foreign": "another writer's input stands in its place",
}
