"""The doctor looks at the store: its files, its database, its owners. It changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.cli.findings import Finding, Patient
from outlast.errors import IntegrityError, OutlastError, PlatformError, SchemaError, UsageError
from outlast.store.contract import CatalogQuery, Holder, Listed

if TYPE_CHECKING:
    from outlast.store.sqlite.reading import Reader

FEW_BYTES = 64 << 20
"""Below this much free space a turn's output may not fit."""
SOME_BYTES = 1 << 30
MANY = 100_000


def check_store(patient: Patient) -> Iterator[Finding]:
    """Place, permissions, space, database, ownership, in that order."""
    from outlast.store.sqlite.layout import refuse_impossible

    try:
        refuse_impossible(patient.layout)
    except UsageError as error:
        yield Finding("store", "fault", error.message, error.hint)
        return
    yield from _place(patient)
    yield from _permissions(patient)
    yield from _space(patient)
    if not patient.layout.exists():
        yield _absent(patient)
        return
    yield from _database(patient)
    yield from _busy(patient)
    yield from _owners(patient)
    yield from _nodes(patient)


def _absent(patient: Patient) -> Finding:
    from outlast.store.sqlite.engine import refuse_vanished

    try:
        refuse_vanished(patient.layout)
    except IntegrityError as error:
        return Finding("store", "fault", error.message, error.hint)
    return Finding(
        "store", "ok", f"there is no store at {patient.layout.database} yet; the first input makes it"
    )


def _place(patient: Patient) -> Iterator[Finding]:
    from outlast.store.sqlite.layout import refuse_network_filesystem

    folder = _nearest(patient.layout.database.parent)
    try:
        refuse_network_filesystem(folder)
    except PlatformError as error:
        yield Finding("filesystem", "fault", error.message, error.hint)
    else:
        yield Finding("filesystem", "ok", f"{folder} is on a local filesystem")


def _permissions(patient: Patient) -> Iterator[Finding]:
    layout = patient.layout
    for path in (layout.database.parent, layout.folder, layout.nodes, layout.blobs):
        if path.exists():
            yield from _private(path, 0o700, folder=True)
    if layout.database.exists():
        yield from _private(layout.database, 0o600, folder=False)
    folder = _nearest(layout.database.parent)
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(
            "permissions",
            "fault",
            f"{folder} cannot be written by this user",
            "OUTLAST_STATE_DIR names another folder for the state",
        )


def _private(path: Path, mode: int, *, folder: bool) -> Iterator[Finding]:
    found = path.stat()
    if found.st_uid != os.getuid():
        yield Finding(
            "permissions",
            "fault",
            f"{path} belongs to user {found.st_uid}",
            f"sudo chown -R {os.getuid()} '{path}'",
        )
    elif stat.S_IMODE(found.st_mode) & 0o077:
        open_to = (
            f"{path} can be read by other users (mode {stat.S_IMODE(found.st_mode):o}); sessions hold secrets"
        )
        yield Finding("permissions", "warning" if folder else "fault", open_to, f"chmod {mode:o} '{path}'")
    else:
        yield Finding("permissions", "ok", f"{path} is yours alone")


def _space(patient: Patient) -> Iterator[Finding]:
    folder = _nearest(patient.layout.database.parent)
    free = shutil.disk_usage(folder).free
    words = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < FEW_BYTES:
        yield Finding(
            "disk", "fault", f"only {words}", "free some space; nothing acknowledged is lost meanwhile"
        )
    elif free < SOME_BYTES:
        yield Finding("disk", "warning", f"only {words}", "free some space")
    else:
        yield Finding("disk", "ok", words)
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        yield Finding(
            "disk", "fault", f"{folder} is on a read-only filesystem", "remount it, or move the state"
        )


