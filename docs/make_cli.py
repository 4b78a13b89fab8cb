"""Writes the command reference into docs/cli.md from the commands themselves. Run it by `make docs`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from outlast.cli.app import COMMANDS, cli

PAGE = Path(__file__).parent / "cli.md"
BEGIN = "<!-- from here on made by docs/make_cli.py -->"


def reference() -> str:
    """Every command as Markdown: usage, description, options."""
    context = click.Context(cli, info_name="outlast")
    lines = ["", "## Commands", ""]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is None:
            raise LookupError(name)
        lines += _command(command, click.Context(command, info_name=name, parent=context))
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### outlast {command.name}"
    yield ""
    usage = " ".join(["outlast", str(command.name), *command.collect_usage_pieces(context)])
    yield "```"
    yield usage
    yield "```"
    yield ""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    records = [option.get_help_record(context) for option in options]
    if options:
        yield "| option | |"
        yield "|---|---|"
        for names, text in filter(None, records):
            shown = names.replace("|", "\\|")
            yield f"| `{shown}` | {text} |"
        yield ""


def page() -> str:
    """The page with today's reference in it."""
    written = PAGE.read_text(encoding="utf-8")
    head, marker, _ = written.partition(BEGIN)
    if not marker:
        raise ValueError(f"{PAGE} has no line {BEGIN}")
    return head + BEGIN + "\n" + reference()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
