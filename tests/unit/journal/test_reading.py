"""Readers and followers: one cursor, no gap, no duplicate; damage is named, never skipped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.stores import in_time
from tests.unit.journal.test_journal import accepted, intact, opened

from outlast.errors import IntegrityError, UsageError
from outlast.journal import CaughtUp, Journal, follow, load_state, read_record, read_records
from outlast.records.codec import BLOB_LIMIT
from outlast.records.envelope import Record
from outlast.state.fold import digest, fold
from outlast.store.contract import Append, Store
from outlast.store.url import database_path, open_store, sqlite_url
from outlast.testing.journals import GeneratedJournal, journals


async def _stored(journal: GeneratedJournal, url: str, batch: int) -> list[Record]:
    """The generated journal's rows through a store, each epoch under its own lease; and read again."""
    store = await open_store(url)
    rows, at = journal.rows, 0
    while at < len(rows):
        lease = await store.acquire(journal.session)
        while lease.epoch < rows[at].epoch:
            await lease.release()
            lease = await store.acquire(journal.session)
        while at < len(rows) and rows[at].epoch == lease.epoch:
            end = at + 1
            while end < len(rows) and end - at < batch and rows[end].epoch == lease.epoch:
                end += 1
            await store.append(Append(journal.session, rows[at:end], at, lease))
            at = end
        await lease.release()
    found = [record async for record in read_records(store, journal.session)]
    assert digest(await load_state(store, journal.session)) == digest(fold(journal.session, found))
    await store.close()
    return found


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(journals(), st.integers(1, 7))
def test_a_journal_comes_back_whole_however_it_was_batched(
    tmp_path_factory: pytest.TempPathFactory, journal: GeneratedJournal, batch: int
) -> None:
    url = sqlite_url(tmp_path_factory.mktemp("journal") / "x.db")
    assert asyncio.run(_stored(journal, url, batch)) == list(journal.records)


async def _five(store: Store) -> Journal:
    journal = await opened(store)
    await journal.append([accepted("r1"), accepted("r2")])
    return journal


def _change(store: Store, sql: str) -> None:
    connection = apsw.Connection(str(database_path(store.url, {})))
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    ("sql", "seq"),
    [
        ("UPDATE record SET body = CAST(body || ' ' AS BLOB) WHERE seq = 2", 2),
        ("UPDATE record SET at = at + 1 WHERE seq = 4", 4),
        ("UPDATE record SET actor = 'me' WHERE seq = 1", 1),
        ("UPDATE record SET chain = zeroblob(16) WHERE seq = 3", 3),
        ("DELETE FROM record WHERE seq = 3", 3),
        ("DELETE FROM record WHERE seq = 1", 1),
        ("DELETE FROM record WHERE seq < 5", 1),
    ],
)
async def test_damage_is_named_by_the_record_it_shows_at(store: Store, sql: str, seq: int) -> None:
    await _five(store)
    _change(store, sql)
    assert await intact(store) == (list(range(1, seq)), seq)


async def test_a_gap_wider_than_a_page_is_no_end(store: Store) -> None:
    journal = await opened(store)
    for start in range(0, 2500, 500):
        await journal.append([accepted(f"r{i}") for i in range(start, start + 500)])
    assert len([record async for record in read_records(store, "s")]) == 2503
    _change(store, "DELETE FROM record WHERE seq > 10 AND seq < 2503")
    assert await intact(store) == (list(range(1, 11)), 11)
    with pytest.raises(IntegrityError):
        await anext(read_records(store, "s", 100))


async def test_reading_begins_anywhere(store: Store) -> None:
    await _five(store)
    whole = [record async for record in read_records(store, "s")]
    for after in range(6):
        assert [record async for record in read_records(store, "s", after)] == whole[after:]
    assert [record async for record in read_records(store, "nobody")] == []


@pytest.mark.parametrize(("name", "after"), [("s", 6), ("s", 50), ("nobody", 1)])
async def test_a_cursor_beyond_the_end_is_refused(store: Store, name: str, after: int) -> None:
    """It is of another journal, and what that gets up to there would be taken for known."""
    await _five(store)
    for items in (read_records(store, name, after), follow(store, name, after)):
        with pytest.raises(UsageError, match=f"nothing comes after record {after}"):
            await in_time(anext(items))


async def test_a_follower_gets_what_is_there_then_a_marker_then_what_comes(store: Store) -> None:
    journal = await _five(store)
    got: list[object] = []

    async def collect(wanted: int) -> None:
        async for item in follow(store, "s", 3):
            got.append(item.seq if isinstance(item, Record) else item)
            if len(got) == wanted:
                return

    collecting = asyncio.create_task(collect(8))
    for number in range(5):
        await journal.append([accepted(f"more{number}")])
        await asyncio.sleep(0)
    await in_time(collecting)
    records = [item for item in got if isinstance(item, int)]
    markers = [item for item in got if isinstance(item, CaughtUp)]
    assert records == list(range(4, 11))
    assert len(markers) == 1
    assert got.index(markers[0]) == markers[0].seq - 3


async def test_a_follower_of_a_session_that_is_yet_to_come(store: Store) -> None:
    items = follow(store, "s")
    assert await in_time(anext(items)) == CaughtUp(0)
    coming = asyncio.ensure_future(anext(items))
    await opened(store)
    record = await in_time(coming)
    assert isinstance(record, Record)
    assert (record.seq, record.type) == (1, "Fence")


async def test_followers_and_an_appending_owner_meet_no_gap_and_no_duplicate(
    store: Store, tmp_path: Path
) -> None:
    """Owner and followers in two stores over the same files, as two processes have them."""
    watching = await open_store(store.url)
    journal = await opened(store)

    async def collect(after: int) -> list[int]:
        got: list[int] = []
        async for item in follow(watching, "s", after):
            if isinstance(item, Record):
                got.append(item.seq)
                if item.seq == 43:
                    break
        return got

    collecting = [asyncio.create_task(collect(after)) for after in (0, 2, 3)]
    for number in range(20):
        await journal.append([accepted(f"a{number}"), accepted(f"b{number}")])
    got = await in_time(asyncio.gather(*collecting))
    assert got == [list(range(1, 44)), list(range(3, 44)), list(range(4, 44))]
    await watching.close()


async def test_one_record_is_read_by_its_number(store: Store) -> None:
    journal = await _five(store)
    large = "x" * BLOB_LIMIT
    await journal.append([accepted("r3", large)])
    whole = [record async for record in read_records(store, "s")]
    assert [await read_record(store, "s", seq) for seq in range(1, 7)] == whole
    with pytest.raises((UsageError, IntegrityError)):
        await read_record(store, "s", 7)
    _change(store, "UPDATE record SET at = at + 1 WHERE seq = 4")
    with pytest.raises(IntegrityError) as caught:
        await read_record(store, "s", 4)
    assert caught.value.seq == 4
