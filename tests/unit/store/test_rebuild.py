"""A damaged store of another schema: an older one is mended and made current, a newer one is left alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw
import pytest
from tests.support.stores import append, other, seqs

from outlast.errors import PlatformError, SchemaError, StoreBusyError
from outlast.store.sqlite import connection as connections
from outlast.store.sqlite import schema
from outlast.store.sqlite.layout import Layout, prepare
from outlast.store.sqlite.rebuild import rebuild
from outlast.store.url import database_path, open_store, sqlite_url

FROZEN = Path(__file__).parent / "frozen" / "version-1"
AT = 1_700_000_000_000_000


def spoil(layout: Layout) -> None:
    """Noise in the place of an index; all else can be read."""
    connection = apsw.Connection(str(layout.database))
    sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'catalog_by_activity'"
    page = int(connection.execute(sql).get)
    connection.pragma("wal_checkpoint", "truncate")
    connection.close()
    with layout.database.open("r+b") as file:
        file.seek((page - 1) * connections.PAGE_SIZE)
        file.write(b"\xff" * 200)


def older(folder: Path, version: int) -> Layout:
    shutil.copytree(FROZEN, folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    layout = Layout.of(folder / "x.db")
    prepare(layout)
    connection = apsw.Connection(str(layout.database))
    if version > 1:
        schema.migrate(connection, 1, AT, to=version)
    connection.close()
    return layout


def versions(layout: Layout) -> list[int]:
    connection = apsw.Connection(str(layout.database), flags=apsw.SQLITE_OPEN_READONLY)
    found = [row[0] for row in connection.execute("SELECT version FROM schema_version ORDER BY version")]
    found.append(connection.execute("PRAGMA user_version").get)
    connection.close()
    return found


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
async def test_a_damaged_store_of_any_schema_is_mended_with_all_that_can_be_read(
    tmp_path: Path, version: int
) -> None:
    sound, damaged = older(tmp_path / "sound", version), older(tmp_path / "damaged", version)
    spoil(damaged)
    assert rebuild(sound, AT) is None
    done = rebuild(damaged, AT)
    assert done is not None
    assert (done.lost, done.nameless) == ({}, 0)
    assert versions(damaged) == [*range(1, schema.VERSION + 1), schema.VERSION]
    one, two = [await open_store(sqlite_url(layout.database)) for layout in (sound, damaged)]
    assert await two.list() == await one.list()
    for name in ("made", "new"):
        assert await two.read(name, 0) == await one.read(name, 0)
        assert await two.pending(name) == await one.pending(name)
    assert await two.settled("made", "one") == await one.settled("made", "one")
    assert await append(two, await two.acquire("made")) == 8
    await one.close()
    await two.close()


@pytest.mark.parametrize("sound", [True, False], ids=["sound", "damaged"])
async def test_a_store_of_a_newer_outlast_is_refused_and_not_touched(url: str, sound: bool) -> None:
    store = await open_store(url)
    await append(store, await store.acquire("s"), 3)
    await store.close()
    layout = Layout.of(database_path(url, os.environ))
    connection = apsw.Connection(str(layout.database))
    connection.execute("INSERT INTO schema_version VALUES (?, 1)", (schema.VERSION + 1,))
    connection.execute("CREATE TABLE vital (body TEXT); INSERT INTO vital VALUES ('of a newer outlast')")
    connection.close()
    if not sound:
        spoil(layout)
    before = layout.database.read_bytes()
    with pytest.raises(SchemaError, match="schema version"):
        rebuild(layout, AT)
    assert layout.database.read_bytes() == before
    assert not (layout.folder / "quarantine").exists()


async def test_a_database_of_another_program_is_not_mended(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "x.db")
    prepare(layout)
    connection = apsw.Connection(str(layout.database))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(SchemaError, match="another program"):
        rebuild(layout, AT)


async def test_a_sqlite_that_could_damage_it_mends_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await open_store(url)).close()
    layout = Layout.of(database_path(url, os.environ))
    spoil(layout)
    before = layout.database.read_bytes()
    monkeypatch.setattr(connections, "SAFE_FROM", (999, 0, 0))
    with pytest.raises(PlatformError, match="can corrupt"):
        rebuild(layout, AT)
    assert layout.database.read_bytes() == before


async def test_an_older_store_is_not_mended_under_the_owner_of_an_older_outlast(
    tmp_path: Path, url: str
) -> None:
    """Its owner would lose it in mid turn. Who works with a store of the newest schema goes on over it."""
    with other(url, tmp_path) as owner:
        owner.ask("acquire", "s")
        owner.ask("append", "s")
        layout = Layout.of(database_path(url, os.environ))
        connection = apsw.Connection(str(layout.database))
        connection.execute("DELETE FROM schema_version WHERE version = ?", (schema.VERSION,))
        connection.close()
        spoil(layout)
        with pytest.raises(StoreBusyError, match=f"{layout.database} cannot be brought up to date"):
            rebuild(layout, AT)
        owner.kill()
    assert rebuild(layout, AT) is not None
    store = await open_store(url)
    assert await seqs(store, "s") == [1]
    await store.close()
