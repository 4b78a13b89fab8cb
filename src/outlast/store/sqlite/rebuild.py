"""A sound database of all that can be read of a damaged one, in its place.

The damaged one is kept in quarantine first, page by page. What can be read of it makes a new database, which
SQLite's backup interface then writes over the old one in one transaction: a kill leaves the one or the other,
and processes that have the store open go on with it. Rows on damaged pages are gone; their journals tell.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import apsw

from outlast.errors import IntegrityError
from outlast.faults import point
from outlast.files import flush_folder
from outlast.store.sqlite import schema
from outlast.store.sqlite.connection import (
    PAGE_SIZE,
    connect_reader,
    connect_writer,
    require_safe_sqlite,
    translated,
)
from outlast.store.sqlite.layout import Layout, make_private_folder, unwritable
from outlast.store.sqlite.mending import damaged, require_sound
from outlast.store.sqlite.packing import Value
from outlast.store.sqlite.quarantine import copy_pages
from outlast.store.sqlite.tombstones import bury_again
from outlast.store.sqlite.turnstile import Turnstile

ROWS = ("session", "record", "inbox", "catalog", "lease", "snapshot")
"""Tables whose rows have a number: an unreadable one is passed over by it."""
KEYED = ("node", "settled", "blob")
"""Tables in the order of their key: what lies behind an unreadable page is looked for session by session."""
_BATCH = 1000

Values = list[tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What became of it. `lost`: rows that could not be read, by table; at least so many."""

    quarantine: Path
    rows: int
    lost: dict[str, int]
    known_again: int
    """Requests that the journals tell of and the tombstones told no more."""
    nameless: int
    """Sessions whose journals are there and whose names are not."""


def rebuild(layout: Layout, at: int, busy_seconds: float = 60.0) -> Rebuilt | None:
    """None where the database is sound. One of an older schema is brought up to date with it. Raises
    IntegrityError where not even its beginning can be read; SchemaError for one of a newer outlast or of
    another program, PlatformError and StoreError, having touched nothing. Blocking."""
    require_safe_sqlite()
    turnstile = Turnstile(layout)
    try:
        with turnstile.turn(busy_seconds):
            version = _version(layout)
            if _is_sound(layout):
                return None
            return _rebuild(layout, version, at)
    except OSError as error:
        raise unwritable(layout.database, error) from error
    except apsw.CorruptError as error:
        raise _hopeless(layout, error) from error
    except apsw.Error as error:
        raise translated(error, layout.database) from error
    finally:
        turnstile.close()


def _version(layout: Layout) -> int:
    source = connect_reader(layout)
    try:
        return schema.version_of(source)
    finally:
        source.close()


def _is_sound(layout: Layout) -> bool:
    """Of the pages, and of what an index says of its table."""
    try:
        require_sound(layout)
        connection = connect_reader(layout)
        try:
            return str(connection.execute("PRAGMA integrity_check(1)").get) == "ok"
        finally:
            connection.close()
    except (IntegrityError, apsw.CorruptError):
        return False


def _hopeless(layout: Layout, error: apsw.Error) -> IntegrityError:
    found = damaged(layout, str(error))
    found.hint = "not even its beginning can be read: put a backup back"
    return found


def _rebuild(layout: Layout, version: int, at: int) -> Rebuilt:
    base = layout.folder / "quarantine"
    make_private_folder(base)
    final = base / f"database-{at}"
    draft = base / f".{final.name}-{os.urandom(4).hex()}"
    draft.mkdir(mode=0o700)
    fresh = draft / "fresh.db"
    source = connect_reader(layout)
    try:
        copy_pages(source, draft / "database.db")
        counts, lost = _salvage(source, fresh, version, at)
        _bring_up_to_date(layout, fresh, version, at)
        known_again = _bury_again(fresh)
        keep = draft / "database.db"
        point("rebuild.before_rename")
        final.mkdir(mode=0o700)
        keep.rename(final / keep.name)
        flush_folder(final)
        flush_folder(base)
        point("rebuild.after_rename")
        nameless = _put(layout, fresh)
        point("rebuild.after_commit")
    finally:
        source.close()
        shutil.rmtree(draft, ignore_errors=True)
    lost = {table: count for table, count in lost.items() if count}
    return Rebuilt(final, sum(counts.values()), lost, known_again, nameless)


