"""Verifying a journal: one byte flipped anywhere in a record is named, and everything before it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.journal.test_journal import accepted, begun, opened

from outlast.errors import IntegrityError, UnsupportedRecordError
from outlast.journal import Journal, load_state, read_records
from outlast.journal.integrity import Look, Strange, Verified, read_known, verify
from outlast.records.codec import chain_of
from outlast.records.envelope import Cursor, Draft, Record
from outlast.records.types import AgentEventRecorded, CallObserved
from outlast.store.contract import Row, Store
from outlast.store.sqlite.layout import Layout
from outlast.store.url import database_path, open_store, sqlite_url

RECORDS = 9
SQLiteValue = str | int | bytes | float | None


async def _written(store: Store) -> Journal:
    """Records with every column filled in some, and NULL in others."""
    journal = await opened(store)
    said = AgentEventRecorded(kind="message", text="é words", usage={})
    cursor = Cursor("g-1", 10, 20, 1)
    await journal.append([accepted("r1", "x" * 50), begun("r1")])
    await journal.append([Draft(said, loop="main", turn="r1", cause="c", actor="a", cursor=cursor)])
    await journal.append([Draft(said, loop="main", turn="r1"), accepted("r2"), accepted("r3", "")])
    return journal


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that nobody has open, all of it in its file."""
    database = tmp_path_factory.mktemp("journal") / "x.db"

    async def write() -> None:
        store = await open_store(sqlite_url(database))
        await (await _written(store)).lease.release()
        await store.close()

    asyncio.run(write())
    assert [file.name for file in database.parent.glob("x.db-*")] == []
    return database


