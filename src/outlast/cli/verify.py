"""`outlast verify`: is a session's journal what was stored?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import msgspec

from outlast.cli.contact import open_client
from outlast.cli.exits import Exit
from outlast.cli.options import json_option, not_empty
from outlast.cli.output import Screen, visible
from outlast.cli.running import run_async
from outlast.cli.sealing import SealShown, default_key_file, given_head, kept_seal, looked_at, read_key
from outlast.cli.stored import loaded_config
from outlast.cli.ticking import Ticking
from outlast.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.journal.integrity import Fault, Verified
    from outlast.store.contract import Mendable, Snapshot, Store


class FaultShown(msgspec.Struct, frozen=True):
    """The first thing that is wrong."""

    kind: str
    seq: int
    reason: str
    noted: int
    """How far the journal had been, by its witness or by what is there."""


class NewerShown(msgspec.Struct, frozen=True):
    """The first record that only a newer outlast reads."""

    seq: int
    type: str
    v: int


class Verdict(msgspec.Struct, frozen=True):
    """`verify --json`. A contract: docs/cli.md."""

    session: str
    ok: bool
    records: int
    """So many, from the first on, are as they were stored."""
    fault: FaultShown | None
    newer: NewerShown | None
    seals: list[SealShown]
    notes: list[str]
    inbox: list[str]
    """Inputs and commands that wait, and are not what was sent."""
    remedy: str | None


@click.command("verify")
@click.argument("session", metavar="[ID]", required=False, callback=not_empty)
@click.option("--all", "every", is_flag=True, help="Every session of the store, one after the other.")
@click.option(
    "--head", metavar="FILE", help="Hold it also against a head that `outlast seal --export` wrote."
)
@click.option("--key", metavar="FILE", help="The key that sealed it (default: the one in the state folder).")
@json_option("Print a line of JSON for each session; its field names are stable.")
def verify_command(session: str | None, every: bool, head: str | None, key: str | None, as_json: bool) -> int:
    """Check that a session's journal is what was stored: every byte, every rule, its length, its seal.

    Prints the first fault with the record's number, how far everything is good, and what to do. Changes
    nothing. Exits 5 on a fault.
    """
    if every == (session is not None):
        raise UsageError("name one session, or all of them by --all", hint="`outlast ls` lists them")
    if every and head is not None:
        raise UsageError("a head is of one session", hint="name the session")
    screen = Screen(os.environ, as_json=as_json)
    asked = Asked(screen, None if head is None else Path(head), Path(key) if key else default_key_file())
    if key is not None and read_key(asked.key_file) is None:
        raise UsageError(f"there is no key {key}")
    return run_async(screen, _verify(loaded_config(screen), session, asked))


class Asked:
    """What a verification is to look at beside the journal."""

    def __init__(self, screen: Screen, head: Path | None, key_file: Path) -> None:
        self.screen = screen
        self.head = head
        self.key_file = key_file


async def _verify(config: Config, name: str | None, asked: Asked) -> int:
    async with open_client(config) as client:
        store = client.store
        sessions = [await store.find(name)] if name is not None else await all_sessions(store)
        good = True
        for session in sessions:
            verdict = await _verdict(store, session, asked)
            good = good and verdict.ok
            _tell(asked.screen, verdict)
    return Exit.OK if good else Exit.REJECTED


async def all_sessions(store: Store) -> list[str]:
    """Newest activity first."""
    from outlast.store.contract import CatalogQuery

    return [row.entry.session for row in await store.list(CatalogQuery(limit=1_000_000))]


async def _verdict(store: Store, session: str, asked: Asked) -> Verdict:
    from outlast.journal.integrity import Look
    from outlast.restore.repair import look

    kept = [given_head(asked.head, session)] if asked.head is not None else []
    sealed = kept_seal(store, session)
    if sealed is not None:
        kept.append(sealed)
    snapshots, spoilt = await _snapshots(store, session)
    marks = frozenset([*(each.head.seq for each in kept), *(each.seq for each in snapshots)])
    row = await store.listed(session)
    inbox = [entry.request_id for entry in await store.pending(session) if entry.damaged]
    with Ticking(asked.screen, f"verify {session}", 0 if row is None else row.entry.seq) as ticking:
        found = await look(store, session, Look(marks=marks, told=ticking.at))
    key = read_key(asked.key_file)
    seals = [looked_at(each, found, key) for each in kept]
    broken = [seal for seal in seals if seal.result == "broken"]
    return Verdict(
        session=session,
        ok=found.fault is None and not broken and not inbox,
        records=found.seq,
        fault=None if found.fault is None else _fault(found.fault),
        newer=None if found.newer is None else NewerShown(found.newer.seq, found.newer.type, found.newer.v),
        seals=seals,
        notes=[*spoilt, *_notes(found, snapshots)],
        inbox=inbox,
        remedy=await _remedy(store, found),
    )


async def _snapshots(store: Store, session: str) -> tuple[list[Snapshot], list[str]]:
    """Those that can be read, and a note where they cannot."""
    try:
        return await store.snapshots(session), []
    except IntegrityError as error:
        return [], [f"its snapshots are not used: {error.message}"]


def _fault(fault: Fault) -> FaultShown:
    return FaultShown(fault.kind, fault.seq, fault.reason, fault.noted)


def _notes(found: Verified, snapshots: list[Snapshot]) -> list[str]:
    """What is worth knowing and harms nothing: a snapshot is a cache."""
    from outlast.state.snapshot import UnfitSnapshotError, state_of

    notes = []
    for snapshot in snapshots:
        try:
            state_of(snapshot)
        except UnfitSnapshotError as error:
            notes.append(f"the snapshot at record {snapshot.seq} is not used: {error}")
            continue
        if snapshot.seq <= found.seq and found.chains.get(snapshot.seq) != snapshot.chain:
            notes.append(f"the snapshot at record {snapshot.seq} is not used: it is of another journal")
    if found.newer is not None:
        notes.append(f"{found.newer.message}: from record {found.newer.seq} on only the chain was checked")
    return notes


def remedy_of(found: Verified) -> str | None:
    """The command, or the step, that mends it. What a repair refuses is not named."""
    from shlex import quote

    if found.fault is None:
        return None
    if found.newer is not None:
        return "use the newer outlast: it wrote what comes before the fault"
    name = quote(found.session)
    if found.fault.kind == "body":
        return (
            f"put the blob's file back from a backup; outlast tail {name} --after {found.fault.seq} reads on"
        )
    if found.state.root is None:
        return f"{without_beginning(found.session)}: nothing before the fault makes a session"
    return f"outlast repair {name}"


def without_beginning(session: str) -> str:
    """What helps where not even a journal's beginning is left."""
    from shlex import quote

    return f"put a backup back, or outlast repair {quote(session)} --anew"


