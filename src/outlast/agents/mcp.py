"""MCP servers that a session's agent is to use: passed on in the agent's own words, looked at as far as all
agents agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

import msgspec

from outlast.agents.redaction import redact
from outlast.errors import ConfigError

McpServer: TypeAlias = Mapping[str, object]
"""`command` and `args`, or `url`, and whatever else the agent knows."""


_SECRET_NAME = re.compile(
    r"token|secret|passw|credential|api[_-]?key|private[_-]?key|access[_-]?key|authorization|cookie",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class KeepsSecrets:
    """How an agent is given a secret of an MCP server without being told it."""

    hint: str
    reference: re.Pattern[str] | None = None
    """What the agent itself replaces by a variable's value, wherever it stands."""


BY_NAME = KeepsSecrets(
    "keep it in an environment variable that `env` of the agent names, and name that one: "
    "env_vars, bearer_token_env_var, env_http_headers"
)
BY_REFERENCE = KeepsSecrets(
    "keep it in an environment variable that `env` of the agent names, and refer to it: ${NAME}",
    re.compile(r"\$\{[A-Za-z_]\w*\}"),
)
_MARK = "$"
"""Stands for a reference when a text is looked at."""
_REFERS = re.compile(r"(?:(?:bearer|basic|token)\s+)?\$", re.IGNORECASE)


def check_mcp_servers(servers: Mapping[str, McpServer], keeps: KeepsSecrets = BY_NAME) -> None:
    """Raises ConfigError naming the server that is none, or whose secret would be written down: what an agent
    is told stands in a file, or among its arguments."""
    for name, about in servers.items():
        if not name or not name.isprintable():
            raise ConfigError(f"{name!r} is no name for an MCP server", hint="use printable characters")
        program = isinstance(about.get("command"), str) and _is_text_list(about.get("args", []))
        if not program and not isinstance(about.get("url"), str):
            raise ConfigError(
                f"the MCP server {name} has neither a `command` with a list of `args` nor a `url`",
                hint='for example command = "./server" or url = "http://127.0.0.1:8080/mcp"',
            )
        try:
            msgspec.json.encode(about)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the MCP server {name} holds what cannot be passed on: {error}") from None
        secret = next(_secrets(about, keeps), None)
        if secret is not None:
            raise ConfigError(
                f"{secret} of the MCP server {name} looks like a secret, and would be written to a file",
                hint=keeps.hint,
            )


def _secrets(server: McpServer, keeps: KeepsSecrets) -> Iterator[str]:
    """Where in it a value is written out that looks like a secret."""

    def shown(text: str) -> str:
        return text if keeps.reference is None else keeps.reference.sub(_MARK, text)

    for key in ("env", "headers", "http_headers"):
        values = server.get(key)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if not isinstance(value, str) or not value:
                continue
            text = shown(value)
            if text != value and _REFERS.fullmatch(text):
                continue
            if _SECRET_NAME.search(str(name)) or redact(text) != text:
                yield f"{key}.{name}"
    if server.get("bearer_token"):
        yield "bearer_token"
    url = server.get("url")
    if isinstance(url, str) and redact(shown(url)) != shown(url):
        yield "url"
    line = shown(" ".join(command_of(server)))
    if redact(line) != line:
        yield "args"


def command_of(server: McpServer) -> list[str]:
    """The server's program and arguments; empty where it has none, or none that could be run."""
    program, arguments = server.get("command"), server.get("args", [])
    if not isinstance(program, str) or not _is_text_list(arguments):
        return []
    return [program, *arguments]


def with_command(server: McpServer, command: Sequence[str]) -> McpServer:
    """The same server with another program and arguments; unchanged where there is none."""
    if not command:
        return server
    program, *arguments = command
    return {**server, "command": program} | ({"args": arguments} if arguments or "args" in server else {})


def _is_text_list(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
