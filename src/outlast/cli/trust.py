"""`outlast trust`: which folder's own file may name programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import click
import msgspec

from outlast.cli.exits import Exit
from outlast.cli.failures import NothingToDoError
from outlast.cli.options import json_option, not_empty
from outlast.cli.output import Screen, visible


class TrustLine(msgspec.Struct, frozen=True):
    """`outlast trust --json`."""

    file: str
    """The configuration file; after --revoke it need not be there any more."""
    trust: Literal["trusted", "unknown"]


@click.command("trust")
@click.argument("folder", metavar="[DIR]", required=False, callback=not_empty)
@click.option("--revoke", is_flag=True, help="Take the trust back.")
@json_option()
def trust_command(folder: str | None, revoke: bool, as_json: bool) -> int:
    """Let a folder's outlast.toml name programs.

    The file found in DIR (the current folder by default) or above it counts from now on, whole, until it
    changes: a changed file has to be trusted again. Read it first: what it names runs as you.
    """
    from outlast.config.files import PROJECT_FILE, read_project_file
    from outlast.config.load import trust_of

    where = os.path.realpath(folder or ".")
    screen = Screen(os.environ, as_json=as_json)
    trust = trust_of(os.environ)
    file = read_project_file(where)
    if revoke:
        # The record outlives its file, so the folder alone has to do.
        path = Path(where) / PROJECT_FILE if file is None else file.path
        trust.forget(path.parent)
        return _tell(screen, TrustLine(str(path), "unknown"), as_json, f"{path} is not trusted any more")
    if file is None:
        raise NothingToDoError(f"there is no outlast.toml in {where} or above it", hint="name its folder")
    from outlast.config.settings import decode_settings

    decode_settings(file.parse(), str(file.path))  # a file that cannot be used cannot be trusted either
    trust.decide(file, trusted=True)
    return _tell(
        screen, TrustLine(str(file.path), "trusted"), as_json, f"{file.path} is trusted until it changes"
    )


def _tell(screen: Screen, line: TrustLine, as_json: bool, text: str) -> int:
    if as_json:
        screen.json_line(line)
    else:
        screen.out.line(visible(text))
    return Exit.OK
