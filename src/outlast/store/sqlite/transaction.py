"""One group's transaction: what its operations see and share, and what is written at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import apsw

from outlast.faults import point
from outlast.store import refusals
from outlast.store.contract import CatalogEntry, Lease, Row, Tip
from outlast.store.sqlite.packing import FOUND, Earlier, Value, packed, packed_id
from outlast.store.sqlite.rows import CATALOG_COLUMNS, RECORD_COLUMNS, catalog_values, only_moved
from outlast.store.sqlite.witness import Witness

EMPTY = Tip(0, 0, b"")

INSERT_RECORD = f"INSERT INTO record (s, {RECORD_COLUMNS}) VALUES (?{', ?' * 13})"
_INSERT_BLOB = "INSERT OR IGNORE INTO blob (s, digest) VALUES (?, ?)"
_DELETE_BLOB = "DELETE FROM blob WHERE s = ? AND digest = ?"
_SETTLE = "INSERT INTO settled (s, request, digest, seq) VALUES (?, ?, ?, ?)"
_UNLIST = "DELETE FROM inbox WHERE n = ?"
_PUT_CATALOG = (
    f"INSERT INTO catalog (s, {CATALOG_COLUMNS}) VALUES (?{', ?' * 11}) ON CONFLICT (s) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in CATALOG_COLUMNS.split(", "))
    + " WHERE excluded.seq >= catalog.seq"
)
# Most appends change no more of a long row than this.
_MOVE_CATALOG = "UPDATE catalog SET seq = ?, last_activity_at = ? WHERE s = ? AND seq <= ?"
# Public: a test asks SQLite how it finds the rows of each.
SELECT_WATERMARK = (
    "SELECT (SELECT max(rowid) FROM record), (SELECT seq FROM sqlite_sequence WHERE name = 'inbox'),"
    " (SELECT max(epoch) FROM store)"
)
SELECT_NEXT_SESSION = (
    "SELECT 1 + max((SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'session'),"
    " (SELECT coalesce(max(s), 0) FROM session))"
)
SELECT_SESSION = "SELECT s FROM session WHERE name = ?"
SELECT_TIP = "SELECT seq, epoch, chain FROM record WHERE s = ? ORDER BY seq DESC LIMIT 1"
SELECT_CHAIN = "SELECT chain FROM record WHERE s = ? AND seq = ?"
# What a later record of the journal refers to.
SELECT_EARLIER = f"SELECT {FOUND} FROM record WHERE s = ? AND seq = ?"
SELECT_LEASE = "SELECT epoch, node FROM lease WHERE s = ?"
SELECT_ENTRY = "SELECT n, digest FROM inbox WHERE s = ? AND request = ?"
SELECT_SETTLED = "SELECT digest, seq FROM settled WHERE s = ? AND request = ?"

_CACHE_LIMIT = 50_000


class Watermark(NamedTuple):
    """How far the store was: what came since is found without looking at every session."""

    record: int
    inbox: int
    epoch: int


def watermark_of(row: tuple[int | None, ...] | None) -> Watermark:
    """From a row of SELECT_WATERMARK."""
    return Watermark._make(value or 0 for value in row or (0, 0, 0))


def tips(connection: apsw.Connection) -> Iterator[tuple[int, Tip]]:
    """The ends of all journals, by the number of their session; but for those that cannot be read."""
    try:
        sessions = connection.execute("SELECT s FROM session").fetchall()
    except apsw.CorruptError:
        return
    for (s,) in sessions:
        try:
            row = connection.execute(SELECT_TIP, (s,)).fetchone()
        except (apsw.CorruptError, UnicodeDecodeError):
            continue
        match row:
            case (int() as seq, int() as epoch, bytes() as chain) if seq > 0 and epoch >= 0:
                yield cast(int, s), Tip(seq, epoch, chain)


@dataclass(slots=True)
class Cache:
    """What this process knows of the database. It holds while no other connection has committed, which
    SQLite's data version tells."""

    version: int = -1
    sessions: dict[str, int] = field(default_factory=dict)
    tips: dict[int, Tip] = field(default_factory=dict)
    leases: dict[int, tuple[int, str | None]] = field(default_factory=dict)
    listed: dict[int, CatalogEntry] = field(default_factory=dict)
    """What was put into the catalog; true but for `seq` and `last_activity_at`."""
    watermark: Watermark | None = None
    earlier: dict[int, Earlier] = field(default_factory=dict)
    """By session; true for as long as its lease is in force, whoever else commits."""

    def clear(self) -> None:
        self.earlier.clear()
        self._forget()

    def _forget(self) -> None:
        self.watermark = None
        self.sessions.clear()
        self.tips.clear()
        self.leases.clear()
        self.listed.clear()

    def refresh(self, version: int) -> None:
        size = len(self.sessions) + len(self.tips) + len(self.leases)
        if version != self.version or size > _CACHE_LIMIT:
            self._forget()
            self.version = version
        if len(self.earlier) > _CACHE_LIMIT:
            self.earlier.clear()


