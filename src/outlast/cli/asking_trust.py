"""Asking once, on a terminal, whether a folder's file may count."""

from __future__ import annotations

import os

import click

from outlast.cli.console import can_ask
from outlast.cli.output import Screen, visible
from outlast.cli.stored import session_config, tell_notices
from outlast.config import Config, TrustState, load_config
from outlast.config.load import Project, trust_of


def settled_config(
    screen: Screen, workspace: str, session: str | None = None, *, may_begin: bool = False
) -> Config:
    """The configuration of a command that starts agents: that of the session's own folder, else that of
    `workspace` (`may_begin`: the session may be one that is to begin). A person at a terminal is asked once
    about a file that is not trusted; the answer, also a no, is kept until the file changes. Notices are told.
    Raises ConfigError, UsageError."""
    config = _load(workspace, session, may_begin)
    project = config.project
    if project is not None and _undecided(project) and can_ask():
        _ask(project, screen)
        config = _load(workspace, session, may_begin)
    tell_notices(config, screen)
    return config


def _load(workspace: str, session: str | None, may_begin: bool) -> Config:
    config = load_config(os.environ, workspace)
    return config if session is None else session_config(config, session, may_begin=may_begin)


def _undecided(project: Project) -> bool:
    return bool(project.left_out) and project.trust in (TrustState.UNKNOWN, TrustState.CHANGED)


def _ask(project: Project, screen: Screen) -> None:
    changed = " has changed and" if project.trust is TrustState.CHANGED else ""
    screen.note(visible(f"{project.file.path}{changed} wants to set {', '.join(project.left_out)}"))
    for line in project.programs:
        screen.note(visible(f"  {line}"))
    yes = click.confirm("what it names runs as you; trust it?", default=False, err=True)
    trust_of(os.environ).decide(project.file, trusted=yes)
