"""One configuration out of all its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outlast.agents.mcp import command_of
from outlast.config.files import ConfigFile, read_project_file, read_user_file
from outlast.config.settings import AgentSettings, FileSettings, decode_settings
from outlast.config.trust import Trust, TrustState
from outlast.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from outlast.agents.contract import Agent

NEEDS_TRUST = frozenset(
    {
        "kind",
        "command",
        "env",
        "stdin",
        "require_nonce",
        "sandbox",
        "approval",
        "permission_mode",
        "mcp_servers",
        "isolate",
        "on_interrupt",
        "orphan_grace",
    }
)
"""Keys of an agent that say which program runs, what it gets to see, what it may do unasked, and what may be
run twice or longer."""

NAMED, WIDTH = 4, 300
"""How many keys a notice names, and how many characters of what a stranger wrote it repeats."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says of the configuration; None where it says nothing."""

    store: str | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """The folder's own file and whether it counts."""

    file: ConfigFile
    trust: TrustState
    left_out: tuple[str, ...] = ()
    """Keys that count only in a trusted folder."""
    programs: tuple[str, ...] = ()
    """The command lines that it names, for a person to look at."""
    problem: str | None = None
    """Why an untrusted file could not be read at all."""


@dataclass(frozen=True, slots=True)
class Config:
    """The merged configuration of one invocation."""

    store_url: str
    agent_settings: Mapping[str, AgentSettings]
    environ: Mapping[str, str]
    sources: tuple[Path, ...] = ()
    project: Project | None = None
    notices: tuple[str, ...] = ()
    """One line each, for the user: what was left out, and why."""
    broken: Mapping[str, ConfigError] = field(default_factory=dict)
    """Agents that are left out of `agent_settings` because what describes them is wrong, and how."""
    places: Mapping[str, str] = field(default_factory=dict)
    """FILE:LINE of each agent's table."""

    def agents(self) -> dict[str, Agent]:
        """Every agent that is configured or found here, by name. One whose table is wrong is an
        `AbsentAgent`: who uses it gets its ConfigError (`outlast.agents.registry.usable`)."""
        from outlast.config.agents import build_agents

        return build_agents(self.agent_settings, self.environ, self.broken, self.places)


def load_config(environ: Mapping[str, str], workspace: str, flags: Flags = Flags()) -> Config:
    """The configuration that holds in `workspace`. Raises ConfigError, or UsageError where neither
    a home nor `OUTLAST_STATE_DIR` says where state belongs."""
    from outlast.store.url import default_url

    user_file = read_user_file(environ, home_of(environ))
    user = _Said() if user_file is None else _said(user_file)
    project_file = read_project_file(workspace)
    if project_file is not None and user_file is not None and project_file.path == user_file.path:
        project_file = None
    found, project = _project(project_file, environ)
    store_url = (
        flags.store
        or environ.get("OUTLAST_STORE")
        or found.settings.store
        or user.settings.store
        or default_url(environ)
    )
    broken = dict(user.broken) | found.broken
    places = user.places | found.places
    return Config(
        store_url=store_url,
        agent_settings=_merge(user, found, project, broken, places),
        environ=environ,
        sources=tuple(file.path for file in (user_file, project_file) if file is not None),
        project=project,
        notices=_notices(project),
        broken=broken,
        places=places,
    )


def home_of(environ: Mapping[str, str]) -> Path | None:
    """The user's home; None where there is none."""
    from outlast.store.url import home

    try:
        return home(environ)
    except UsageError:  # no home, no file in it; whatever needs one says so itself
        return None


def trust_of(environ: Mapping[str, str]) -> Trust:
    """The user's trust decisions. Raises UsageError where there is no place for them."""
    from outlast.store.url import state_dir

    return Trust(state_dir(environ))


@dataclass(frozen=True, slots=True)
class _Said:
    """What a file says; of `broken` agents what is wrong with their tables, which are at `places`."""

    settings: FileSettings = field(default_factory=FileSettings)
    broken: dict[str, ConfigError] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


