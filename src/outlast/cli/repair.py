"""`outlast repair`: end a damaged journal before its fault, and keep what goes in quarantine."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, cast

import click
import msgspec

from outlast.cli.contact import open_client
from outlast.cli.exits import Exit
from outlast.cli.options import json_option, not_empty
from outlast.cli.output import Screen, visible
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.errors import UsageError

if TYPE_CHECKING:
    from outlast.agents.contract import Agent
    from outlast.config import Config
    from outlast.restore.anew import Anew
    from outlast.restore.repair import Repaired
    from outlast.store.contract import Mendable


class RepairLine(msgspec.Struct, frozen=True):
    """`repair --json`. A contract: docs/cli.md."""

    session: str
    repaired: bool
    """False: there was nothing to mend."""
    kept: int | None = None
    lost_to: int | None = None
    reason: str | None = None
    quarantine: str | None = None
    parked: list[str] = []
    lost: list[str] = []


class DatabaseLine(msgspec.Struct, frozen=True):
    """`repair --database --json`. A contract: docs/cli.md."""

    database: str
    repaired: bool
    """False: it is sound."""
    quarantine: str | None = None
    rows: int = 0
    lost: dict[str, int] = {}
    """Rows that could not be read, by table; at least so many."""
    known_again: int = 0
    """Requests that the journals tell of, and that would have been taken for new ones."""
    unlisted: list[str] = []
    """Sessions of whose journal not even the beginning is left: each has to be begun anew."""


@click.command("repair")
@click.argument("session", metavar="[ID]", required=False, callback=not_empty)
@click.option("--database", is_flag=True, help="Make a sound database of what can be read of a damaged one.")
@click.option(
    "--anew",
    is_flag=True,
    help="Also where the journal has lost its beginning: the session begins again, without its history.",
)
@click.option(
    "-a", "--agent", metavar="NAME", help="With --anew: its agent, where that is not known or not here."
)
@json_option()
def repair_command(session: str | None, database: bool, anew: bool, agent: str | None, as_json: bool) -> int:
    """End a damaged journal before its first fault; what goes is kept in quarantine, as it was stored.

    `outlast verify` shows the fault first. Nothing that the cut leaves undecided runs again by itself: turns
    and inputs of which it is not known any more whether they were carried out are parked, for `outlast retry`
    or `outlast skip`. The session's agent is ended. Exits 4 while somebody owns the session.

    A journal that has lost its beginning is left as it is, until a backup comes back. With --anew it is given
    up: all of it goes into quarantine, and the session begins again with its name, its folder, its agent and
    what waits for it. The agent begins a session of its own.

    With --database it is the store's own file that is mended: first the damaged one is kept in quarantine.
    Journals that have lost records by the damage say so to `outlast verify --all` afterwards.
    """
    if database == (session is not None):
        raise UsageError("name a session, or give --database", hint="`outlast doctor` says which")
    if (database and anew) or (agent is not None and not anew):
        raise UsageError("--anew is for a session, and --agent is for --anew")
    screen = Screen(os.environ, as_json=as_json)
    if session is None:
        return _tell_database(screen, _repair_database(screen, loaded_config(screen)))
    config = loaded_config(screen, session)
    line = run_async(screen, _repair(config, session, _anew(config, agent) if anew else None))
    if as_json:
        screen.json_line(line)
        return Exit.OK
    for text in _lines(line):
        screen.out.line(visible(text))
    return Exit.OK


def _repair_database(screen: Screen, config: Config) -> DatabaseLine:
    from outlast.clock import now
    from outlast.errors import SessionNotFoundError
    from outlast.store.sqlite.layout import Layout
    from outlast.store.sqlite.rebuild import rebuild
    from outlast.store.url import database_path

    layout = Layout.of(database_path(config.store_url, os.environ))
    if not layout.exists():
        raise SessionNotFoundError(f"there is no store at {layout.database}")
    done = rebuild(layout, now())
    unlisted = run_async(screen, _relist(config))
    if done is None:
        return DatabaseLine(str(layout.database), repaired=False, unlisted=unlisted)
    lost = dict(done.lost) | ({"nameless sessions": done.nameless} if done.nameless else {})
    return DatabaseLine(
        database=str(layout.database),
        repaired=True,
        quarantine=str(done.quarantine),
        rows=done.rows,
        lost=lost,
        known_again=done.known_again,
        unlisted=unlisted,
    )


async def _relist(config: Config) -> list[str]:
    from outlast.restore.repair import relist

    async with open_client(config) as client:
        return await relist(cast("Mendable", client.store))


def _tell_database(screen: Screen, line: DatabaseLine) -> int:
    if screen.as_json:
        screen.json_line(line)
        return Exit.OK
    if not line.repaired:
        screen.out.line(visible(f"{line.database} is sound"))
    else:
        screen.out.line(
            visible(f"{line.database}: {line.rows} rows are in it; the damaged one: {line.quarantine}")
        )
        for what, count in line.lost.items():
            screen.out.line(visible(f"  at least {count} of {what} could not be read"))
        if "inbox" in line.lost:
            screen.out.line(
                "  inputs that waited are lost, and of which sessions is not known: what was sent and never"
                " began has to be sent again"
            )
        if line.known_again:
            screen.out.line(
                f"  {line.known_again} keys of what was taken before are known again, from the journals"
            )
        screen.out.line("  `outlast verify --all` says whose journals have lost records")
    for session in line.unlisted:
        again = f"`outlast repair {quote(session)} --anew` begins it again without its history"
        screen.out.line(
            visible(f"  of {session} not even the journal's beginning is left: put a backup back, or {again}")
        )
    return Exit.OK


def _anew(config: Config, agent: str | None) -> Anew:
    """With the agents that are configured; where nothing else tells them, with `agent` and this folder."""
    from outlast.agents.registry import usable
    from outlast.cli.options import real_workspace
    from outlast.errors import AgentNotFoundError
    from outlast.restore.anew import Anew
    from outlast.restore.opening import Opening

    known = config.agents()
    named = ", ".join(sorted(known)) or "none"

    def resolve(name: str) -> Agent:
        if name not in known:
            hint = f"there are: {named}; --agent names the one that it goes on with"
            raise AgentNotFoundError(f"there is no agent {name!r}", hint=hint)
        return usable(known[name])

    def otherwise() -> Opening:
        if agent is None:
            raise UsageError(
                "nothing tells which agent the session had", hint=f"name it with --agent; there are: {named}"
            )
        return Opening(agent=agent, workspace=real_workspace(None), title="begun again by a repair")

    return Anew(resolve, otherwise, agent)


async def _repair(config: Config, name: str, anew: Anew | None) -> RepairLine:
    from outlast.restore.repair import repair

    async with open_client(config) as client:
        store = cast("Mendable", client.store)  # of the command line: a database
        session = await store.find(name)
        done = await repair(store, session, anew)
        return RepairLine(session, repaired=False) if done is None else _line(store, done)


def _line(store: Mendable, done: Repaired) -> RepairLine:
    return RepairLine(
        session=done.session,
        repaired=True,
        kept=done.kept,
        lost_to=done.lost_to,
        reason=done.fault.reason,
        quarantine=str(store.folder / "quarantine" / done.quarantine),
        parked=list(done.parked),
        lost=list(done.lost),
    )


def _lines(line: RepairLine) -> list[str]:
    if not line.repaired or line.kept is None or line.lost_to is None:
        return [f"{line.session}: nothing to mend"]
    gone = "nothing was taken out"
    if line.lost_to > line.kept:
        gone = f"records {line.kept + 1} to {line.lost_to} are gone, what could be read of them is kept"
    stay = f"records 1 to {line.kept} stay" if line.kept else "it begins anew, without its history"
    lines = [f"{line.session}: {stay}; {gone}: {line.quarantine}", f"  {line.reason}"]
    name = quote(line.session)
    for turn in line.parked:
        which = f"{name} {quote(turn)}"
        lines.append(
            f"  {turn}: not known whether it was carried out: outlast retry {which}, or skip {which}"
        )
    if line.lost:
        lines.append(f"  {len(line.lost)} requests whose records are gone will not be carried out again")
    return lines
