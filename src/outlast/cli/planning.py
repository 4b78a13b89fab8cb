"""`outlast plan`: what a restore would do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_runtime
from outlast.cli.options import json_option, session_argument
from outlast.cli.output import Screen, visible
from outlast.cli.present import way_back_command
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.errors import naming

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.restore.plan import RestorePlan
    from outlast.store.contract import Holder


@click.command("plan")
@session_argument
@json_option()
def plan_command(session: str, as_json: bool) -> None:
    """Show what a restore of the session would do now, and why.

    It looks and changes nothing: no lease is taken, no agent is touched. Given the same facts,
    `outlast resume` does exactly this, unless somebody owns the session: then it is refused.
    """
    screen = Screen(os.environ, as_json=as_json)
    plan, owner = run_async(screen, _plan(loaded_config(screen, session), session))
    label = None if owner is None else owner.label
    if as_json:
        screen.json_line(plan.to_json() | {"owner": label})
        return
    for line in plan.lines():
        screen.out.line(visible(line))
    if label is not None:
        refused = naming(f"{label} owns the session: `outlast resume` would be refused now", plan.session)
        screen.out.line(visible(f"{refused}, `{way_back_command(plan.session, owned=True)}` joins it"))


async def _plan(config: Config, name: str) -> tuple[RestorePlan, Holder | None]:
    async with open_runtime(config) as runtime:
        session = await runtime.store.find(name)
        return await runtime.plan_restore(session), await runtime.store.holder(session)
