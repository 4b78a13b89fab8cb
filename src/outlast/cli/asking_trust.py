"""Asking once, on a terminal, whether a folder's file may count."""

from __future__ import annotations

from collections.abc import Mapping

import click

from outlast.cli.console import can_ask
from outlast.cli.output import Screen, visible
from outlast.config import Config, TrustState, load_config
from outlast.config.load import trust_of


def settled_config(environ: Mapping[str, str], workspace: str, screen: Screen) -> Config:
    """The configuration of a command that starts agents. A person at a terminal is asked once about a
    folder's file that is not trusted; the answer, also a no, is kept until the file changes."""
    config = load_config(environ, workspace)
    project = config.project
    undecided = (
        project is not None and project.left_out and project.trust in (TrustState.UNKNOWN, TrustState.CHANGED)
    )
    if project is None or not undecided or not can_ask():
        return config
    changed = " has changed and" if project.trust is TrustState.CHANGED else ""
    screen.note(visible(f"{project.file.path}{changed} wants to set {', '.join(project.left_out)}"))
    for line in project.programs:
        screen.note(visible(f"  {line}"))
    yes = click.confirm("what it names runs as you; trust it?", default=False, err=True)
    trust_of(environ).decide(project.file, trusted=yes)
    return load_config(environ, workspace)
