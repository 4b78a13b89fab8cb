"""A store that an older outlast wrote is brought up to date with all that is in it.

`frozen/version-1` was written by the outlast that had that schema: a session with a turn, a blob, an input
and a cancel that wait; and a session that was only admitted.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest
from tests.support.stores import append, other

from outlast.journal import load_state, read_records
from outlast.records.types import AgentEventRecorded
from outlast.store.contract import Snapshot
from outlast.store.sqlite import schema
from outlast.store.sqlite.reading import list_sessions
from outlast.store.url import database_path, open_store, sqlite_url

FROZEN = Path(__file__).parent / "frozen"


@pytest.fixture(params=["version-1"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A copy, readable by this user only, as a store is."""
    folder = tmp_path / "old"
    shutil.copytree(FROZEN / request.param, folder)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return sqlite_url(folder / "x.db")


def versions(url: str) -> list[int]:
    connection = apsw.Connection(str(database_path(url, {})), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [row[0] for row in connection.execute("SELECT version FROM schema_version ORDER BY version")]
    finally:
        connection.close()


async def test_nothing_that_an_older_store_holds_is_lost(url: str) -> None:
    listed = list_sessions(database_path(url, {}))
    assert versions(url) == [1]
    store = await open_store(url)
    assert versions(url) == list(range(1, schema.VERSION + 1))
    assert await store.list() == listed
    assert {row.entry.session for row in listed} == {"made", "new"}
    assert [entry.request_id for entry in await store.pending("made")] == ["two", "stop"]
    [new] = await store.pending("new")
    assert (new.body, new.opening_body) == (b"never begun", b'{"agent":"agent"}')
    settled = await store.settled("made", "one")
    assert settled is not None
    assert settled.seq == 4
    records = [record async for record in read_records(store, "made")]
    assert [record.seq for record in records] == list(range(1, 8))
    assert [len(r.body.text) for r in records if isinstance(r.body, AgentEventRecorded)] == [300_000]
    await store.close()


async def test_an_older_store_goes_on(url: str) -> None:
    store = await open_store(url)
    state = await load_state(store, "made")
    lease = await store.acquire("made")
    assert lease.epoch > state.epoch
    assert await append(store, lease) == 8
    assert await store.snapshots("made") == []
    snapshot = Snapshot("made", 7, state.chain, 1, b"d" * 32, b"{}")
    await store.put_snapshot(snapshot, lease)
    await store.close()
    again = await open_store(url)
    assert await again.snapshots("made") == [snapshot]
    await again.close()


async def test_many_that_open_an_older_store_at_once_migrate_it_once(url: str) -> None:
    stores = await asyncio.gather(*(open_store(url) for _ in range(5)))
    assert versions(url) == list(range(1, schema.VERSION + 1))
    assert {(await store.tip("made")).seq for store in stores} == {7}
    for store in stores:
        await store.close()


async def test_a_process_killed_in_the_migration_leaves_the_older_store(url: str, tmp_path: Path) -> None:
    with other(url, tmp_path, "store.schema.before_commit=kill") as killed:
        assert killed.ask("tip", "made") is None
    assert versions(url) == [1]
    with other(url, tmp_path, "store.schema.after_commit=kill") as killed:
        assert killed.ask("tip", "made") is None
    assert versions(url) == list(range(1, schema.VERSION + 1))
    with other(url, tmp_path) as process:
        assert process.ask("tip", "made") == 7


def test_a_file_that_becomes_a_store_while_it_is_looked_at_is_one(tmp_path: Path) -> None:
    file = str(tmp_path / "x.db")
    maker, looker = apsw.Connection(file), apsw.Connection(file)
    maker.pragma("journal_mode", "wal")

    def make_it_one(_: apsw.Cursor, sql: str, values: object) -> bool:
        if "sqlite_schema" in sql:
            looker.exec_trace = None
            schema.migrate(maker, 0, 1)
        return True

    looker.exec_trace = make_it_one
    try:
        assert schema.version_of(looker) == schema.VERSION
    finally:
        looker.close()
        maker.close()