def _salvage(
    source: apsw.Connection, fresh: Path, version: int, at: int
) -> tuple[dict[str, int], dict[str, int]]:
    """`fresh` is made in the version of the source, so that row by row it takes what is there."""
    target = apsw.Connection(str(fresh))
    counts: dict[str, int] = {}
    lost: dict[str, int] = {}
    try:
        target.pragma("page_size", PAGE_SIZE)
        target.pragma("journal_mode", "wal")
        schema.migrate(target, 0, at, to=version)
        has = {name for (name,) in target.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        target.execute("BEGIN")
        # Without these two there is no store: who cannot read them has to put a backup back.
        _replace(target, "store", source.execute("SELECT * FROM store").fetchall())
        _replace(target, "schema_version", source.execute("SELECT * FROM schema_version").fetchall())
        for table in filter(has.__contains__, ROWS):
            counts[table], lost[table] = _copy_rows(source, target, table)
        for table in filter(has.__contains__, KEYED):
            counts[table], lost[table] = _copy_keyed(source, target, table)
        _keep_numbers(source, target)
        target.execute("COMMIT")
    finally:
        target.close()
    return counts, lost


def _bring_up_to_date(layout: Layout, fresh: Path, version: int, at: int) -> None:
    if version < schema.VERSION:
        target = apsw.Connection(str(fresh))
        try:
            schema.migrate(target, version, at, layout)
        finally:
            target.close()


def _bury_again(fresh: Path) -> int:
    target = apsw.Connection(str(fresh))
    try:
        return bury_again(target)
    finally:
        target.close()


def _replace(target: apsw.Connection, table: str, rows: Values) -> None:
    target.execute(f"DELETE FROM {table}")
    _insert(target, table, rows)


def _insert(target: apsw.Connection, table: str, rows: Values) -> int:
    """How many came in: of two that claim one place the second is left out."""
    if not rows:
        return 0
    before = target.total_changes()
    target.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return target.total_changes() - before


def _copy_rows(source: apsw.Connection, target: apsw.Connection, table: str) -> tuple[int, int]:
    """So many rows came over, so many could not be read."""
    copied, lost, after = 0, 0, -1
    last = _last_row(source, table)
    while True:
        rows, end, damaged_page = _read_on(source, table, after)
        copied += _insert(target, table, rows)
        if not damaged_page and not rows:
            return copied, lost
        after = end
        if damaged_page:
            if after >= last:
                return copied, lost
            one, missing, after = _step_over(source, table, after, last)
            copied += _insert(target, table, one)
            lost += missing


def _read_on(source: apsw.Connection, table: str, after: int) -> tuple[Values, int, bool]:
    """The next rows, the number of the last, and whether a page could not be read behind it."""
    rows: Values = []
    try:
        found = source.execute(
            f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT ?",
            (after, _BATCH),
        )
        for number, *values in found:
            rows.append(tuple(cast("list[Value]", values)))
            after = cast(int, number)
    except (apsw.CorruptError, UnicodeDecodeError):
        return rows, after, True
    return rows, after, False


def _step_over(source: apsw.Connection, table: str, after: int, last: int) -> tuple[Values, int, int]:
    """Rows by their number, until a scan goes on: those that can be read, how many cannot, and where."""
    rows: Values = []
    missing = 0
    while after < last:
        after += 1
        try:
            row = source.execute(f"SELECT * FROM {table} NOT INDEXED WHERE rowid = ?", (after,)).fetchone()
            if row is not None:
                rows.append(tuple(row))
        except (apsw.CorruptError, UnicodeDecodeError):
            missing += 1
        if _scans_from(source, table, after):
            break
    return rows, missing, after


def _scans_from(source: apsw.Connection, table: str, after: int) -> bool:
    sql = f"SELECT * FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid LIMIT 1"
    try:
        source.execute(sql, (after,)).fetchall()
    except (apsw.CorruptError, UnicodeDecodeError):
        return False
    return True


def _last_row(source: apsw.Connection, table: str) -> int:
    """The highest row number that is known of; where the end of the table is damaged, by who counts rows."""
    known = 0
    for sql in (f"SELECT max(rowid) FROM {table} NOT INDEXED", f"SELECT max(rowid) FROM {table}"):
        try:
            known = max(known, cast("int | None", source.execute(sql).get) or 0)
        except (apsw.CorruptError, UnicodeDecodeError):
            continue
    if table == "record" and not known:
        known = _by_index(source)
    return known


def _by_index(source: apsw.Connection) -> int:
    known = 0
    sql = "SELECT rowid FROM record INDEXED BY sqlite_autoindex_record_1 WHERE s > 0"
    try:
        for (number,) in source.execute(sql):
            known = max(known, cast(int, number))
    except apsw.CorruptError:
        return known
    return known


def _copy_keyed(source: apsw.Connection, target: apsw.Connection, table: str) -> tuple[int, int]:
    copied = 0
    try:
        for row in source.execute(f"SELECT * FROM {table}"):
            copied += _insert(target, table, [tuple(row)])
    except (apsw.CorruptError, UnicodeDecodeError):
        if table == "node":
            return copied, 1
        lost = 0
        for s in _sessions(target):
            try:
                for row in source.execute(f"SELECT * FROM {table} WHERE s = ?", (s,)):
                    copied += _insert(target, table, [tuple(row)])
            except (apsw.CorruptError, UnicodeDecodeError):
                lost += 1
        return copied, max(lost, 1)
    return copied, 0


def _sessions(target: apsw.Connection) -> Iterator[int]:
    for (s,) in target.execute("SELECT s FROM session").fetchall():
        yield cast(int, s)


def _keep_numbers(source: apsw.Connection, target: apsw.Connection) -> None:
    """Numbers that were given out are not given out again."""
    try:
        kept = source.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    except apsw.CorruptError:
        return
    for name, seq in kept:
        target.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (seq, name))
        target.execute(
            "INSERT INTO sqlite_sequence SELECT ?1, ?2"
            " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
            (name, seq),
        )


def _put(layout: Layout, fresh: Path) -> int:
    """The new database in the place of the old one, in one transaction."""
    source = apsw.Connection(str(fresh))
    target = connect_writer(layout, 60.0)
    try:
        nameless = cast(
            int,
            source.execute("SELECT count(DISTINCT s) FROM record WHERE s NOT IN (SELECT s FROM session)").get,
        )
        target.pragma("synchronous", "full")
        target.pragma("fullfsync", True)
        with target.backup("main", source, "main") as putting:
            point("rebuild.before_commit")
            while not putting.done:
                putting.step()
    finally:
        target.close()
        source.close()
    return nameless