async def _remedy(store: Store, found: Verified) -> str | None:
    """As `remedy_of`, where the database's pages are sound: they are mended first."""
    remedy = remedy_of(found)
    if found.fault is not None and found.fault.kind in ("record", "shorter"):
        try:
            await cast("Mendable", store).mending.require_sound()
        except IntegrityError:
            return "outlast repair --database"
    return remedy


def _tell(screen: Screen, verdict: Verdict) -> None:
    if screen.as_json:
        screen.json_line(verdict)
        return
    for line in verdict_lines(verdict):
        screen.out.line(visible(line))


def verdict_lines(verdict: Verdict) -> list[str]:
    """For people."""
    name, fault = verdict.session, verdict.fault
    if fault is None:
        lines = [f"{name}: {verdict.records} records, all as they were stored"]
    else:
        lines = [f"{name}: FAULT at record {fault.seq}: {fault.reason}"]
        good = (
            f"records 1 to {verdict.records} are good" if verdict.records else "no record before it is good"
        )
        lines.append(f"  {good}; to mend it: {verdict.remedy}")
    for seal in verdict.seals:
        lines.append(f"  sealed at record {seal.seq}, {seal.at}: {_SEALED[seal.result]} ({seal.source})")
    for request in verdict.inbox:
        lines.append(f"  FAULT: {request} waits and is not what was sent: it will not be carried out")
    return lines + [f"  note: {note}" for note in verdict.notes]


_SEALED = {
    "holds": "the seal holds",
    "broken": "BROKEN: it is not the journal that was sealed",
    "no_key": "not checked, the key that made it is not here",
    "not_reached": "not checked, the fault comes before it",
}