@dataclass(slots=True)
class Effects:
    """What a committed group means outside the database."""

    names: set[str] = field(default_factory=set)
    """Sessions whose journal, inbox or lease changed."""
    tips: dict[int, Tip] = field(default_factory=dict)
    epoch: int = 0
    """The highest epoch that was granted, 0 if none."""
    dead: list[str] = field(default_factory=list)
    """Incarnations that were found dead: their files go."""
    points: list[str] = field(default_factory=list)
    before: Watermark | None = None
    after: Watermark | None = None


@dataclass(slots=True)
class Transaction:
    """Appends are collected and written together by `flush`; every other operation flushes first, so
    that operations see what came before them in the group.

    The cache may run ahead of the database inside the transaction: the engine clears it if the commit
    does not come."""

    cursor: apsw.Cursor
    cache: Cache
    node: str
    """This process's incarnation."""
    nodes: Path
    """The folder of the incarnations' locks."""
    witness: Witness
    effects: Effects = field(default_factory=Effects)
    wrote: bool = False
    rows: list[tuple[Value, ...]] = field(default_factory=list)
    settled: dict[tuple[int, str], tuple[bytes, int, int]] = field(default_factory=dict)
    """(session, request) -> digest, seq of the settling record, place in the inbox."""
    catalog: dict[int, CatalogEntry] = field(default_factory=dict)
    blobs: dict[tuple[int, str], bool] = field(default_factory=dict)
    """(session, digest) -> whether the session refers to it from now on."""

    def session(self, name: str) -> int | None:
        s = self.cache.sessions.get(name)
        if s is None:
            s = self.one(SELECT_SESSION, (name,))
            if s is not None:
                self.cache.sessions[name] = s
        return s

    def make_session(self, name: str) -> int:
        s = self.session(name)
        if s is None:
            self.wrote = True
            s = self.one(SELECT_NEXT_SESSION)
            assert s is not None  # an aggregate has its one row
            s = self.witness.next_free(s)
            self.cursor.execute("INSERT INTO session (s, name) VALUES (?, ?)", (s, name))
            self.cache.sessions[name] = s
        return s

    def tip(self, s: int | None) -> Tip:
        if s is None:
            return EMPTY
        tip = self.cache.tips.get(s)
        if tip is None:
            found = self.cursor.execute(SELECT_TIP, (s,)).fetchone()
            tip = self.cache.tips[s] = Tip._make(found) if found else EMPTY
        return tip

    def lease(self, s: int) -> tuple[int, str | None]:
        """Epoch and node of the session's lease; (0, None) where there never was one."""
        lease = self.cache.leases.get(s)
        if lease is None:
            found = self.cursor.execute(SELECT_LEASE, (s,)).fetchone()
            lease = self.cache.leases[s] = (found[0], found[1]) if found else (0, None)
        return lease

    def require(self, s: int | None, lease: Lease) -> None:
        """The fence: the lease must be the one in force, and ours. Raises FencedError."""
        epoch, node = (0, None) if s is None else self.lease(s)
        if (epoch != lease.epoch or node != self.node) and not point("store.fence"):
            raise refusals.fenced(lease.name, epoch=lease.epoch, in_force=epoch)

    def lay_down(self, s: int, rows: tuple[Row, ...], epoch: int) -> None:
        """Rows that follow on the tip, under a lease that is in force."""
        earlier = self.cache.earlier.get(s)
        if earlier is None or earlier.epoch != epoch:
            earlier = self.cache.earlier[s] = Earlier(epoch)
        self.rows += [packed(s, row, earlier) for row in rows]

    def watermark(self) -> Watermark:
        """Of what is written now: the last known one, before anything is written."""
        if self.wrote or self.cache.watermark is None:
            self.cache.watermark = watermark_of(self.cursor.execute(SELECT_WATERMARK).fetchone())
        return self.cache.watermark

    def one(self, sql: str, values: tuple[Value, ...] = ()) -> int | None:
        """The first column of the first row; None where there is no row."""
        row = self.cursor.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def _list(self) -> None:
        moved: list[tuple[Value, ...]] = []
        others: list[tuple[Value, ...]] = []
        listed = self.cache.listed
        for s, entry in self.catalog.items():
            if only_moved(entry, listed.get(s)):
                moved.append((entry.seq, entry.last_activity_at, s, entry.seq))
            else:
                others.append((s, *catalog_values(entry)))
                listed[s] = entry
        self.cursor.executemany(_MOVE_CATALOG, moved)
        self.cursor.executemany(_PUT_CATALOG, others)

    def flush(self) -> None:
        many = self.cursor.executemany
        if self.rows:
            many(INSERT_RECORD, self.rows)
            self.rows = []
        if self.settled:
            found = self.settled.items()
            many(_SETTLE, [(s, packed_id(key), digest, seq) for (s, key), (digest, seq, _) in found])
            many(_UNLIST, [(n,) for _, _, n in self.settled.values()])
            self.settled = {}
        if self.catalog:
            self._list()
            self.catalog = {}
        if self.blobs:
            many(_INSERT_BLOB, [key for key, refers in self.blobs.items() if refers])
            many(_DELETE_BLOB, [key for key, refers in self.blobs.items() if not refers])
            self.blobs = {}
