"""`outlast doctor`: is everything as it must be?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import msgspec

from outlast.cli.exits import Exit
from outlast.cli.findings import Finding, Level, Patient
from outlast.cli.options import json_option
from outlast.cli.output import Screen, Styled, visible
from outlast.cli.running import heard, run_async
from outlast.config import Config, load_config
from outlast.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKS: dict[Level, str] = {"ok": "ok", "note": "note", "warning": "WARN", "fault": "FAULT"}


class Diagnosis(msgspec.Struct, frozen=True):
    """`doctor --json`."""

    ok: bool
    store: str
    findings: list[Finding]


@click.command("doctor")
@click.option(
    "--after-restore",
    is_flag=True,
    help="First accept that the store was restored from a backup: what it has lost is lost.",
)
@json_option()
def doctor_command(after_restore: bool, as_json: bool) -> int:
    """Check store, leases, shims, disk, permissions and agents; exits 1 on a fault.

    It looks and, but for --after-restore, changes nothing. Each finding that needs something done names the
    command for it. With --after-restore it also holds, and names, the inputs that wait in the store as it is
    now, because one may have been carried out since: each waits for `outlast retry` or `outlast skip`.
    It accepts nothing, and exits 4, while an agent lives that the folder of the store does not hold.
    """
    screen = Screen(os.environ, as_json=as_json)
    config, broken = _config()
    restored = _accepted(screen, config) if after_restore else []
    with heard(screen):
        findings = [*broken, *restored, *_examine(config)]
    faults = any(finding.level == "fault" for finding in findings)
    if as_json:
        screen.json_line(Diagnosis(not faults, config.store_url, findings))
    else:
        for finding in findings:
            _print(screen, finding)
    return Exit.FAILED if faults else Exit.OK


def _accepted(screen: Screen, config: Config) -> list[Finding]:
    """What is held in a store that is accepted as it is. Raises StoreBusyError."""
    from outlast.cli.check_restored import held_back, refuse_while_agents_live
    from outlast.store.url import accept_restored

    refuse_while_agents_live(config)
    held = run_async(screen, held_back(config))
    accept_restored(config.store_url, held.admissions)
    return held.findings


def _config() -> tuple[Config, list[Finding]]:
    """The configuration; where it is broken that is a finding, and the rest is looked at without files."""
    try:
        return load_config(os.environ, "."), []
    except ConfigError as error:
        from outlast.store.url import default_url

        return Config(default_url(os.environ), {}, os.environ), [
            Finding("configuration", "fault", error.message, error.hint)
        ]


def _examine(config: Config) -> Iterator[Finding]:
    from outlast.cli.check_agents import check_agents, check_programs
    from outlast.cli.check_machine import check_machine
    from outlast.cli.check_store import check_store
    from outlast.store.sqlite.layout import Layout
    from outlast.store.url import database_path, state_dir

    wrong = None
    try:
        database = database_path(config.store_url, os.environ)
    except UsageError as error:
        wrong = Finding("store", "fault", error.message, error.hint)
        database = state_dir(os.environ) / "outlast.db"
    patient = Patient(config, Layout.of(database), os.environ)
    yield from check_machine(patient)
    if wrong is None:
        yield from check_store(patient)
        yield from check_agents(patient)
    else:
        yield wrong
        yield from check_programs(patient)


def _print(screen: Screen, finding: Finding) -> None:
    mark = f"{_MARKS[finding.level]:<5}"
    text = visible(f"{finding.check:<13} {finding.message}")
    if finding.level == "ok":
        screen.out.line(screen.out.dim(f"{mark} {text}"))
        return
    screen.out.line(Styled(f"{screen.out.bold(mark)} {text}"))
    if finding.remedy:
        screen.out.line(visible(f"{'':<19} -> {finding.remedy}"))
