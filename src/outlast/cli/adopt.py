"""`outlast adopt`: make a session of one that an agent began elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_runtime
from outlast.cli.exits import Exit
from outlast.cli.options import json_option, not_empty, real_workspace, workspace_option
from outlast.cli.output import Screen, visible
from outlast.cli.present import way_back_command
from outlast.cli.running import run_async

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.runtime.adopting import Adoptable

_LINE = 100
"""Characters of one text that is shown."""


@click.command("adopt")
@click.option("-a", "--agent", metavar="NAME", required=True, help="The agent that began it.")
@click.option("--session", metavar="ID", callback=not_empty, help="What it is called here; else a new id.")
@workspace_option("The folder that the agent works in (default: the one that the session has).")
@click.option("--yes", is_flag=True, help="Do it; without this it is only shown.")
@json_option()
@click.argument("thread", metavar="THREAD", callback=not_empty)
def adopt_command(
    *, agent: str, session: str | None, workspace: str | None, yes: bool, as_json: bool, thread: str
) -> int:
    """Make an outlast session of one that an agent began elsewhere, for example in its own terminal.

    THREAD is the agent's own id of it, whole. Shows what there is and what would be done; --yes does it. What
    was said before stays with the agent, as evidence: nothing of it is sent again. Refused while another
    process has it open, and where it is another outlast session's already (exit 4). Where it was killed, the
    same command finishes it. Exits 3 where the agent has no such session.
    """
    from outlast.cli.asking_trust import settled_config

    screen = Screen(os.environ, as_json=as_json)
    folder = None if workspace is None else real_workspace(workspace)
    config = settled_config(screen, folder or real_workspace(None), None)
    from outlast.agents.registry import resolve
    from outlast.runtime.adopting import look_at

    found = look_at(resolve(agent, config.agents(), os.environ), thread, folder, os.environ)
    if not yes or (found.refused and not found.may_be(session)):
        return _tell(screen, found)
    return run_async(screen, _adopt(config, screen, (agent, session), found))


async def _adopt(config: Config, screen: Screen, names: tuple[str, str | None], found: Adoptable) -> int:
    from outlast.cli.run import leave_idle
    from outlast.runtime.adopting import adopt

    agent, session = names
    async with open_runtime(config) as runtime:
        name = await adopt(runtime, found, agent, session, "cli")
        await leave_idle(runtime, runtime.session(name))
    if screen.as_json:
        screen.json_line(found.to_json() | {"session": name, "adopted": True})
    else:
        screen.out.line(visible(f"adopted as session {name}: {way_back_command(name)}"))
        screen.out.line(visible(f'go on with: outlast run --session {name} "..."'))
    return Exit.OK


def _tell(screen: Screen, found: Adoptable) -> int:
    if screen.as_json:
        screen.json_line(found.to_json() | {"session": None, "adopted": False})
    else:
        for line in _lines(found):
            screen.out.line(visible(line))
    found.raise_if_refused()
    return Exit.OK


def _lines(found: Adoptable) -> Iterator[str]:
    turns = found.summary.turns
    yield f"{found.provider} {found.provider_session}: {turns} turn{'' if turns == 1 else 's'}"
    yield f"  transcript  {found.path} ({found.size} bytes)"
    yield f"  workspace   {found.workspace}"
    for said in found.summary.said:
        first = said.text.strip().partition("\n")[0]
        yield f"  {said.role:<10}  {first[:_LINE]}"
    if not found.refused:
        yield "nothing was changed; --yes adopts it"
