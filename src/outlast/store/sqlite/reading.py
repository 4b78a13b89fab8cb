"""Everything that only reads. Synchronous, and quick to import: `outlast ls` needs nothing else.

`list_sessions` and `find_session` open a database, answer and close it; a `Reader` stays open. No statement
outlives a call, so a reader never holds up a checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import cast

import apsw

from outlast.errors import InputError, IntegrityError
from outlast.store import refusals
from outlast.store.contract import (
    PAGE_BYTES,
    Beyond,
    CatalogEntry,
    CatalogQuery,
    Entry,
    Holder,
    Listed,
    Row,
    Snapshot,
    Tip,
    Tombstone,
)
from outlast.store.sqlite import damage, schema
from outlast.store.sqlite.connection import connect_reader, translated
from outlast.store.sqlite.incarnation import Node, alive
from outlast.store.sqlite.layout import Layout, refuse_impossible
from outlast.store.sqlite.listing import (
    FIND_EXACT,
    FIND_PREFIX,
    LIST_EXACT,
    SELECT_CATALOG,
    list_statement,
    prefixed,
)
from outlast.store.sqlite.packing import PackingError, Value, packed_id, unpacked_id, unpacking
from outlast.store.sqlite.rows import (
    ENTRY_COLUMNS,
    RECORD_COLUMNS,
    catalog_entry,
    inbox_entry,
)
from outlast.store.sqlite.transaction import (
    EMPTY,
    SELECT_CHAIN,
    SELECT_EARLIER,
    SELECT_SESSION,
    SELECT_SETTLED,
    SELECT_TIP,
    SELECT_WATERMARK,
    Watermark,
    watermark_of,
)
from outlast.store.sqlite.witness import Seen, Witness, compare

# Joined with itself, so that session and number too are the row's own: SQLite would take the index's copy,
# and damage to the row's own would stay unseen.
SELECT_PAGE = (
    f"SELECT {', '.join('row.' + column for column in RECORD_COLUMNS.split(', '))} FROM record AS place"
    " CROSS JOIN record AS row ON row.rowid = place.rowid AND row.s = place.s"
    " WHERE place.s = ? AND place.seq > ? AND place.seq <= ? ORDER BY place.seq"
)
SELECT_SNAPSHOTS = "SELECT seq, chain, fold_version, digest, body FROM snapshot WHERE s = ? ORDER BY seq DESC"
SELECT_REFERENCE = "SELECT 1 FROM blob WHERE digest = ? LIMIT 1"
SELECT_PENDING = f"SELECT {ENTRY_COLUMNS} FROM inbox WHERE s = ? ORDER BY n"
SELECT_AWAITED = "SELECT DISTINCT name FROM inbox JOIN session ON session.s = inbox.s ORDER BY inbox.s"
_HAS_RECORDS = "EXISTS (SELECT 1 FROM record WHERE record.s = session.s)"
_HAS_OPENING = "EXISTS (SELECT 1 FROM inbox WHERE inbox.s = session.s AND opening_body IS NOT NULL)"
SELECT_UNLISTED = (
    "SELECT name FROM session LEFT JOIN catalog ON catalog.s = session.s"
    " WHERE catalog.seq IS NOT (SELECT coalesce(max(seq), 0) FROM record WHERE record.s = session.s)"
    f" AND ({_HAS_RECORDS} OR {_HAS_OPENING}) ORDER BY session.s"
)
SELECT_EMPTIED = (
    f"SELECT name FROM session WHERE NOT {_HAS_RECORDS} AND NOT {_HAS_OPENING}"
    " AND (EXISTS (SELECT 1 FROM catalog WHERE catalog.s = session.s)"
    " OR EXISTS (SELECT 1 FROM inbox WHERE inbox.s = session.s)) ORDER BY session.s"
)
SELECT_LAST = "SELECT max(seq) FROM record WHERE s = ?"
SELECT_SETTLED_AFTER = "SELECT request FROM settled WHERE s = ? AND seq > ? ORDER BY seq, request"
SELECT_HOLDER = (
    "SELECT lease.epoch, node.id, pid, start_ticks, boot_id, pid_ns, label FROM lease"
    " JOIN node ON node.id = lease.node WHERE lease.s = ?"
)
# NOT INDEXED: by row number, from the end; left to itself SQLite scans a whole index that holds all columns.
SELECT_CHANGED = (
    "SELECT name FROM session WHERE s IN (SELECT s FROM record NOT INDEXED WHERE rowid > ?"
    " UNION ALL SELECT s FROM inbox NOT INDEXED WHERE n > ?)"
)

EVERYTHING = CatalogQuery()


class Reader:
    """Raises StoreError subclasses and IntegrityError."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        with self._errors():
            self._connection = connect_reader(layout)
        try:
            with self._errors():
                schema.require_store(self._connection)
                self.store_id = schema.store_id(self._connection)
            self._witness = _witness(layout, self.store_id)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise translated(error, self._layout.database) from error
        except UnicodeEncodeError as error:
            raise InputError("a lone surrogate is no text that a store can hold or find") from error

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Nothing of an answer is believed once a newer outlast may have changed what the tables hold."""
        with self._errors():
            try:
                yield
            finally:
                schema.require_known(self._connection)

    def _all(self, sql: str, values: tuple[Value, ...] = ()) -> list[tuple[Value, ...]]:
        with self._asking():
            return cast("list[tuple[Value, ...]]", self._connection.execute(sql, values).fetchall())

    def _one(self, sql: str, values: tuple[Value, ...] = ()) -> tuple[Value, ...] | None:
        with self._asking():
            return cast("tuple[Value, ...] | None", self._connection.execute(sql, values).fetchone())

    def _session(self, name: str) -> int | None:
        row = self._one(SELECT_SESSION, (name,))
        return cast(int, row[0]) if row else None

    def page(self, name: str, after: int, limit: int) -> list[Row]:
        """Rows with after < seq <= after + limit; fewer when they are large or one cannot be read, none only
        past the end. Raises IntegrityError where the first cannot be read."""
        s = self._session(name)
        if s is None:
            return []
        rows: list[Row] = []
        execute = self._connection.execute
        unpacked = unpacking(rows, lambda seq: execute(SELECT_EARLIER, (s, seq)).fetchone())
        size = 0
        with self._asking():
            try:
                for values in execute(SELECT_PAGE, (s, after, after + limit)):
                    rows.append(unpacked(values))
                    # Of a damaged row it may be anything.
                    body = values[11]
                    size += len(body) if isinstance(body, bytes) else 0
                    if size > PAGE_BYTES:
                        break
            except (apsw.CorruptError, UnicodeDecodeError, PackingError) as error:
                if not rows and isinstance(error, PackingError) and self._chain_at(s, after + 1) is None:
                    raise damage.missing(name, after + 1) from error  # and a later one refers to it
                if not rows:
                    raise damage.unreadable(name, after + 1, error) from error
        return rows

    def tip(self, name: str) -> Tip:
        """Raises IntegrityError if the journal is shorter than its witness."""
        s = self._session(name)
        if s is None:
            return EMPTY
        # The witness first: what is committed in between only makes the journal longer.
        noted = self._witness.read(s) if self._witness else None
        try:
            row = self._one(SELECT_TIP, (s,))
        except IntegrityError as error:
            raise damage.endless(name, noted) from error
        tip = Tip(*row) if row else EMPTY  # type: ignore[arg-type]
        if noted is not None:
            try:
                compare(name, noted, Seen(tip, self._chain_at(s, noted.seq)))
            except IntegrityError:
                from outlast.store.sqlite.quarantine import overrules  # noqa: PLC0415 - `outlast ls` starts without

                if not overrules(self._layout.folder, s, noted, partial(self._chain_at, s)):
                    raise
        return tip

    def _chain_at(self, s: int, seq: int) -> bytes | None:
        found = self._one(SELECT_CHAIN, (s, seq))
        return cast(bytes, found[0]) if found else None

    def unfit_slots(self) -> tuple[list[int], list[str]]:
        """What the witness tells of sessions that are not here any more (by number), and the sessions whose
        slot cannot be read."""
        if self._witness is None:
            return [], []
        names = {cast(int, row[0]): cast(str, row[1]) for row in self._all("SELECT s, name FROM session")}
        gone: list[int] = []
        torn: list[str] = []
        for s, tip in self._witness.slots():
            if s not in names:
                gone.append(s)
            elif tip is None:
                torn.append(names[s])
        return gone, torn

    def names(self) -> Sequence[str]:
        """Of all sessions, in the order in which they came."""
        return [cast(str, row[0]) for row in self._all("SELECT name FROM session ORDER BY s")]

    def awaited(self) -> list[str]:
        """Sessions in whose inbox something waits."""
        return [cast(str, row[0]) for row in self._all(SELECT_AWAITED)]

    def unlisted(self) -> list[str]:
        """Sessions that have a journal or an inbox, and in the catalog no row, or one of another time."""
        return [cast(str, row[0]) for row in self._all(SELECT_UNLISTED)]

    def emptied(self) -> list[str]:
        """Sessions that had begun, or to which something was sent, and of whose journal nothing is left."""
        return [cast(str, row[0]) for row in self._all(SELECT_EMPTIED)]

    def noted(self, name: str) -> Tip | None:
        """How far the journal was, by its witness."""
        s = self._session(name)
        return self._witness.read(s) if self._witness and s is not None else None

    def beyond(self, name: str, seq: int) -> Beyond:
        """See `outlast.store.contract.Mending`."""
        s = self._session(name)
        row = self._one(SELECT_LAST, (s,))
        last = cast("int | None", row[0] if row else None) or 0
        settled = self._all(SELECT_SETTLED_AFTER, (s, seq))
        return Beyond(last, tuple(unpacked_id(cast("str | bytes", row[0])) for row in settled))

    def witness_lost(self) -> int | None:
        """When the witness was begun anew because it had been emptied or removed, in microseconds UTC; 0 if
        that is still to come; None where it never was."""
        if self._witness is None or not self._witness.is_ours:
            return 0 if self._one("SELECT 1 FROM record LIMIT 1") else None
        row = self._one("SELECT witness_since FROM store")
        return None if row is None else cast("int | None", row[0])

    def is_behind(self, seen: int) -> bool:
        """Whether the store is a backup that was put back: made by `outlast backup`, or of a lower epoch than
        one that was `seen` of it."""
        row = self._one("SELECT epoch, backup_at FROM store")
        return row is not None and (row[1] is not None or cast(int, row[0]) < seen)

    def snapshots(self, name: str) -> list[Snapshot]:
        s = self._session(name)
        rows = [] if s is None else self._all(SELECT_SNAPSHOTS, (s,))
        return [Snapshot(name, *row) for row in rows]  # type: ignore[arg-type]

    def pending(self, name: str) -> list[Entry]:
        s = self._session(name)
        return [] if s is None else [inbox_entry(name, row) for row in self._all(SELECT_PENDING, (s,))]

    def settled(self, name: str, request_id: str) -> Tombstone | None:
        s = self._session(name)
        row = None if s is None else self._one(SELECT_SETTLED, (s, packed_id(request_id)))
        return Tombstone(request_id, cast(bytes, row[0]), cast(int, row[1])) if row else None

    def is_referred_to(self, digest: str) -> bool:
        """Whether a record of any session refers to the blob."""
        return self._one(SELECT_REFERENCE, (digest,)) is not None

    def node(self, name: str) -> tuple[int, Node] | None:
        """Epoch and incarnation of the lease, dead or alive."""
        s = self._session(name)
        row = None if s is None else self._one(SELECT_HOLDER, (s,))
        return (cast(int, row[0]), Node(*row[1:])) if row else None  # type: ignore[arg-type]

    def holder(self, name: str) -> Holder | None:
        found = self.node(name)
        if found is None or not alive(self._layout.nodes, found[1]):
            return None
        epoch, node = found
        return Holder(node.id, epoch, node.pid, node.label)

    def has_node(self, node: str) -> bool:
        return self._one("SELECT 1 FROM node WHERE id = ?", (node,)) is not None

    def watermark(self) -> Watermark:
        return watermark_of(cast("tuple[int, ...] | None", self._one(SELECT_WATERMARK)))

    def changed(self, before: Watermark, now: Watermark) -> set[str] | None:
        """Sessions whose journal or inbox grew since; None where that cannot be told (after a deletion)."""
        if now.record < before.record:
            return None
        return {cast(str, row[0]) for row in self._all(SELECT_CHANGED, (before.record, before.inbox))}

    def list(self, query: CatalogQuery) -> list[Listed]:
        lives: dict[str, bool] = {}
        return [self._listed(row, lives) for row in self._all(*list_statement(query))]

    def listed(self, name: str) -> Listed | None:
        """The catalog's row of the session with exactly this id."""
        row = self._one(LIST_EXACT, (name,))
        return None if row is None else self._listed(row, {})

    def entry(self, name: str) -> CatalogEntry | None:
        """What the catalog has of the session with exactly this id."""
        row = self._one(SELECT_CATALOG, (name,))
        return None if row is None else catalog_entry(name, row[1:])

    def _listed(self, row: tuple[Value, ...], lives: dict[str, bool]) -> Listed:
        name, *columns = row
        entry = catalog_entry(cast(str, name), columns[:11])
        pending, decisions, epoch, id_ = columns[11:15]
        if id_ is None:
            return Listed(entry, cast(int, pending), cast(int, decisions), None)
        node = Node(*columns[14:])  # type: ignore[arg-type]
        if node.id not in lives:
            lives[node.id] = alive(self._layout.nodes, node)
        owner = Holder(node.id, cast(int, epoch), node.pid, node.label) if lives[node.id] else None
        return Listed(entry, cast(int, pending), cast(int, decisions), owner)

    def find(self, name_or_prefix: str) -> str:
        refusals.require_name(name_or_prefix)
        if self._one(FIND_EXACT, (name_or_prefix,)):
            return name_or_prefix
        names = [cast(str, row[0]) for row in self._all(FIND_PREFIX, prefixed(name_or_prefix))]
        if not names:
            raise refusals.no_session(name_or_prefix)
        if len(names) > 1:
            raise refusals.ambiguous_id(name_or_prefix, names[0], names[1])
        return names[0]

    def close(self) -> None:
        self._connection.close()
        if self._witness:
            self._witness.close()


