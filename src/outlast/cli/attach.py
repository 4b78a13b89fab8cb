"""`outlast attach`: follow a session live, type, answer, cancel, leave again; owns nothing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_client, speakable
from outlast.cli.exits import Exit
from outlast.cli.options import not_empty, real_workspace
from outlast.cli.output import Screen
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.errors import SessionNotFoundError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.runtime.client import Client


@click.command("attach")
@click.argument("session", metavar="[ID]", required=False, callback=not_empty)
def attach_command(session: str | None) -> int:
    """Follow a session live; without ID the newest of this folder.

    A line that you type is sent; while a question is open it is the answer. /cancel or Ctrl-C cancels the
    running turn, /detach or Ctrl-D leaves, and so does Ctrl-C where nothing runs; /help lists the rest.
    Whatever you do here, the session goes on.
    """
    screen = Screen(os.environ)
    return run_async(screen, _attach(loaded_config(screen), screen, session))


async def _attach(config: Config, screen: Screen, name: str | None) -> int:
    from outlast.cli.conversation import Conversation

    async with open_client(config) as client:
        session = client.session(await speakable(client.store, await _found(client, name)))
        conversation = Conversation(client, session, screen, sys.stdin.fileno())
        await conversation.run()
    return Exit.OK


async def _found(client: Client, name: str | None) -> str:
    from outlast.store.contract import CatalogQuery

    if name is not None:
        return name
    folder = real_workspace(None)
    newest = await client.store.list(CatalogQuery(workspace=folder, limit=1))
    if not newest:
        raise SessionNotFoundError(
            f"there is no session in {folder}", hint="`outlast ls` lists those elsewhere"
        )
    return newest[0].entry.session
