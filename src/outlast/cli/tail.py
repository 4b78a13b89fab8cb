"""`outlast tail`: a session's records, one a line."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_client
from outlast.cli.options import json_option, session_argument
from outlast.cli.output import Screen, visible
from outlast.cli.stored import loaded_config
from outlast.cli.text import first_line, record_summary
from outlast.cli.times import local_time
from outlast.records.envelope import Record
from outlast.records.public import public_line

if TYPE_CHECKING:
    from outlast.config import Config


@click.command("tail")
@session_argument
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Begin after record N.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new records until Ctrl-C.")
@click.option("--internal", is_flag=True, help="Internal records too.")
@json_option("Print each record as a line of JSON, every field.")
def tail_command(session: str, after: int, follow: bool, internal: bool, as_json: bool) -> None:
    """Print a session's records in order.

    The number that begins each line is the record's place; `--after` it goes on from there.
    """
    screen = Screen(os.environ, as_json=as_json)
    asyncio.run(_tail(loaded_config(screen), session, Tail(screen, after, follow=follow, internal=internal)))


class Tail:
    """Prints records until there are no more, or nobody reads them."""

    def __init__(self, screen: Screen, after: int, *, follow: bool, internal: bool) -> None:
        self.screen = screen
        self.after = after
        self.follow = follow
        self._internal = internal

    def show(self, record: Record) -> bool:
        """False when the reader has gone."""
        if record.public or self._internal:
            if self.screen.as_json:
                self.screen.out.write(public_line(record).decode("utf-8") + "\n")
            else:
                self.screen.out.line(visible(record_line(record)))
        return not self.screen.out.gone


async def _tail(config: Config, name: str, tail: Tail) -> None:
    from outlast.journal import CaughtUp, follow, read_records

    async with open_client(config) as client:
        session = await client.store.find(name)
        if not tail.follow:
            async for record in read_records(client.store, session, tail.after):
                if not tail.show(record):
                    return
            return
        async for item in follow(client.store, session, tail.after):
            if not isinstance(item, CaughtUp) and not tail.show(item):
                return


def record_line(record: Record) -> str:
    """Place, time, type and the beginning of what it says."""
    head = f"{record.seq:>6}  {local_time(record.at)}  {record.type:<20}"
    return f"{head} {first_line(record_summary(record))}".rstrip()
