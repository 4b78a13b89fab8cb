"""`outlast seal`: note under a key how a journal ends, so that a rewrite shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from outlast.cli.contact import open_client
from outlast.cli.options import json_option, session_argument
from outlast.cli.output import Screen, visible
from outlast.cli.running import run_async
from outlast.cli.sealing import (
    default_key_file,
    keep_seal,
    kept_seal,
    looked_at,
    make_key,
    read_key,
    write_anew,
)
from outlast.cli.stored import loaded_config
from outlast.cli.ticking import Ticking
from outlast.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.journal.integrity import Verified
    from outlast.journal.seal import Head
    from outlast.store.contract import Store


class SealLine(msgspec.Struct, frozen=True):
    """`seal --json`. A contract: docs/cli.md."""

    session: str
    seq: int
    chain: str
    key: str | None
    file: str


@click.command("seal")
@session_argument
@click.option(
    "--key", metavar="FILE", help="The key (default: one in the state folder, made when it is missing)."
)
@click.option("--export", metavar="FILE", help="Write the head to this new file, to keep elsewhere.")
@click.option("--anew", is_flag=True, help="Also where the seal before this one does not hold any more.")
@json_option()
def seal_command(session: str, key: str | None, export: str | None, anew: bool, as_json: bool) -> None:
    """Seal a session's journal as it is now, so that `outlast verify` finds any rewrite of it.

    The journal is verified first. A seal is made with a key that you hold: keep it where whoever could change
    the store cannot read it. An exported head does the same without a key, if it is kept elsewhere.
    """
    screen = Screen(os.environ, as_json=as_json)
    if export is not None and Path(export).exists():
        raise UsageError(f"{export} is there already", hint="name a new file")
    paths = [None if given is None else Path(given) for given in (key, export)]
    sealing = Sealing(screen, paths[0], paths[1], anew=anew)
    line = run_async(screen, _seal(loaded_config(screen), session, sealing))
    if as_json:
        screen.json_line(line)
    else:
        screen.out.line(visible(f"{line.session} is sealed at record {line.seq}: {line.file}"))


class Sealing:
    """How a seal is to be made."""

    def __init__(self, screen: Screen, key_file: Path | None, export: Path | None, *, anew: bool) -> None:
        self.screen = screen
        self.key_file = key_file
        self.export = export
        self.anew = anew

    def key(self) -> bytes:
        """Raises UsageError where a key was named that is not there."""
        if self.key_file is None:
            return make_key(default_key_file())
        key = read_key(self.key_file)
        if key is None:
            hint = f"(umask 077; head -c 32 /dev/urandom > '{self.key_file}') makes one"
            raise UsageError(f"there is no key {self.key_file}", hint=hint)
        return key


async def _seal(config: Config, name: str, sealing: Sealing) -> SealLine:
    from outlast.journal.seal import encode_head, sealed

    async with open_client(config) as client:
        store = client.store
        session = await store.find(name)
        key = sealing.key()
        found = await _verified(store, session, key, sealing)
        head = sealed(_head(store, found), key)
        file = keep_seal(store, head)
        if sealing.export is not None:
            write_anew(sealing.export, encode_head(head))
            file = sealing.export
    return SealLine(session, head.seq, head.chain, head.key, str(file))


async def _verified(store: Store, session: str, key: bytes, sealing: Sealing) -> Verified:
    """What is sealed is what was stored. Raises IntegrityError."""
    from outlast.journal.integrity import Look, verify

    kept = kept_seal(store, session)
    marks = frozenset() if kept is None else frozenset([kept.head.seq])
    row = await store.listed(session)
    with Ticking(sealing.screen, f"seal {session}", 0 if row is None else row.entry.seq) as ticking:
        found = await verify(store, session, Look(marks=marks, told=ticking.at))
    if found.fault is not None:
        raise IntegrityError(
            f"{found.fault.message}: nothing was sealed",
            seq=found.fault.seq,
            reason=found.fault.reason,
            hint="`outlast verify` says what to do",
            session_id=session,
        )
    if kept is not None and not sealing.anew and looked_at(kept, found, key).result == "broken":
        raise IntegrityError(
            f"the journal of {session} is not the one that was sealed at record {kept.head.seq}",
            seq=kept.head.seq,
            reason="its seal is broken",
            hint="where you know why, as after a repair, --anew seals it as it is",
            session_id=session,
        )
    return found


def _head(store: Store, found: Verified) -> Head:
    from outlast.clock import isoformat, now
    from outlast.journal.seal import Head

    if not found.state.lineage:
        raise UsageError(f"session {found.session} has not begun", hint="there is nothing to seal yet")
    return Head(
        store=store.store_id,
        session=found.session,
        lineage=found.state.lineage,
        seq=found.seq,
        chain=found.chain.hex(),
        at=isoformat(now()),
    )
