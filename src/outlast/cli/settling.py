"""`outlast settle`: a person's word on an effect whose outcome nobody recorded."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from outlast.cli.commands import Said, tell, with_next_owner
from outlast.cli.contact import open_client, speakable
from outlast.cli.options import json_option, not_empty, session_argument
from outlast.cli.output import Screen
from outlast.cli.owners import heard
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.errors import UsageError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.runtime.handles import Settled


@click.command("settle")
@session_argument
@click.argument("call", metavar="CALL", callback=not_empty)
@click.option("--done/--not-done", "done", default=None, help="It was done, or it was not.")
@click.option("--result", metavar="JSON", default=None, help="What it gave, for the steps after it.")
@click.option("--reason", metavar="TEXT", default="", help="How you know, for the journal.")
@json_option()
def settle_command(
    session: str, call: str, done: bool | None, result: str | None, reason: str, as_json: bool
) -> int:
    """Say whether a step around a turn was done, where a crash or a failure left that unknown.

    CALL is the step's id, a unique beginning of it, or its name; `outlast show ID` lists them. With --done
    the turn goes on after the step. With --not-done the step runs once, under the same key. The agent is not
    asked again. Exits 4 when it is done already or its turn is over, or when a contrary word came first.
    """
    screen = Screen(os.environ, as_json=as_json)
    if done is None:
        raise UsageError("neither --done nor --not-done was given", hint="say which it was")
    if result is not None and not done:
        raise UsageError("--result goes with --done: what was not done gave nothing")
    said = (call, done, None if result is None else _parsed(result), reason)
    name, settled = run_async(screen, _settle(loaded_config(screen), screen, session, said))
    words = Said("settled; the turn goes on", "nothing to settle", fails=True)
    return tell(screen, name, settled, words)


async def _settle(
    config: Config, screen: Screen, typed: str, said: tuple[str, bool, object, str]
) -> tuple[str, Settled]:
    call, done, result, reason = said
    async with open_client(config) as client:
        session = client.session(await speakable(client.store, typed))
        asked = session.settle(call, done=done, result=result, reason=reason, actor="cli")
        settled = await heard(client.store, session.id, asked, screen)
        return session.id, await with_next_owner(client.store, session.id, settled)


def _parsed(text: str) -> object:
    """Raises UsageError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--result is no JSON: {error}", hint="a text goes in quotes: '\"done\"'") from error
