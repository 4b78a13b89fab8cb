"""MCP servers of outlast's configuration, as Claude Code takes them on its command line.

It leaves out a server that it can't make sense of without a word (measured with 2.1.332): what is wrong with
one is said here. What it is given this way stands beside the servers of the user's and the project's own
settings."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from outlast.agents.mcp import BY_REFERENCE, McpServer, check_mcp_servers
from outlast.errors import ConfigError

_FAR = ("http", "sse")
_NEAR = "stdio"
_SIZE_MOST = 64 * 1024
"""Bytes of all servers together: they are one argument, which the system bounds."""
_NOT_ITS_WORDS = ("env_vars", "bearer_token", "bearer_token_env_var", "http_headers", "env_http_headers")


def check_servers(servers: Mapping[str, McpServer]) -> None:
    """Raises ConfigError naming the server that Claude Code would leave out or misread."""
    check_mcp_servers(servers, BY_REFERENCE)
    for name, about in servers.items():
        kind = about.get("type", _kind(about))
        if kind not in ((_NEAR,) if "command" in about else _FAR):
            raise ConfigError(
                f"the `type` of the MCP server {name} does not fit",
                hint='"stdio" has a `command`; "http" and "sse" have a `url`',
            )
        for key in ("env", "headers"):
            if not _is_texts(about.get(key, {})):
                raise ConfigError(f"`{key}` of the MCP server {name} is no table of texts")
        word = next((word for word in _NOT_ITS_WORDS if word in about), None)
        if word is not None:
            raise ConfigError(
                f"`{word}` of the MCP server {name} is none of Claude Code's words",
                hint="it has `env` and `headers`, and puts the value of a variable in the place of ${NAME}",
            )
    if len(as_argument(servers)) > _SIZE_MOST:
        raise ConfigError(f"the MCP servers are more than {_SIZE_MOST} bytes together")


def as_argument(servers: Mapping[str, McpServer]) -> str:
    """The servers in one JSON text."""
    told = {name: {"type": _kind(about), **about} for name, about in servers.items()}
    return msgspec.json.encode({"mcpServers": told}).decode()


def _kind(server: McpServer) -> str:
    """What it is where it does not say: Claude Code leaves out a `url` without a type."""
    return _NEAR if "command" in server else _FAR[0]


def _is_texts(values: object) -> bool:
    return isinstance(values, Mapping) and all(isinstance(value, str) for value in values.values())
