"""The `outlast` command. One module per command group; each imports what it uses when it runs."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (docs/cli.md lists them)."""
    from outlast.cli.app import run_command_line

    return run_command_line(arguments)
