"""`outlast tail`: a session's records, one a line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_client
from outlast.cli.options import json_option, session_argument
from outlast.cli.output import Screen, visible
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.cli.text import first_line, record_summary
from outlast.cli.times import local_time
from outlast.records.envelope import Record
from outlast.records.public import public_line

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.journal.integrity import Strange


@click.command("tail")
@session_argument
@click.option(
    "--after", type=click.IntRange(0, 2**63 - 1), default=0, metavar="N", help="Begin after record N."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new records until Ctrl-C.")
@click.option("--internal", is_flag=True, help="Internal records too.")
@json_option("Print each record as a line of JSON, every field.")
def tail_command(session: str, after: int, follow: bool, internal: bool, as_json: bool) -> None:
    """Print a session's records in order.

    The number that begins each line is the record's place; `--after` it goes on from there. Of a damaged
    journal it prints what comes before the fault, names that, and exits 5. A record that a newer outlast has
    written is printed without its body.
    """
    screen = Screen(os.environ, as_json=as_json)
    told = Tail(screen, after, follow=follow, internal=internal)
    run_async(screen, _tail(loaded_config(screen), session, told))


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

    def show_strange(self, strange: Strange) -> bool:
        """Whether its type is public is not known: only its envelope is shown."""
        row = strange.row
        if self.screen.as_json:
            self.screen.json_line(strange_json(strange))
        else:
            head = f"{row.seq:>6}  {local_time(row.at)}  {row.type:<20}"
            self.screen.out.line(visible(f"{head} unknown: {strange.message}"))
        return not self.screen.out.gone


def strange_json(strange: Strange) -> dict[str, object]:
    """The fields of a record's line, `body` null and `unknown` beside it."""
    from outlast.clock import isoformat
    from outlast.records.uuids import uuid_text

    row = strange.row
    return {
        "seq": row.seq,
        "epoch": row.epoch,
        "id": uuid_text(row.id),
        "at": isoformat(row.at),
        "type": row.type,
        "v": row.v,
        "loop": row.loop,
        "turn": row.turn,
        "cause": row.cause,
        "actor": row.actor,
        "cursor": None,
        "body": None,
        "chain": row.chain.hex(),
        "unknown": strange.message,
    }


async def _tail(config: Config, name: str, tail: Tail) -> None:
    from outlast.journal import CaughtUp, follow
    from outlast.journal.integrity import Strange, read_known

    async with open_client(config) as client:
        session = await client.store.find(name)
        if not tail.follow:
            async for found in read_known(client.store, session, tail.after):
                if not (tail.show_strange(found) if isinstance(found, Strange) else tail.show(found)):
                    return
            return
        async for item in follow(client.store, session, tail.after):
            if not isinstance(item, CaughtUp) and not tail.show(item):
                return


def record_line(record: Record) -> str:
    """Place, time, type and the beginning of what it says."""
    head = f"{record.seq:>6}  {local_time(record.at)}  {record.type:<20}"
    return f"{head} {first_line(record_summary(record))}".rstrip()
