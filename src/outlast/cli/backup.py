"""`outlast backup`: the whole store in one file, while its owners work."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from outlast.cli.exits import Exit
from outlast.cli.options import json_option
from outlast.cli.output import Screen, visible
from outlast.cli.stored import loaded_config
from outlast.cli.ticking import Ticking
from outlast.errors import SessionNotFoundError


class BackupLine(msgspec.Struct, frozen=True):
    """`backup --json`. A contract: docs/cli.md."""

    file: str
    store: str
    sessions: int | None
    records: int | None
    """None where damage keeps them from being counted."""
    blobs: int
    size: int
    damage: list[str]


@click.command("backup")
@click.argument("file", metavar="FILE")
@json_option()
def backup_command(file: str, as_json: bool) -> int:
    """Write the whole store to the new file FILE, as it is at one moment; owners go on meanwhile.

    FILE is a tar archive, to be unpacked in the folder that the database lay in. A store that was put back
    from it is open for reading only until `outlast doctor --after-restore`. Damage that is met goes into the
    backup as it is, is named, and makes it exit 5.
    """
    from outlast.cli.check_journals import damaged_journals
    from outlast.clock import now
    from outlast.store.sqlite.backup import Watching, back_up
    from outlast.store.sqlite.layout import Layout
    from outlast.store.url import database_path

    screen = Screen(os.environ, as_json=as_json)
    config = loaded_config(screen)
    layout = Layout.of(database_path(config.store_url, os.environ))
    if not layout.exists():
        raise SessionNotFoundError(f"there is no store at {layout.database} yet")
    target = Path(file).absolute()
    with Ticking(screen, "backup", 0) as ticking:
        watching = Watching(
            ticking.part, lambda copy: damaged_journals(layout, Layout.of(copy), ticking.part)
        )
        made = back_up(layout, target, now(), watching)
    line = BackupLine(
        str(target), made.store, made.sessions, made.records, made.blobs, made.size, list(made.damage)
    )
    if as_json:
        screen.json_line(line)
    else:
        counts = [
            _counted(made.sessions, "sessions"),
            _counted(made.records, "records"),
            f"{made.blobs} blobs",
        ]
        screen.out.line(visible(f"{target}: {', '.join(counts)}, {made.size:,} bytes"))
        for damage in made.damage:
            screen.note(visible(f"outlast: {damage}; `outlast doctor` says more"))
    return Exit.REJECTED if made.damage else Exit.OK


def _counted(count: int | None, what: str) -> str:
    return f"{what} that cannot be counted" if count is None else f"{count} {what}"
