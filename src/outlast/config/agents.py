"""Settings to agents, and which agents are here without any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from outlast.agents import Claude, Codex, Command
from outlast.agents.absent import AbsentAgent
from outlast.agents.registry import installed
from outlast.config.settings import DURATIONS, AgentSettings
from outlast.errors import ConfigError

if TYPE_CHECKING:
    from outlast.agents.contract import Agent

UNKNOWN_KIND = "unknown"
"""Of an agent whose table does not say it in a way that can be read."""

_COMMAND_ONLY = ("stdin", "require_nonce")
_CODEX_ONLY = ("sandbox", "approval")
_CLAUDE_ONLY = ("permission_mode",)
_OF_PROGRAMS = ("mcp_servers",)


def build_agents(
    settings: Mapping[str, AgentSettings],
    environ: Mapping[str, str],
    broken: Mapping[str, ConfigError] = MappingProxyType({}),
    places: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Agent]:
    """Every configured agent, and those that work by name because they are installed. One whose table is
    wrong (`broken`, or found so here) is an `AbsentAgent`, which raises that ConfigError when it is used.
    `places`: where the tables are."""
    configured: dict[str, Agent] = {}
    for name, error in broken.items():
        configured[name] = AbsentAgent(UNKNOWN_KIND, error)
    for name, said in settings.items():
        try:
            configured[name] = build_agent(name, said)
        except ConfigError as error:
            where = f" (in {places[name]})" if name in places else ""
            told = ConfigError(f"{error.message}{where}", hint=error.hint)
            configured[name] = AbsentAgent(said.kind or UNKNOWN_KIND, told)
    return installed(environ) | configured


def build_agent(name: str, said: AgentSettings) -> Agent:
    """One agent. Raises ConfigError naming it."""
    try:
        return _BUILDERS[said.kind or ""](said)
    except ConfigError as error:
        raise ConfigError(f"agent {name}: {error.message}", hint=error.hint) from None


def _command(said: AgentSettings) -> Agent:
    if said.command is None:
        raise ConfigError("it has no `command`", hint='for example command = ["python3", "./agent.py"]')
    _refuse(said, _CODEX_ONLY, "codex")
    _refuse(said, _CLAUDE_ONLY, "claude")
    _refuse(said, _OF_PROGRAMS, "codex or claude")
    return Command(said.command, **_shared(said), **_said(said, _COMMAND_ONLY))


def _codex(said: AgentSettings) -> Agent:
    _refuse(said, _COMMAND_ONLY, "command")
    _refuse(said, _CLAUDE_ONLY, "claude")
    return Codex(binary=_binary(said, "codex"), **_shared(said), **_said(said, (*_CODEX_ONLY, *_OF_PROGRAMS)))


def _claude(said: AgentSettings) -> Agent:
    _refuse(said, _COMMAND_ONLY, "command")
    _refuse(said, _CODEX_ONLY, "codex")
    return Claude(
        binary=_binary(said, "claude"), **_shared(said), **_said(said, (*_CLAUDE_ONLY, *_OF_PROGRAMS))
    )


def _binary(said: AgentSettings, kind: str) -> str | None:
    if said.command is None:
        return None
    if len(said.command) != 1:
        hint = f'for example ["/opt/{kind}"]'
        raise ConfigError(f"`command` of a {kind} agent is the program alone", hint=hint)
    return said.command[0]


def _refuse(said: AgentSettings, names: tuple[str, ...], kind: str) -> None:
    """Settings of another kind of agent are refused, not ignored."""
    for name in _said(said, names):
        raise ConfigError(f"`{name}` is for agents of kind {kind}")


def _said(said: AgentSettings, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(said, name)) is not None}


def _shared(said: AgentSettings) -> dict[str, Any]:
    """What is said, by the agents' own names; the rest is theirs to decide."""
    shared = _said(said, ("env", "model", "on_interrupt", "after_failure", "on_lost", "retry_attempts"))
    return shared | {name: said.seconds(name) for name in DURATIONS if getattr(said, name) is not None}


_BUILDERS: Mapping[str, Callable[[AgentSettings], Agent]] = {
    "command": _command,
    "codex": _codex,
    "claude": _claude,
}
