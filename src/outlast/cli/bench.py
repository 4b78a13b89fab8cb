"""`outlast bench`: the figures of this machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from outlast.cli.options import json_option
from outlast.cli.output import Screen
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config


@click.command("bench")
@click.option("--seconds", type=click.FloatRange(min=0.05), default=1.0, help="How long each part may take.")
@json_option()
def bench_command(seconds: float, as_json: bool) -> None:
    """Measure this machine: what is durable in a second, how long a wake, a shim, a turn, a restore takes.

    It works in a throw-away folder beside the store, so on the disk that your sessions are on. Figures of a
    busy machine say little: run it when nothing else runs.
    """
    from outlast.cli.measuring import measure
    from outlast.store.url import database_path

    screen = Screen(os.environ, as_json=as_json)
    config = loaded_config(screen)
    beside = _nearest(database_path(config.store_url, os.environ).parent)
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=beside) as folder:
        # What this machine remembers of throw-away stores is thrown away with them.
        os.environ["OUTLAST_STATE_DIR"] = folder
        # What a store leaves in the state folder goes with the rest, in the measuring processes only.
        os.environ["OUTLAST_STATE_DIR"] = folder
        screen.note(f"measuring in {folder}, on {os.cpu_count()} processors")
        figures = run_async(screen, measure(Path(folder), seconds))
    if as_json:
        screen.json_line({figure.key: {"value": figure.value, "unit": figure.unit} for figure in figures})
        return
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        screen.out.line(f"{figure.name:<{width}}  {figure.shown:>12} {figure.unit}")


def _nearest(path: Path) -> Path:
    while not path.is_dir():
        path = path.parent
    return path
