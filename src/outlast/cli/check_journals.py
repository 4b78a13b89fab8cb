"""The doctor looks at what is stored: the database's pages, the journals, their blobs, their witness. It
changes nothing, and takes a few seconds at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from outlast.cli.findings import Finding
from outlast.clock import isoformat
from outlast.errors import IntegrityError, OutlastError
from outlast.store.contract import CatalogQuery, Entry, Row, Snapshot, Store, Tip

if TYPE_CHECKING:
    from outlast.journal.integrity import Verified
    from outlast.store.sqlite.blobs import Blobs
    from outlast.store.sqlite.layout import Layout
    from outlast.store.sqlite.reading import Reader

SECONDS = 3.0
"""For each of the two that read much: the pages, and the journals."""
MANY = 100_000


def check_journals(layout: Layout, reader: Reader) -> Iterator[Finding]:
    """Pages, ends, contents, witness, in that order."""
    pages = _pages(layout)
    yield pages
    try:
        sessions = [row.entry.session for row in reader.list(CatalogQuery(limit=MANY))]
        shorter = dict(_ends(reader, sessions))
        shorter |= {session: _emptied(session) for session in reader.emptied()}
        walk = _Walk(layout, reader, time.monotonic() + SECONDS)
        whole = [session for session in sessions if session not in shorter]
        for finding in (*shorter.values(), *walk.findings(whole)):
            yield _pages_first(finding) if pages.level == "fault" else finding
        yield from _witness(reader)
        yield from _list(reader)
        yield from _inbox(reader)
    except IntegrityError as error:
        yield Finding("store", "fault", error.message, "outlast repair --database")
        return
    if not shorter and not walk.faults and reader.witness_lost() != 0:
        yield Finding("journals", "ok", walk.summary())


def damaged_journals(layout: Layout, copy: Layout, told: Callable[[int, int], None]) -> list[str]:
    """What is wrong with the journals in a copy of the store's database; blobs are not looked at, and where
    not even the sessions can be read, nothing is found. `told` hears how many are done, and of how many."""
    from outlast.store.sqlite.reading import Reader

    damage = []
    with closing(Reader(copy)) as copied, closing(Reader(layout)) as living, suppress(IntegrityError):
        names = copied.names()
        for done, session in enumerate(names, 1):
            damage += asyncio.run(_damage(copied, living, layout, session))
            told(done, len(names))
    return damage


async def _damage(copied: Reader, living: Reader, layout: Layout, session: str) -> list[str]:
    from outlast.journal.integrity import Look, verify

    store = read_only(layout, copied)
    found = await verify(store, session, Look(bodies="outline"))
    if found.fault is not None:
        return [] if found.fault.kind == "body" else [found.fault.message]
    try:
        living.tip(session)  # the copy has no witness
    except IntegrityError as error:
        return [error.message]
    return []


def _pages_first(finding: Finding) -> Finding:
    """Nothing can be cut in a database whose pages are damaged; what is lost with them shows afterwards."""
    if finding.level != "fault" or finding.session is None:
        return finding
    from shlex import quote

    remedy = f"outlast repair --database; then outlast verify {quote(finding.session)}"
    return replace(finding, remedy=remedy)


def _pages(layout: Layout) -> Finding:
    """What SQLite thinks of its own file."""
    from outlast.store.sqlite.mending import require_sound

    deadline = time.monotonic() + SECONDS
    try:
        whole = require_sound(layout, lambda: time.monotonic() > deadline)
    except IntegrityError as error:
        return Finding("store", "fault", error.message, "outlast repair --database")
    except OutlastError as error:
        return Finding("store", "fault", error.message, error.hint)
    if not whole:
        words = "the database is large: not all of its pages were looked at"
        return Finding("store", "note", words, "outlast verify --all")
    return Finding("store", "ok", "the database's pages are sound")


def _ends(reader: Reader, sessions: list[str]) -> Iterator[tuple[str, Finding]]:
    """The journals that do not reach as far as their witness says."""
    for session in sessions:
        try:
            reader.tip(session)
        except IntegrityError as error:
            remedy = _repair(reader, session)
            yield session, Finding("journals", "fault", error.message, remedy, session)


def _emptied(session: str) -> Finding:
    from outlast.cli.verify import without_beginning

    words = f"of the journal of {session} nothing is left"
    return Finding("journals", "fault", words, without_beginning(session), session)


def _repair(reader: Reader, session: str) -> str:
    from shlex import quote

    from outlast.cli.verify import without_beginning

    if _begins(reader, session):
        return f"put a backup back, or outlast repair {quote(session)}"
    return without_beginning(session)


def _begins(reader: Reader, session: str) -> bool:
    from outlast.cli.check_agents import loops

    try:
        return any(loops(reader, session))
    except IntegrityError:
        return False


def _witness(reader: Reader) -> Iterator[Finding]:
    lost = reader.witness_lost()
    if lost is not None:
        since = (
            f" at {isoformat(lost)}; it was begun anew" if lost else ", and is begun anew by the next command"
        )
        yield Finding(
            "witness",
            "warning",
            f"the witness of the journals' ends was found emptied or removed{since}:"
            " a journal that had got shorter until then is not noticed",
            "if you did not move or restore the store yourself, compare it with a backup",
        )
    gone, torn = reader.unfit_slots()
    if gone:
        yield Finding(
            "witness",
            "fault",
            f"{_sessions(len(gone))} not in the database any more",
            "put a backup back; `outlast doctor --after-restore` goes on without them",
        )
    for session in torn:
        yield Finding(
            "witness",
            "warning",
            f"what the witness notes of session {session} cannot be read: were its journal shorter than it"
            " was, that would not be noticed",
            "its next record mends that; compare it with a backup if you doubt it",
            session,
        )


def _inbox(reader: Reader) -> Iterator[Finding]:
    """Whether what waits is what was sent."""
    from shlex import quote

    for session in reader.awaited():
        for entry in reader.pending(session):
            if entry.damaged:
                words = f"{entry.request_id} waits in session {session} and is damaged: it will not run"
                yield Finding("inbox", "fault", words, f"outlast resume {quote(session)}", session)


def _list(reader: Reader) -> Iterator[Finding]:
    """Whether the list shows each session as its journal has it."""
    from outlast.cli.verify import without_beginning

    for session in reader.unlisted():
        words = f"the list does not show session {session} as its journal has it"
        mends = "outlast repair --database" if _begins(reader, session) else without_beginning(session)
        yield Finding("list", "fault", words, mends, session)


def _sessions(count: int) -> str:
    return "1 session that had been stored is" if count == 1 else f"{count} sessions that had been stored are"


class _EnoughError(Exception):
    """The time is over."""


class _Walk:
    """Reads journals whole, newest activity first, for as long as there is time."""

    def __init__(self, layout: Layout, reader: Reader, deadline: float) -> None:
        self.faults = 0
        self._read = 0
        self._all = 0
        self._deadline = deadline
        self._store = read_only(layout, reader)

    def findings(self, sessions: list[str]) -> Iterator[Finding]:
        from outlast.journal.integrity import Look, verify

        self._all = len(sessions)
        for session in sessions:
            try:
                found = asyncio.run(verify(self._store, session, Look(told=self._told)))
            except _EnoughError:
                break
            self._read += 1
            if found.fault is not None:
                self.faults += 1
                yield self._fault(found)
            elif found.newer is not None:
                words = f"session {session} holds records of a newer outlast: it is open for reading only"
                yield Finding("journals", "note", words, "use the newer outlast", session)
        if self._read < self._all:
            rest = f"{self._all - self._read} of {self._all} journals were not read whole, for want of time"
            yield Finding("journals", "note", rest, "outlast verify --all")

    def _told(self, seq: int) -> None:
        if time.monotonic() > self._deadline:
            raise _EnoughError

    def _fault(self, found: Verified) -> Finding:
        from outlast.cli.verify import remedy_of

        assert found.fault is not None  # the caller has looked
        kind = "blobs" if found.fault.kind == "body" else "journals"
        return Finding(kind, "fault", found.fault.message, remedy_of(found), found.session)

    def summary(self) -> str:
        if self._read < self._all:
            return f"{self._read} journals are what was stored; all are as long as their witness says"
        return "every journal is what was stored, and as long as its witness says"


def read_only(layout: Layout, reader: Reader) -> Store:
    """All of a store that reading a journal needs; opening one for good could change something."""
    from outlast.store.sqlite.blobs import Blobs

    return cast(Store, _ReadOnly(reader, Blobs(layout.blobs)))


class _ReadOnly:
    """The part of a store that reading a journal and its inbox uses."""

    def __init__(self, reader: Reader, blobs: Blobs) -> None:
        self._reader = reader
        self._blobs = blobs

    async def read(self, name: str, after: int, limit: int = 1000) -> list[Row]:
        return self._reader.page(name, after, limit)

    async def tip(self, name: str) -> Tip:
        return self._reader.tip(name)

    async def get_blob(self, digest: str) -> bytes:
        return self._blobs.get(digest)

    async def snapshots(self, name: str) -> list[Snapshot]:
        return self._reader.snapshots(name)

    async def pending(self, name: str) -> list[Entry]:
        return self._reader.pending(name)
