"""What a configuration file may hold: typed, and strict about names, so that a slip of the pen is no silent
default."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from outlast.agents.mcp import command_of, with_command
from outlast.config.durations import parse_duration
from outlast.errors import ConfigError
from outlast.records.types import OnInterrupt

AfterFailure = Literal["continue", "hold", "withdraw"]

KINDS = ("command", "codex", "claude")
"""Agent kinds that this outlast can drive."""
LATER_KINDS = ("opencode", "gemini", "acp", "native")

S = TypeVar("S", bound=msgspec.Struct)

_BESIDE = ("./", "../")
_PLACED = (*_BESIDE, "/", "~")
"""Beginnings of a path that say from where it counts."""
DURATIONS = ("idle_timeout", "total_timeout", "idle_park", "orphan_grace")


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[agents.NAME]` section. None means: not said here, so a lower layer or the agent decides."""

    kind: str | None = None
    command: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    """Names let through to the agent, beside a safe default list."""
    model: str | None = None
    on_interrupt: OnInterrupt | None = None
    after_failure: AfterFailure | None = None
    on_lost: Literal["ask", "refuse", "fresh", "reseed"] | None = None
    retry_attempts: int | None = None
    stdin: Literal["close", "open"] | None = None
    require_nonce: bool | None = None
    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] | None = None
    approval: Literal["untrusted", "on-request", "never"] | None = None
    permission_mode: (
        Literal["acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan"] | None
    ) = None
    mcp_servers: Mapping[str, Mapping[str, Any]] | None = None
    """MCP servers by name, in the words of the agent's own configuration."""
    isolate: Literal["none"] | None = None
    idle_timeout: str | None = None
    total_timeout: str | None = None
    idle_park: str | None = None
    orphan_grace: str | None = None

    def over(self, lower: AgentSettings | None) -> AgentSettings:
        """These settings where they say something, else those of `lower`."""
        if lower is None:
            return self
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(lower, **said)

    def without(self, names: frozenset[str]) -> AgentSettings:
        return msgspec.structs.replace(self, **dict.fromkeys(names))

    def beside(self, folder: Path) -> AgentSettings:
        """The same, its `command` and those of its MCP servers as they are meant in a file of `folder`: words
        that begin with `./` or `../`, and a program by a relative path, lie there and not in whatever folder
        the agent will work in."""
        command = self.command and tuple(_beside(folder, self.command))
        servers = self.mcp_servers and {
            name: with_command(about, _beside(folder, command_of(about)))
            for name, about in self.mcp_servers.items()
        }
        return msgspec.structs.replace(self, command=command, mcp_servers=servers)

    def says(self, names: frozenset[str]) -> list[str]:
        return [name for name in self.__struct_fields__ if name in names and getattr(self, name) is not None]

    def seconds(self, name: str) -> float | None:
        text: str | None = getattr(self, name)
        return None if text is None else parse_duration(text)