def _project(file: ConfigFile | None, environ: Mapping[str, str]) -> tuple[_Said, Project | None]:
    if file is None:
        return _Said(), None
    state = _trust_state(file, environ)
    if state is TrustState.TRUSTED:
        return _said(file), Project(file, state)
    try:
        found = _said(file)
        for error in found.broken.values():
            raise error
    except ConfigError as error:
        # A clone must not break every command in its folder either.
        return _Said(), Project(file, state, problem=str(error))
    said = found.settings
    harmless = _Said(_harmless(said), places=found.places)
    return harmless, Project(file, state, left_out=_left_out(said), programs=_programs(said))


def _said(file: ConfigFile) -> _Said:
    """What the file says, its relative paths as they are meant. Raises ConfigError, but for what is
    wrong with one agent alone."""
    broken: dict[str, ConfigError] = {}
    document, places = file.parse(), file.places()
    said = decode_settings(document, str(file.path), places, broken)
    agents = {name: agent.beside(file.folder) for name, agent in said.agents.items()}
    places = {name: places.get(name, str(file.path)) for name in agents}
    return _Said(msgspec.structs.replace(said, agents=agents), broken, places)


def _trust_state(file: ConfigFile, environ: Mapping[str, str]) -> TrustState:
    if file.problem is not None:  # what was not read whole is not what was trusted
        return TrustState.UNKNOWN
    try:
        return trust_of(environ).look_up(file)
    except UsageError:  # no home: nothing can have been trusted
        return TrustState.UNKNOWN


def _left_out(said: FileSettings) -> tuple[str, ...]:
    keys = [f"agents.{name}.{key}" for name, agent in said.agents.items() for key in agent.says(NEEDS_TRUST)]
    if said.store is not None:
        keys.insert(0, "store")
    if said.workspace is not None:
        keys.append("workspace")
    return tuple(keys)


def _programs(said: FileSettings) -> tuple[str, ...]:
    from shlex import join

    lines = {name: agent.command for name, agent in said.agents.items() if agent.command}
    for name, agent in said.agents.items():
        for server, about in (agent.mcp_servers or {}).items():
            if command := command_of(about):
                lines[f"{name}, MCP server {server}"] = tuple(command)
    return tuple(f"{who}: {join(command)}" for who, command in lines.items())


def _harmless(said: FileSettings) -> FileSettings:
    return FileSettings(agents={name: agent.without(NEEDS_TRUST) for name, agent in said.agents.items()})


def _merge(
    user: _Said,
    project: _Said,
    about: Project | None,
    broken: dict[str, ConfigError],
    places: Mapping[str, str],
) -> dict[str, AgentSettings]:
    """The agents of both files. One that is `broken` in either is left out, and one that cannot be is said to
    be broken."""
    merged = dict(user.settings.agents)
    for name, agent in project.settings.agents.items():
        merged[name] = agent.over(merged.get(name))
    trusted = about is None or about.trust is TrustState.TRUSTED
    complete: dict[str, AgentSettings] = {}
    for name, agent in merged.items():
        if name in broken:
            continue
        kind = agent.kind or _implied_kind(name)
        if kind is None and not trusted and name not in user.settings.agents:
            continue  # what would have said which program it is was left out
        if kind is None:
            broken[name] = ConfigError(
                f"`agents.{name}` in {places[name]} does not say what kind of agent it is",
                hint='add kind = "command"',
            )
            continue
        complete[name] = AgentSettings(kind=kind).over(agent)
    return complete


def _implied_kind(name: str) -> str | None:
    return name if name in ("codex", "claude") else None


def _notices(project: Project | None) -> tuple[str, ...]:
    if project is None or not (project.left_out or project.problem):
        return ()
    folder = project.file.folder
    why = {
        TrustState.UNKNOWN: "is not trusted",
        TrustState.CHANGED: "has changed since it was trusted",
        TrustState.REFUSED: "is not trusted",
        TrustState.TRUSTED: "is trusted",
    }[project.trust]
    if project.problem is not None:
        return (f"{project.file.path} {why} and was not used: {_short(project.problem)}",)
    more = len(project.left_out) - NAMED
    left_out = ", ".join(map(_short, project.left_out[:NAMED])) + (f" and {more} more" if more > 0 else "")
    return (f"{project.file.path} {why}: left out {left_out}. To let it count: outlast trust {folder}",)


def _short(text: str) -> str:
    return text if len(text) <= WIDTH else text[:WIDTH] + "…"
