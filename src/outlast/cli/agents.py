"""`outlast agents`: which agents are here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec

from outlast.cli.options import json_option
from outlast.cli.output import Screen, visible
from outlast.cli.stored import loaded_config
from outlast.cli.table import table_lines

if TYPE_CHECKING:
    from outlast.agents.contract import Agent


class AgentRow(msgspec.Struct, frozen=True):
    """One element of `agents --json`."""

    name: str
    kind: str
    adapter: str
    model: str | None
    program: str | None
    problem: str | None
    """Why it cannot be launched here; None if nothing speaks against it."""
    versions: dict[str, str]
    capabilities: list[str]


@click.command("agents")
@json_option()
def agents_command(as_json: bool) -> None:
    """List the agents that are configured or installed, and what each can do.

    Nothing is started: a program is looked for, not run.
    """
    screen = Screen(os.environ, as_json=as_json)
    config = loaded_config(screen)
    rows = [agent_row(name, agent) for name, agent in sorted(config.agents().items())]
    if as_json:
        screen.json_line(rows)
    elif not rows:
        from outlast.cli.advice import how_to_have_an_agent

        screen.note(f"no agent is configured or installed: {how_to_have_an_agent(os.environ)}")
    else:
        _print_table(screen, rows)


def agent_row(name: str, agent: Agent) -> AgentRow:
    """What is known of an agent without starting it."""
    program, problem = _program(agent)
    capabilities = [field for field in agent.capabilities.__slots__ if getattr(agent.capabilities, field)]
    versions = dict(agent.versions())
    return AgentRow(name, agent.kind, agent.adapter, agent.model, program, problem, versions, capabilities)


def _program(agent: Agent) -> tuple[str | None, str | None]:
    """The program that a launch here would run, or why there would be none."""
    from outlast.agents.contract import LaunchContext
    from outlast.errors import OutlastError

    context = LaunchContext("", "", os.path.realpath("."), os.environ, None, confirmed=False)
    try:
        return agent.launch(context).argv[0], None
    except OutlastError as error:
        return None, str(error)


def _print_table(screen: Screen, rows: list[AgentRow]) -> None:
    header = ("NAME", "KIND", "VERSION", "CAN", "PROGRAM")
    cells = [_cells(row) for row in rows]
    first, *lines = table_lines(header, cells, None)
    screen.out.line(screen.out.bold(first))
    for line in lines:
        screen.out.line(visible(line))


def _cells(row: AgentRow) -> tuple[str, ...]:
    version = row.versions.get(row.kind, "-")
    return (
        row.name,
        row.kind,
        version,
        ",".join(row.capabilities) or "-",
        row.program or _why_not(row),
    )


def _why_not(row: AgentRow) -> str:
    return f"{'wrong' if row.adapter == 'none' else 'missing'}: {row.problem}"
