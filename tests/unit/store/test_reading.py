"""Reading without an event loop: what `outlast ls` stands on, and how SQLite finds the rows of each query."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from tests.support.stores import admit, append

from outlast.errors import SessionNotFoundError, UsageError
from outlast.state.listing import listed_json, status_of
from outlast.store.contract import CatalogQuery, Store
from outlast.store.sqlite import listing, operations, reading, transaction
from outlast.store.sqlite.reading import find_session, list_sessions
from outlast.store.url import database_path


async def test_what_is_listed_is_the_same_with_and_without_an_event_loop(store: Store) -> None:
    for name in ("a", "b"):
        await admit(store, name, "r")
    await append(store, await store.acquire("a"))
    database = database_path(store.url, {})
    assert list_sessions(database) == await store.list()
    query = CatalogQuery(prefix="b")
    assert list_sessions(database, query) == await store.list(query)
    assert find_session(database, "a") == "a"


async def test_an_empty_prefix_finds_no_session(store: Store) -> None:
    await admit(store, "only", "r")
    with pytest.raises(UsageError, match="empty"):
        await store.find("")
    with pytest.raises(UsageError, match="empty"):
        find_session(database_path(store.url, {}), "")
    assert await store.find("o") == "only"


async def test_a_listing_counts_inputs_and_apart_from_them_what_was_decided(store: Store) -> None:
    await admit(store, "s", "r")
    for kind in ("cancel", "kill", "close", "answer", "retry", "skip"):
        await admit(store, "s", kind, kind=kind)
    (row,) = await store.list()
    assert (row.pending, row.decisions) == (1, 3)
    assert await store.listed("s") == row
    assert listed_json(row)["queued"] == 1
    assert len(await store.pending("s")) == 7
    lease = await store.acquire("s")
    for settled in (("r", "answer"), ("skip",), ("retry",)):
        (row,) = await store.list()
        assert status_of(replace(row, owner=None)) == "detached"
        await append(store, lease, settle=settled)
    (row,) = await store.list()
    # Nobody is waited for where only what ends something is left over.
    assert (row.pending, row.decisions, status_of(replace(row, owner=None))) == (0, 0, "idle")


def test_where_there_is_no_store_there_is_no_session_and_none_is_made(tmp_path: Path) -> None:
    database = tmp_path / "none" / "x.db"
    assert list_sessions(database) == []
    with pytest.raises(SessionNotFoundError):
        find_session(database, "s")
    assert not database.parent.exists()


def test_a_store_in_the_making_has_no_sessions_yet(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    database.touch()
    assert list_sessions(database) == []
    connection = apsw.Connection(str(database))
    connection.pragma("journal_mode", "wal")
    assert list_sessions(database) == []
    with pytest.raises(SessionNotFoundError):
        find_session(database, "s")
    connection.close()


async def test_a_listing_works_beside_a_process_that_was_killed(store: Store) -> None:
    await admit(store, "s", "r")
    database = database_path(store.url, {})
    # The log that a killed process leaves: the database alone holds nothing yet.
    assert database.with_name("x.db-wal").stat().st_size > 0
    assert [row.entry.session for row in list_sessions(database)] == ["s"]


def test_a_listing_imports_no_event_loop() -> None:
    code = (
        "import sys, outlast.store.sqlite.reading, outlast.store.url;"
        "print([m for m in ('asyncio', 'msgspec', 'psutil', 'rich', 'uuid', 'ctypes') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


async def test_slow_list(store: Store) -> None:
    """Two thousand sessions are listed by the statements that list one, and no journal is opened for it."""
    statements: list[str] = []
    tables: set[str] = set()

    def watch(connection: apsw.Connection) -> None:
        def read(action: int, table: str | None, *_: object) -> int:
            tables.update([table] if action == apsw.SQLITE_READ and table else [])
            return apsw.SQLITE_OK

        def run(_: apsw.Cursor, sql: str, __: object) -> bool:
            statements.append(sql)
            return True

        connection.authorizer = read
        connection.exec_trace = run

    database = database_path(store.url, {})
    apsw.connection_hooks.append(watch)
    try:
        counts = []
        for first, last in ((0, 1), (1, 2000)):
            await asyncio.gather(*(admit(store, f"s{number}", "r") for number in range(first, last)))
            statements.clear()
            assert len(list_sessions(database, CatalogQuery(limit=5000))) == last
            counts.append(len(statements))
    finally:
        apsw.connection_hooks.remove(watch)
    assert counts[0] == counts[1] > 0
    assert "catalog" in tables
    assert "record" not in tables


HOT = {
    "page": (reading.SELECT_PAGE, 3),
    "tip": (transaction.SELECT_TIP, 1),
    "session": (transaction.SELECT_SESSION, 1),
    "lease": (transaction.SELECT_LEASE, 1),
    "entry": (transaction.SELECT_ENTRY, 2),
    "settled": (transaction.SELECT_SETTLED, 2),
    "ids": (operations.SELECT_IDS, 3),
    "chain": (transaction.SELECT_CHAIN, 2),
    "snapshots": (reading.SELECT_SNAPSHOTS, 1),
    "drop snapshots": (operations.DROP_SNAPSHOTS, 2),
    "pending": (reading.SELECT_PENDING, 1),
    "holder": (reading.SELECT_HOLDER, 1),
    "blob": (reading.SELECT_REFERENCE, 1),
    "changed": (reading.SELECT_CHANGED, 2),
    "list": (listing.LIST_ALL, 1),
    "listed": (listing.LIST_EXACT, 1),
    "catalog": (listing.SELECT_CATALOG, 1),
    "list by workspace": (listing.LIST_WORKSPACE, 2),
    "list by prefix": (listing.LIST_PREFIX, 3),
    "list by both": (listing.LIST_WORKSPACE_PREFIX, 4),
    "find": (listing.FIND_EXACT, 1),
    "find by prefix": (listing.FIND_PREFIX, 2),
    "bury": (operations.FREE_NODE, 1),
}


@pytest.mark.parametrize("query", HOT)
async def test_every_hot_query_goes_by_an_index(store: Store, query: str) -> None:
    sql, bindings = HOT[query]
    connection = apsw.Connection(str(database_path(store.url, {})), flags=apsw.SQLITE_OPEN_READONLY)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * bindings)]
    connection.close()
    scans = [step for step in plan if step.startswith("SCAN") and "USING INDEX" not in step]
    assert scans == [], plan


@pytest.mark.parametrize("query", ["list", "list by workspace", "page", "snapshots", "pending"])
async def test_an_order_comes_from_the_index_too(store: Store, query: str) -> None:
    sql, bindings = HOT[query]
    connection = apsw.Connection(str(database_path(store.url, {})), flags=apsw.SQLITE_OPEN_READONLY)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * bindings)]
    connection.close()
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert sorts == ([] if query != "pending" else ["USE TEMP B-TREE FOR ORDER BY"]), plan


@pytest.mark.parametrize("query", ["list", "listed", "list by workspace", "list by prefix", "list by both"])
async def test_what_waits_is_counted_in_indexes_alone(store: Store, query: str) -> None:
    """Thousands of inputs may wait, each with its body; and the commands beside them are found without
    going through those."""
    sql, bindings = HOT[query]
    connection = apsw.Connection(str(database_path(store.url, {})), flags=apsw.SQLITE_OPEN_READONLY)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * bindings)]
    connection.close()
    counts = [step for step in plan if " inbox " in step]
    assert [step.split(" (")[0] for step in counts] == [
        "SEARCH inbox USING COVERING INDEX sqlite_autoindex_inbox_1",
        *["SEARCH inbox USING COVERING INDEX inbox_commands"] * 2,
    ], plan


async def test_a_session_is_looked_up_without_a_look_at_what_waits(store: Store) -> None:
    sql, bindings = HOT["catalog"]
    connection = apsw.Connection(str(database_path(store.url, {})), flags=apsw.SQLITE_OPEN_READONLY)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * bindings)]
    connection.close()
    assert [step.split()[1] for step in plan] == ["session", "catalog"], plan
