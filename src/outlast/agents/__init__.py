"""Agents: adapters for the programs that outlast keeps alive.

`Command` runs any program that speaks a small protocol of JSON lines, `Codex` runs `codex app-server`,
`Claude` runs Claude Code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.agents.claude import Claude
    from outlast.agents.codex import Codex
    from outlast.agents.command import Command

__all__ = ["Claude", "Codex", "Command"]


def __getattr__(name: str) -> object:
    # An adapter is imported with its first use: the command line pays for every import at every start.
    if name == "Command":
        from outlast.agents.command import Command  # noqa: PLC0415

        return Command
    if name == "Codex":
        from outlast.agents.codex import Codex  # noqa: PLC0415

        return Codex
    if name == "Claude":
        from outlast.agents.claude import Claude  # noqa: PLC0415

        return Claude
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
