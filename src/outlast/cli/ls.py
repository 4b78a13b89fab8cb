"""`outlast ls`. Imports no asyncio, psutil or rich: it is typed often and answers at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

import click

from outlast.cli.options import json_option, real_workspace, workspace_option
from outlast.cli.output import Screen, visible
from outlast.cli.stored import is_uuid
from outlast.cli.table import table_lines
from outlast.errors import IntegrityError
from outlast.state.listing import listed_json, status_of
from outlast.store.contract import CatalogQuery, Listed

if TYPE_CHECKING:
    from outlast.state.model import Delay


@click.command("ls")
@workspace_option("Only sessions of this folder.")
@json_option()
def ls_command(workspace: str | None, as_json: bool) -> None:
    """List sessions, newest activity first.

    On a terminal an ID is cut to a beginning that is enough to name the session; pipes get it whole. STATUS
    is derived from the journal and from who owns the session now: `detached` has unfinished work and no
    owner, `parked` waits for `outlast retry` or `outlast skip`. Of a damaged list it prints what can be read,
    names the damage, and exits 5.
    """
    from outlast.cli.stored import list_rows, loaded_config, readable_rows

    screen = Screen(os.environ, as_json=as_json)
    config = loaded_config(screen)
    query = CatalogQuery(workspace=None if workspace is None else real_workspace(workspace))
    fault = None
    try:
        rows = list_rows(config, query)
    except IntegrityError as error:
        rows, fault = readable_rows(config, query), error
    waits = _waits(screen, rows)
    if as_json:
        screen.json_line([listed_json(row) | _waits_json(row, waits) for row in rows])
    elif rows:
        _print_table(screen, rows, waits)
    elif fault is None:
        screen.note("no sessions here yet; `outlast run PROMPT` begins one")
    if fault is not None:
        raise fault


def _waits(screen: Screen, rows: list[Listed]) -> dict[str, Delay]:
    """What sessions wait for of which the list says that they do: nobody else's journal is looked at."""
    waiting = [row.entry.session for row in rows if row.entry.state == "retrying"]
    if not waiting:
        return {}
    from outlast.cli.retrying import delays_of

    return delays_of(screen, waiting)


def _waits_json(row: Listed, waits: Mapping[str, Delay]) -> dict[str, object]:
    delay = waits.get(row.entry.session)
    if delay is None:
        return {}
    from outlast.state.delays import delay_json

    return {"waits": delay_json(delay)}


def _print_table(screen: Screen, rows: list[Listed], waits: Mapping[str, Delay]) -> None:
    width = None
    if screen.out.is_terminal:
        from shutil import get_terminal_size

        width = get_terminal_size().columns
    header = ("ID", "STATUS", "AGENT", "ACTIVE", "TURNS", "QUEUED", "TITLE")
    names = [row.entry.session for row in rows]
    if width is not None:
        names = beginnings(names)
    cells = [_cells(name, row, waits.get(row.entry.session)) for name, row in zip(names, rows, strict=True)]
    first, *lines = table_lines(header, cells, width)
    screen.out.line(screen.out.bold(first))
    for line in lines:
        screen.out.line(line)


def beginnings(sessions: Sequence[str]) -> list[str]:
    """Of each UUID a beginning that no other session here shares, and that none which begins later will: it
    holds the whole of the time that the id was made at. Labels stay as they are."""
    ordered = sorted(sessions)
    shared = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        shared[one], shared[other] = max(shared[one], common), max(shared[other], common)
    return [name[: max(TIME, shared[name] + 1)] if is_uuid(name) else name for name in sessions]


TIME = len("0192a4c1-7f3e")
"""The 48 bits of a UUIDv7's milliseconds, as text."""


def _cells(name: str, row: Listed, delay: Delay | None) -> tuple[str, ...]:
    from outlast.cli.times import age, exact_time

    entry = row.entry
    # Among what was decided may be the answer to what is asked: only the journal tells.
    decided = row.decisions if row.owner is None else 0
    both = ((entry.open_gates, "asked"), (decided, "decided"))
    counts = [f"{count} {what}" for count, what in both if count]
    status = status_of(row) + (f" ({', '.join(counts)})" if counts else "")
    if delay is not None:
        status += f" (waits until {exact_time(delay.until)}: {delay.code})"
    queued = str(entry.queued + row.pending)
    title = visible(entry.title.replace("\n", " "))
    return (
        visible(name),
        status,
        visible(entry.agent),
        age(entry.last_activity_at),
        str(entry.turns),
        queued,
        title,
    )