def _database(patient: Patient) -> Iterator[Finding]:
    import apsw

    from outlast.cli.check_blobs import check_blobs
    from outlast.cli.check_journals import check_journals
    from outlast.store.sqlite.connection import require_safe_sqlite
    from outlast.store.sqlite.reading import Reader

    version = apsw.sqlite_lib_version()
    try:
        require_safe_sqlite()
    except PlatformError as error:
        yield Finding("sqlite", "fault", error.message, error.hint)
    else:
        yield Finding("sqlite", "ok", f"SQLite {version}")
    try:
        reader = Reader(patient.layout)
    except OutlastError as error:
        yield _unopened(patient, error)
        return
    try:
        yield _opened(patient, reader)
        yield from check_journals(patient.layout, reader)
        yield from check_blobs(patient, reader)
    finally:
        reader.close()


def _opened(patient: Patient, reader: Reader) -> Finding:
    """A backup that was put back is for reading only, until a person accepts what is lost."""
    from outlast.store import refusals
    from outlast.store.sqlite.engine import remembered
    from outlast.store.url import epochs

    folder = epochs(patient.environ)
    try:
        behind = reader.is_behind(remembered(folder and folder / reader.store_id))
    except IntegrityError as error:
        return Finding("store", "fault", error.message, error.hint)
    if behind:
        message = refusals.behind(patient.layout.database).message
        return Finding("store", "fault", message, "outlast doctor --after-restore")
    return Finding("store", "ok", f"{patient.layout.database} opens, store {reader.store_id}")


def _unopened(patient: Patient, error: OutlastError) -> Finding:
    """A file in which nothing was stored yet is no fault: a first run is making it, or was cut off."""
    from outlast.store.sqlite.schema import is_current

    try:
        unmade = isinstance(error, SchemaError) and not is_current(patient.layout)
    except OutlastError:
        unmade = False
    if unmade:
        return Finding("store", "note", f"{patient.layout.database} is not made yet; the next input makes it")
    return Finding("store", "fault", error.message, error.hint)


def _busy(patient: Patient) -> Iterator[Finding]:
    """Whether a stopped process holds the turn to write: it blocks every other."""
    from outlast.store.sqlite.turnstile import lock_holder

    for path in (patient.layout.turn, patient.layout.database):
        holder = lock_holder(path)
        if holder is not None and holder.endswith(("state T)", "state t)")):
            pid = holder.split()[1]
            yield Finding(
                "transaction",
                "fault",
                f"{holder} is stopped inside a transaction and blocks every writer",
                f"kill -CONT {pid}",
            )
            return
    yield Finding("transaction", "ok", "no stopped process holds the store")


def _owners(patient: Patient) -> Iterator[Finding]:
    """Who owns what, and owners that do not move."""
    for row in _rows(patient):
        if row.owner is not None:
            yield _owner(row, row.owner)


def _owner(row: Listed, owner: Holder) -> Finding:
    from outlast.cli.owners import stopped

    session = row.entry.session
    found = stopped(session, owner)
    if found is not None:
        return Finding("leases", "warning", found.message, found.remedy, session)
    return Finding(
        "leases", "ok", f"{owner.label} owns session {session} (epoch {owner.epoch})", None, session
    )


def _nodes(patient: Patient) -> Iterator[Finding]:
    """Files of processes that have ended. They are swept by who finds them; many mean that nobody does."""
    from outlast.store.sqlite.incarnation import lock_owner

    stale = 0
    for path in patient.layout.nodes.iterdir() if patient.layout.nodes.is_dir() else ():
        try:
            stale += lock_owner(path) is None
        except FileNotFoundError:
            continue
    yield Finding(
        "nodes", "ok", f"{stale} files of ended processes" if stale else "no files of ended processes"
    )


def _rows(patient: Patient) -> list[Listed]:
    from outlast.store.sqlite.reading import list_sessions

    try:
        return list_sessions(patient.layout.database, CatalogQuery(limit=MANY))
    except OutlastError:  # the database's own finding tells of it
        return []


def _nearest(path: Path) -> Path:
    """The path, or what is there of it."""
    while not path.exists():
        path = path.parent
    return path
