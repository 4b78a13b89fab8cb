"""Tombstones made anew from the journals, for a database whose own were on a page that cannot be read.

Without them a request that was carried out would be taken for a new one, and be carried out again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import cast

import apsw

from outlast.errors import IntegrityError
from outlast.store.contract import Row
from outlast.store.sqlite.packing import PackingError, Value, packed_id, unpacking
from outlast.store.sqlite.reading import SELECT_PAGE
from outlast.store.sqlite.transaction import SELECT_EARLIER

UNKNOWN = b""
"""In the place of a digest: what was admitted under this id is not known any more."""
_PAGE = 100
_INSERT = (
    "INSERT OR IGNORE INTO settled SELECT ?1, ?2, ?4, ?5"
    " WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE s = ?1 AND request = ?3)"
)


def bury_again(connection: apsw.Connection) -> int:
    """Give each request that a record names and that neither waits nor has a tombstone one. How many. Within
    one transaction; the database is of the newest schema. A record that cannot be read names nobody."""
    before = connection.total_changes()
    with connection:
        for (s,) in connection.execute("SELECT DISTINCT s FROM record").fetchall():
            for row in _rows(connection, cast(int, s)):
                for request in _requests(row):
                    connection.execute(_INSERT, (s, packed_id(request), request, UNKNOWN, row.seq))
    return connection.total_changes() - before


def _rows(connection: apsw.Connection, s: int) -> Iterator[Row]:
    """Of one journal, in its order; what cannot be read of it is stepped over."""
    last = cast("int | None", connection.execute("SELECT max(seq) FROM record WHERE s = ?", (s,)).get) or 0
    after = 0
    while after < last:
        rows: list[Row] = []
        unpacked = unpacking(rows, partial(_earlier, connection, s))
        for values in connection.execute(SELECT_PAGE, (s, after, after + _PAGE)).fetchall():
            try:
                rows.append(unpacked(cast("tuple[Value, ...]", values)))
            except (PackingError, IntegrityError, UnicodeDecodeError):
                continue
        yield from rows
        after += _PAGE


def _earlier(connection: apsw.Connection, s: int, seq: int) -> tuple[Value, ...] | None:
    return cast("tuple[Value, ...] | None", connection.execute(SELECT_EARLIER, (s, seq)).fetchone())


def _requests(row: Row) -> Iterator[str]:
    """The requests that are settled for good by now: what led to the record, and whom it cancels."""
    if row.cause is not None:
        yield row.cause
    if row.type == "InputCancelled":
        try:
            named = json.loads(row.body).get("request_id")
        except (ValueError, AttributeError):
            return
        if isinstance(named, str):
            yield named