def _beside(folder: Path, command: Sequence[str]) -> list[str]:
    if not command:
        return []
    program, *arguments = command
    words = [program if program.startswith(_PLACED) or "/" not in program else f"./{program}", *arguments]
    return [os.path.normpath(folder / word) if word.startswith(_BESIDE) else word for word in words]


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[workspace]`: only what this outlast does; other policies are refused, not ignored."""

    on_divergence: Literal["keep"] = "keep"
    exclusive: Literal[False] = False


class FileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    store: str | None = None
    agents: Mapping[str, AgentSettings] = {}
    workspace: WorkspaceSettings | None = None


def decode_settings(
    document: Mapping[str, object],
    source: str,
    places: Mapping[str, str] = MappingProxyType({}),
    broken: dict[str, ConfigError] | None = None,
) -> FileSettings:
    """The typed settings of a parsed file. Raises ConfigError naming key and file, for an agent's table the
    place that it has by `places`. An agent whose table is wrong is left out where `broken` is given, which
    then says of it what would be raised."""
    _refuse_unknown(document, FileSettings.__struct_fields__, "", source)
    agents = document.get("agents", {})
    if not isinstance(agents, dict):
        raise ConfigError(f"`agents` in {source} is not a table", hint="write [agents.NAME] sections")
    workspace = document.get("workspace")
    return FileSettings(
        store=_convert(document.get("store"), str | None, "store", source),
        agents=_decode_agents(agents, defaultdict(lambda: source, places), broken),
        workspace=None if workspace is None else _decode_workspace(workspace, source),
    )


def _decode_agents(
    agents: Mapping[str, object], places: Mapping[str, str], broken: dict[str, ConfigError] | None
) -> dict[str, AgentSettings]:
    decoded = {}
    for name, section in agents.items():
        try:
            decoded[name] = _decode_agent(name, section, places[name])
        except ConfigError as error:
            if broken is None:
                raise
            broken[name] = error
    return decoded


def _decode_agent(name: str, section: object, source: str) -> AgentSettings:
    key = f"agents.{name}"
    _check_name(name, source)
    settings = _section(section, AgentSettings, key, source)
    if settings.kind in LATER_KINDS:
        raise ConfigError(
            f"`{key}.kind` in {source}: agents of kind {settings.kind!r} are not available in this version",
            hint=f"use one of {', '.join(KINDS)}",
        )
    if settings.kind is not None and settings.kind not in KINDS:
        raise ConfigError(
            f"`{key}.kind` in {source}: there is no agent kind {settings.kind!r}",
            hint=f"use one of {', '.join(KINDS)}",
        )
    for field in DURATIONS:
        try:
            settings.seconds(field)
        except ValueError as error:
            raise ConfigError(f"`{key}.{field}` in {source}: {error}") from None
    return settings


def _decode_workspace(section: object, source: str) -> WorkspaceSettings:
    return _section(section, WorkspaceSettings, "workspace", source)


def _section(section: object, kind: type[S], key: str, source: str) -> S:
    if not isinstance(section, dict):
        raise ConfigError(f"`{key}` in {source} is not a table", hint=f"write [{key}] and its keys below it")
    _refuse_unknown(section, kind.__struct_fields__, f"{key}.", source)
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return kind(
        **{name: _convert(value, types[name], f"{key}.{name}", source) for name, value in section.items()}
    )


def _convert(value: object, wanted: Any, key: str, source: str) -> Any:
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        expected = A_DURATION if key.rpartition(".")[2] in DURATIONS else _expected(wanted)
        # The value itself is not repeated: it may be a secret in the wrong place.
        is_list, name = expected == A_LIST, key.rpartition(".")[2]
        given = "one text" if is_list and isinstance(value, str) else _kind_of(value)
        hint = f'a list stands in brackets, also one of a single word: {name} = ["…"]' if is_list else None
        raise ConfigError(f"`{key}` in {source} has to be {expected}; it is {given}", hint=hint) from None


A_LIST = 'a list of texts, like ["one", "two"]'
A_DURATION = 'a length of time in quotes, like "90s" or "10m"'


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    kinds = ((str, "another text"), (int | float, "a number"), (dict, "a table"), (list, "a list"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "something else")


def _expected(wanted: Any) -> str:
    """A type in the words of who writes a file."""
    is_union = get_origin(wanted) in (Union, UnionType)
    parts = [part for part in get_args(wanted) if part is not NoneType] if is_union else [wanted]
    return " or ".join(_in_words(part) for part in parts)


def _in_words(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        words = [f'"{word}"' if isinstance(word, str) else str(word).lower() for word in get_args(wanted)]
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if get_origin(wanted) is Mapping:
        return "a table"
    if get_origin(wanted) is tuple:
        return A_LIST
    plain = {str: "a text in quotes", bool: "true or false", int: "a whole number"}
    return plain.get(wanted, str(wanted))


def _refuse_unknown(section: Mapping[str, object], known: tuple[str, ...], prefix: str, source: str) -> None:
    for name in section:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(known)}"
            raise ConfigError(f"unknown key `{prefix}{name}` in {source}", hint=hint)


def _check_name(name: str, source: str) -> None:
    if not name or name.startswith("-") or len(name) > 100 or not name.isprintable():
        raise ConfigError(
            f"`agents.{name!r}` in {source} is no name for an agent",
            hint="use 1 to 100 printable characters, not beginning with a dash",
        )