def _cells(database: Path) -> range:
    """The bytes of the file that the records' rows lie in: all of them are in the table's first page."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    page = int(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'record'").get)
    size = int(connection.pragma("page_size"))
    connection.close()
    start = (page - 1) * size
    header = database.read_bytes()[start : start + 8]
    assert header[0] == 13, "a leaf"
    assert int.from_bytes(header[3:5], "big") == RECORDS
    return range(start + int.from_bytes(header[5:7], "big"), start + size)


def _flip(database: Path, offset: int, bit: int) -> None:
    with database.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


async def _looked_at(database: Path) -> tuple[Verified, list[int], IntegrityError | None]:
    """What `verify` finds, and what a plain reader is given before it is refused."""
    store = await open_store(sqlite_url(database))
    given: list[int] = []
    refused = None
    found = await verify(store, "s")
    try:
        async for record in read_records(store, "s"):
            given.append(record.seq)
    except IntegrityError as error:
        refused = error
    finally:
        await store.close()
    return found, given, refused


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_bit_flipped_anywhere_in_a_row_is_named_and_what_comes_before_it_is_read(
    written: Path, place: float, bit: int
) -> None:
    cells = _cells(written)
    offset = cells[int(place * len(cells))]
    _flip(written, offset, bit)
    try:
        found, given, refused = asyncio.run(_looked_at(written))
    finally:
        _flip(written, offset, bit)
    assert found.fault is not None, f"byte {offset - cells.start} of {len(cells)}"
    assert refused is not None
    assert found.fault.reason
    assert given == list(range(1, found.fault.seq))
    assert found.seq == found.fault.seq - 1


def _change(store: Store, sql: str, values: tuple[SQLiteValue, ...] = ()) -> None:
    connection = apsw.Connection(str(database_path(store.url, {})))
    connection.execute(sql, values)
    connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE record SET epoch = epoch + 1 WHERE seq = 7",
        "UPDATE record SET id = randomblob(16) WHERE seq = 7",
        "UPDATE record SET at = at + 1 WHERE seq = 7",
        "UPDATE record SET type = 'TurnDone' WHERE seq = 7",
        "UPDATE record SET v = 2 WHERE seq = 7",
        "UPDATE record SET loop = NULL WHERE seq = 7",
        "UPDATE record SET turn = '' WHERE seq = 7",
        "UPDATE record SET cause = '' WHERE seq = 7",
        "UPDATE record SET actor = '' WHERE seq = 7",
        "UPDATE record SET cursor = x'' WHERE seq = 7",
        "UPDATE record SET body = CAST(body AS TEXT) WHERE seq = 7",
        "UPDATE record SET body = body || x'20' WHERE seq = 7",
        "UPDATE record SET chain = zeroblob(16) WHERE seq = 7",
        "UPDATE record SET seq = 100 WHERE seq = 7",
        "UPDATE record SET s = 100 WHERE seq = 7",
        "UPDATE record SET at = at + 0.5 WHERE seq = 7",
        "UPDATE record SET cause = x'ff' WHERE seq = 7",
    ],
)
async def test_every_column_is_in_the_chain_also_whether_it_is_empty_or_not_there(
    store: Store, change: str
) -> None:
    await _written(store)
    _change(store, change)
    found = await verify(store, "s")
    assert found.fault is not None
    assert (found.fault.kind, found.fault.seq, found.seq) == ("record", 7, 6)
    with pytest.raises(IntegrityError) as refused:
        await _all(store)
    assert (refused.value.seq, refused.value.reason) == (7, found.fault.reason)


async def _all(store: Store) -> list[Record]:
    return [record async for record in read_records(store, "s")]


async def test_a_sound_journal_is_verified_whole(store: Store) -> None:
    journal = await _written(store)
    told: list[int] = []
    found = await verify(store, "s", Look(marks=frozenset({3, RECORDS}), told=told.append))
    assert (found.fault, found.newer, found.seq) == (None, None, RECORDS)
    assert found.chain == journal.state.chain == found.chains[RECORDS]
    assert found.chains.keys() == {3, RECORDS}
    assert found.state == journal.state
    assert told == [RECORDS]


async def test_a_lost_body_is_a_fault_of_its_own_kind_unless_nothing_is_folded_from_it(store: Store) -> None:
    journal = await _written(store)
    call = CallObserved(call="c", name="n", status="completed", output="y" * 300_000)
    await journal.append([Draft(call, loop="main", turn="r1")])
    blobs = Layout.of(database_path(store.url, {})).blobs
    (blob,) = blobs.glob("??/" + "[0-9a-f]" * 64)
    blob.unlink()
    found = await verify(store, "s")
    assert found.fault is not None
    assert (found.fault.kind, found.fault.seq) == ("body", RECORDS + 1)
    assert (await verify(store, "s", Look(bodies="outline"))).fault is None


async def test_a_journal_that_contradicts_itself_is_a_fault_of_its_rules(store: Store) -> None:
    """Such a record is stored by no owner: a program that is wrong could."""
    journal = await _written(store)
    row = (await store.read("s", RECORDS - 1))[0]
    twice = row._replace(seq=RECORDS + 1, chain=b"", id=b"0" * 16)
    twice = twice._replace(chain=chain_of(journal.state.chain, "s", twice))
    _insert(store, twice)
    found = await verify(store, "s")
    assert found.fault is not None
    assert (found.fault.kind, found.fault.seq) == ("rule", RECORDS + 1)
    assert "accepted before" in found.fault.reason
    assert found.state.seq == RECORDS


def _insert(store: Store, row: Row) -> None:
    _change(store, "INSERT INTO record VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


@pytest.mark.parametrize(("type_", "v"), [("SomethingNew", 1), ("TurnDone", 7)])
async def test_behind_a_record_of_a_newer_outlast_the_chain_is_still_checked(
    store: Store, type_: str, v: int
) -> None:
    journal = await _written(store)
    row = (await store.read("s", RECORDS - 1))[0]
    chain = journal.state.chain
    for seq in (RECORDS + 1, RECORDS + 2):
        newer = row._replace(seq=seq, type=type_, v=v, body=b'{"new":1}', id=bytes([seq] * 16))
        newer = newer._replace(chain=chain_of(chain, "s", newer))
        chain = newer.chain
        _insert(store, newer)
    found = await verify(store, "s")
    assert found.fault is None
    assert found.newer is not None
    assert (found.newer.seq, found.newer.type, found.newer.v) == (RECORDS + 1, type_, v)
    assert (found.seq, found.state.seq) == (RECORDS + 2, RECORDS)
    known = [item async for item in read_known(store, "s")]
    assert [item.row.type for item in known if isinstance(item, Strange)] == [type_, type_]
    assert len(known) == RECORDS + 2
    with pytest.raises(UnsupportedRecordError, match=rf"{type_}.*version {v}"):
        await load_state(store, "s")
    _change(store, "UPDATE record SET at = 1 WHERE seq = ?", (RECORDS + 2,))
    found = await verify(store, "s")
    assert found.fault is not None
    assert found.fault.seq == RECORDS + 2


async def test_a_journal_that_got_shorter_names_both_ends(store: Store) -> None:
    await _written(store)
    _change(store, "DELETE FROM record WHERE seq > 5")
    found = await verify(store, "s")
    assert found.fault is not None
    assert (found.fault.kind, found.fault.seq, found.fault.noted) == ("shorter", 6, RECORDS)
    assert f"5 < {RECORDS}" in found.fault.reason
    assert [record.seq async for record in _until_refused(store)] == [1, 2, 3, 4, 5]


async def _until_refused(store: Store) -> AsyncIterator[Record]:
    try:
        async for record in read_records(store, "s"):
            yield record
    except IntegrityError:
        return


async def test_a_journal_with_another_history_than_its_witness_says_is_named(store: Store) -> None:
    """Sound in itself: only the witness knows that it is not the one that was stored."""
    journal = await _written(store)
    row = (await store.read("s", RECORDS - 1))[0]
    before = (await store.read("s", RECORDS - 2))[0].chain
    other = row._replace(at=row.at + 1)
    other = other._replace(chain=chain_of(before, "s", other))
    _change(store, "DELETE FROM record WHERE seq = ?", (RECORDS,))
    _insert(store, other)
    assert other.chain != journal.state.chain
    found = await verify(store, "s")
    assert found.fault is not None
    assert (found.fault.kind, found.fault.seq, found.seq) == ("replaced", RECORDS, RECORDS)
