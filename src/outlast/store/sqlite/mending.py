"""Cutting a journal inside a transaction, and whether the database can bear it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import apsw

from outlast.errors import IntegrityError
from outlast.store.contract import Beyond, CatalogEntry, Cut, Lease, Tip
from outlast.store.sqlite import quarantine
from outlast.store.sqlite.connection import connect_reader, translated
from outlast.store.sqlite.layout import Layout
from outlast.store.sqlite.operations import AppendRows, Operation
from outlast.store.sqlite.packing import packed_id
from outlast.store.sqlite.reading import Reader
from outlast.store.sqlite.transaction import SELECT_CHAIN, Transaction

DELETE_RECORDS = "DELETE FROM record WHERE s = ? AND seq > ?"
DELETE_SNAPSHOTS = "DELETE FROM snapshot WHERE s = ? AND seq > ?"
RESETTLE = "UPDATE settled SET seq = ? WHERE s = ? AND request = ?"


def require_sound(layout: Layout, enough: Callable[[], bool] = lambda: False) -> bool:
    """Raises IntegrityError where SQLite finds its own pages damaged. Reads the whole database, until it is
    `enough`: False then. Blocking."""
    try:
        connection = connect_reader(layout)
        try:
            connection.set_progress_handler(enough, 10_000)
            found = str(connection.execute("PRAGMA quick_check(1)").get)
        finally:
            connection.close()
    except apsw.InterruptError:
        return False
    except apsw.CorruptError as error:
        found = str(error)
    except apsw.Error as error:
        raise translated(error, layout.database) from error
    if found != "ok":
        raise damaged(layout, found)
    return True


def damaged(layout: Layout, found: str) -> IntegrityError:
    """The error for a database whose own pages are damaged."""
    lines = [line for line in found.splitlines() if not line.startswith("***")]  # a heading says nothing
    first = lines[0] if lines else "unreadable"
    return IntegrityError(
        f"the database {layout.database} is damaged: {first}",
        seq=0,
        reason="its own pages are damaged",
        hint="`outlast repair --database` makes a sound one of all that can be read",
    )


@dataclass(frozen=True, slots=True)
class CutJournal:
    """Take the end of a journal out and put other records in its place. Result: the new tip's seq."""

    point: ClassVar[str] = "cut"
    cut: Cut
    before: bytes
    """The chain of the last record that stays."""

    @property
    def lease(self) -> Lease:
        return self.cut.append.lease

    def run(self, txn: Transaction) -> int:
        cut = self.cut
        s = txn.session(cut.name)
        txn.require(s, self.lease)
        assert s is not None  # a lease in force has a session
        txn.flush()
        found = txn.cursor.execute(SELECT_CHAIN, (s, cut.keep)).fetchone()
        if (found[0] if found else b"") != self.before:
            raise IntegrityError(
                f"record {cut.keep} of the journal of {cut.name} is not the one that was verified",
                seq=cut.keep,
                reason="it changed meanwhile",
                hint="`outlast verify` looks again",
                session_id=cut.name,
            )
        append = AppendRows(cut.append)
        settled, last = append.checked(txn, s, Tip(cut.keep, 0, self.before))
        txn.wrote = True
        txn.cursor.execute(DELETE_RECORDS, (s, cut.keep))
        txn.cursor.execute(DELETE_SNAPSHOTS, (s, cut.keep))
        # The catalog takes no row that is older than its own.
        txn.cursor.execute("UPDATE catalog SET seq = 0 WHERE s = ?", (s,))
        txn.cache.tips.pop(s, None)
        txn.cache.earlier.pop(s, None)
        tip = append.write(txn, s, settled, last)
        txn.cursor.executemany(RESETTLE, [(item.seq, s, packed_id(item.request_id)) for item in cut.lost])
        return tip


@dataclass(frozen=True, slots=True)
class Relist:
    """Put a session's row into the catalog where there is none, or another than its journal's end makes. Its
    owner's own appends put the right one, so that one that is late is dropped."""

    point: ClassVar[str] = "relist"
    entry: CatalogEntry

    def run(self, txn: Transaction) -> None:
        txn.flush()
        entry = self.entry
        s = txn.session(entry.session)
        if s is None:
            return
        listed = txn.one("SELECT seq FROM catalog WHERE s = ?", (s,))
        if listed is None or (listed != entry.seq == txn.tip(s).seq):
            txn.wrote = True
            txn.cursor.execute("DELETE FROM catalog WHERE s = ?", (s,))  # it takes no row older than its own
            txn.cache.listed.pop(s, None)
            txn.catalog[s] = entry
            txn.effects.names.add(entry.session)


class Mending:
    """See `outlast.store.contract.Mending`."""

    def __init__(
        self,
        layout: Layout,
        store: str,
        reader: Reader,
        submit: Callable[[Operation], asyncio.Future[object]],
    ) -> None:
        self._layout = layout
        self._store = store
        self._reader = reader
        self._submit = submit

    async def require_sound(self) -> None:
        await asyncio.to_thread(require_sound, self._layout)

    async def beyond(self, name: str, seq: int) -> Beyond:
        return self._reader.beyond(name, seq)

    async def unlisted(self) -> list[str]:
        return self._reader.unlisted()

    async def emptied(self) -> list[str]:
        return self._reader.emptied()

    async def relist(self, entry: CatalogEntry) -> None:
        await self._submit(Relist(entry))

    def quarantine_name(self, lease: Lease) -> str:
        return quarantine.folder_name(lease.epoch)

    async def quarantine(self, cut: Cut) -> None:
        noted = self._reader.noted(cut.name)
        await asyncio.to_thread(quarantine.keep, self._layout, self._store, cut, noted)

    async def cut(self, cut: Cut) -> None:
        before = self._reader.page(cut.name, cut.keep - 1, 1)[0].chain if cut.keep else b""
        try:
            await self._submit(CutJournal(cut, before))
        except IntegrityError as error:
            if isinstance(error.__cause__, apsw.Error):
                raise damaged(self._layout, str(error.__cause__)) from error
            raise
