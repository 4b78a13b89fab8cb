"""Which agents are there: the configured ones by name, and the programs that work by name without any
configuration when they are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from outlast.agents.absent import AbsentAgent
from outlast.agents.contract import Agent
from outlast.agents.installing import how_to_install
from outlast.errors import AgentError, AgentNotFoundError


def resolve(name: str, agents: Mapping[str, Agent], environ: Mapping[str, str]) -> Agent:
    """The agent of this name. Raises AgentNotFoundError, which lists the names that there are, or ConfigError
    where what configures it is wrong."""
    if name in agents:
        return usable(agents[name])
    by_name = installed(environ)
    if name in by_name:
        return by_name[name]
    names = sorted({*agents, *by_name})
    there = f"there are {', '.join(names)}" if names else "there are none"
    hint = f"add [agents.{name}] to the configuration"
    if name in _BY_NAME:
        hint = f"{how_to_install(name)}; or {hint}"
    raise AgentNotFoundError(f"there is no agent named {name}; {there}", hint=hint)


def usable(agent: Agent) -> Agent:
    """The same. Raises what is missing, where it only stands for one."""
    if isinstance(agent, AbsentAgent):
        raise agent.missing
    return agent


def sessions_home(kind: str, environ: Mapping[str, str]) -> Path | None:
    """Where programs of this kind keep their sessions, as far as that can be told without an adapter."""
    look = _HOMES.get(kind)
    return None if look is None else look(environ)


def installed(environ: Mapping[str, str]) -> dict[str, Agent]:
    """The agents that work by name because their program is here."""
    found = ((name, look(environ)) for name, look in _BY_NAME.items())
    return {name: agent for name, agent in found if agent is not None}


def _codex(environ: Mapping[str, str]) -> Agent | None:
    from outlast.agents.codex import Codex  # noqa: PLC0415 - only who asks for it pays for its import
    from outlast.agents.codex.binary import find_codex  # noqa: PLC0415

    try:
        find_codex(None, environ)
    except AgentError:
        return None
    return Codex()


def _claude(environ: Mapping[str, str]) -> Agent | None:
    from outlast.agents.claude import Claude  # noqa: PLC0415
    from outlast.agents.claude.binary import find_claude  # noqa: PLC0415

    try:
        find_claude(None, environ)
    except AgentError:
        return None
    return Claude()


def _codex_home(environ: Mapping[str, str]) -> Path:
    from outlast.agents.codex.rollout import codex_home, sessions_home  # noqa: PLC0415

    return sessions_home(codex_home(environ))


def _claude_home(environ: Mapping[str, str]) -> Path:
    from outlast.agents.claude.transcript import claude_home  # noqa: PLC0415

    return claude_home(environ)


_HOMES: Mapping[str, Callable[[Mapping[str, str]], Path]] = {"codex": _codex_home, "claude": _claude_home}
_BY_NAME: Mapping[str, Callable[[Mapping[str, str]], Agent | None]] = {"codex": _codex, "claude": _claude}
