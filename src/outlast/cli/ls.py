"""`outlast ls`. Imports no asyncio, psutil or rich: it is typed often and answers at once."""

from __future__ import annotations

import os

import click

from outlast.cli.options import json_option, real_workspace, workspace_option
from outlast.cli.output import Screen, visible
from outlast.cli.table import table_lines
from outlast.state.listing import listed_json, status_of
from outlast.store.contract import CatalogQuery, Listed


@click.command("ls")
@workspace_option("Only sessions of this folder.")
@json_option()
def ls_command(workspace: str | None, as_json: bool) -> None:
    """List sessions, newest activity first.

    STATUS is derived from the journal and from who owns the session now: `detached` has unfinished work and
    no owner, `parked` waits for `outlast retry` or `outlast skip`.
    """
    from outlast.cli.stored import list_rows, loaded_config

    screen = Screen(os.environ, as_json=as_json)
    config = loaded_config(screen)
    rows = list_rows(config, CatalogQuery(workspace=None if workspace is None else real_workspace(workspace)))
    if as_json:
        screen.json_line([listed_json(row) for row in rows])
    elif rows:
        _print_table(screen, rows)
    else:
        screen.note("no sessions here yet; `outlast run PROMPT` begins one")


def _print_table(screen: Screen, rows: list[Listed]) -> None:
    width = None
    if screen.out.is_terminal:
        from shutil import get_terminal_size

        width = get_terminal_size().columns
    header = ("ID", "STATUS", "AGENT", "ACTIVE", "TURNS", "QUEUED", "TITLE")
    cells = [_cells(row) for row in rows]
    first, *lines = table_lines(header, cells, width)
    screen.out.line(screen.out.bold(first))
    for line in lines:
        screen.out.line(line)


def _cells(row: Listed) -> tuple[str, ...]:
    from outlast.cli.times import age

    entry = row.entry
    status = status_of(row) + (f" ({entry.open_gates} asked)" if entry.open_gates else "")
    queued = str(entry.queued + row.pending)
    title = visible(entry.title.replace("\n", " "))
    return (
        visible(entry.session),
        status,
        visible(entry.agent),
        age(entry.last_activity_at),
        str(entry.turns),
        queued,
        title,
    )