def _witness(layout: Layout, store: str) -> Witness | None:
    try:
        return Witness(layout.witness, store, write=False)
    except FileNotFoundError:
        return None


@contextmanager
def _opened(database: str | os.PathLike[str]) -> Iterator[Reader | None]:
    """None where there is no store yet. Raises UsageError where there can be none."""
    layout = Layout.of(Path(database))
    refuse_impossible(layout)
    try:
        reader = Reader(layout) if layout.exists() else None
    except schema.NotMadeError:
        reader = None
    try:
        yield reader
    finally:
        if reader is not None:
            reader.close()


def list_sessions(database: str | os.PathLike[str], query: CatalogQuery = EVERYTHING) -> list[Listed]:
    """What `Store.list` answers, for the database file `database` (see `outlast.store.url.database_path`);
    nothing where there is no store yet."""
    with _opened(database) as reader:
        return [] if reader is None else reader.list(query)


def readable_sessions(database: str | os.PathLike[str]) -> list[Listed]:
    """Of a database whose list cannot be read as a whole: the rows that can, in the order of their sessions.
    Raises IntegrityError where not even the sessions' names can be read."""
    rows: list[Listed] = []
    with _opened(database) as reader:
        if reader is None:
            return rows
        for name in reader.names():
            with suppress(IntegrityError):
                row = reader.listed(name)
                rows += [] if row is None else [row]
    return rows


def listed_session(database: str | os.PathLike[str], name: str) -> Listed | None:
    """What `Store.listed` answers, for the database file `database`."""
    with _opened(database) as reader:
        return None if reader is None else reader.listed(name)


def find_session(database: str | os.PathLike[str], name_or_prefix: str) -> str:
    """What `Store.find` answers, for the database file `database`."""
    refusals.require_name(name_or_prefix)
    with _opened(database) as reader:
        if reader is None:
            raise refusals.no_session(name_or_prefix)
        return reader.find(name_or_prefix)
