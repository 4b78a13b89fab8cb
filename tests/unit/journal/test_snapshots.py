"""Reading begins at the newest snapshot that is true of the journal; owners write them, in nobody's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.stores import in_time
from tests.unit.journal.test_journal import accepted, begun, opened

from outlast import faults
from outlast.errors import FencedError, IntegrityError, LeaseLostError
from outlast.journal import Journal, load, load_state, read_records
from outlast.journal.loading import begin_at
from outlast.journal.snapshots import LEAST
from outlast.records.codec import BLOB_LIMIT, chain_of, encode_blob_ref
from outlast.records.envelope import Draft
from outlast.records.types import AgentEventRecorded, AgentStateFolded, Fence, TurnDone
from outlast.state import snapshot as snapshots
from outlast.state.fold import digest, fold
from outlast.state.snapshot import FOLD_VERSION, UnfitSnapshotError, snapshot_of
from outlast.store.contract import Append, Row, Snapshot, Store
from outlast.store.url import database_path, open_store, sqlite_url
from outlast.testing.journals import GeneratedJournal, journals

TEXT = 60_000


def change(store: Store, sql: str, values: tuple[object, ...] = ()) -> None:
    connection = apsw.Connection(str(database_path(store.url, {})))
    connection.execute(sql, values)
    connection.close()


def said(text: str = "x" * TEXT) -> Draft:
    return Draft(AgentEventRecorded(kind="message", text=text), loop="main", turn="r")


async def working(store: Store, name: str = "s") -> Journal:
    """A session with an open turn."""
    journal = await opened(store, name)
    await journal.append([accepted("r"), begun("r")])
    return journal


async def with_snapshots(store: Store, count: int = 2) -> Journal:
    """A session with so many snapshots, and some records after the newest."""
    journal = await working(store)
    while len(await store.snapshots("s")) < count:
        await journal.append([said()])
        await journal._snapshots.rest()
    await journal.append([said("the tail"), said("and its end")])
    return journal


async def whole(store: Store) -> Any:
    """The state by every record."""
    return fold("s", [record async for record in read_records(store, "s")])


# --- reading -----------------------------------------------------------------------------------


async def test_reading_begins_at_the_newest_snapshot(store: Store) -> None:
    journal = await with_snapshots(store)
    newest, older = await store.snapshots("s")
    loaded = await load(store, "s")
    assert loaded.state == journal.state == await whole(store)
    assert digest(loaded.state) == digest(journal.state)
    assert loaded.verified_from == newest.seq > older.seq
    assert loaded.snapshot == len(newest.body)
    assert 0 < loaded.tail < 2_000
    assert loaded.unfit == ()
    # Nothing before it is read, so nothing is known of it.
    change(store, "DELETE FROM record WHERE seq < ?", (newest.seq - 1,))
    assert (await load(store, "s")).state == journal.state


async def test_a_journal_without_snapshots_is_read_whole(store: Store) -> None:
    journal = await opened(store)
    loaded = await load(store, "s")
    assert (loaded.state, loaded.verified_from, loaded.snapshot) == (journal.state, 0, 0)
    assert (await load(store, "nobody")).state.seq == 0


async def test_a_later_owner_knows_where_reading_began(store: Store) -> None:
    journal = await with_snapshots(store)
    assert journal.verified_from == 0
    await journal.release()
    newest = (await store.snapshots("s"))[0]
    successor = await opened(store)
    assert successor.verified_from == newest.seq
    await successor.append([said(), Draft(TurnDone(stop_reason="end"), loop="main", turn="r")])
    assert successor.state == await whole(store)


def resigned(snapshot: Snapshot, **changes: Any) -> Snapshot:
    changed = replace(snapshot, **changes)
    return replace(changed, digest=snapshots._digest(changed))


def of_state(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """A whole snapshot of a state that never was."""
    state = snapshots.state_of(snapshot)
    for name, value in changes.items():
        setattr(state, name, value)
    return snapshot_of(state)


WRONG: dict[str, Callable[[Snapshot], Snapshot]] = {
    "changed": lambda s: replace(s, body=s.body[:-1] + bytes([s.body[-1] ^ 1])),
    "cut": lambda s: replace(s, body=s.body[:-5]),
    "without its digest": lambda s: replace(s, digest=b""),
    "of a newer fold": lambda s: resigned(s, fold_version=FOLD_VERSION + 1),
    "of an older fold": lambda s: resigned(s, fold_version=FOLD_VERSION - 1),
    "of another session": lambda s: resigned(s, name="other"),
    "no state": lambda s: resigned(s, body=b"\x80"),
    "of another history": lambda s: of_state(s, chain=b"\0" * 16),
    "of another epoch": lambda s: of_state(s, epoch=1_000_000),
    "ahead of the journal": lambda s: of_state(s, seq=s.seq + 1000),
    "made by a wrong fold": lambda s: of_state(s, open_turns={}),
}


def replaced(store: Store, old: Snapshot, new: Snapshot) -> None:
    change(
        store,
        "UPDATE snapshot SET seq = ?, chain = ?, fold_version = ?, digest = ?, body = ? WHERE seq = ?",
        (new.seq, new.chain, new.fold_version, new.digest, new.body, old.seq),
    )


@pytest.mark.parametrize("kind", WRONG)
async def test_a_wrong_snapshot_is_passed_over_for_the_older_one(store: Store, kind: str) -> None:
    journal = await with_snapshots(store)
    await journal.append([Draft(TurnDone(stop_reason="end"), loop="main", turn="r")])
    newest, older = await store.snapshots("s")
    replaced(store, newest, WRONG[kind](newest))
    loaded = await load(store, "s")
    assert loaded.state == journal.state
    assert loaded.verified_from == older.seq
    assert [unfit.seq for unfit in loaded.unfit] == [(await store.snapshots("s"))[0].seq]
    assert loaded.unfit[0].reason


@pytest.mark.parametrize("kind", WRONG)
async def test_where_both_are_wrong_the_whole_journal_is_read(store: Store, kind: str) -> None:
    journal = await with_snapshots(store)
    await journal.append([Draft(TurnDone(stop_reason="end"), loop="main", turn="r")])
    for snapshot in await store.snapshots("s"):
        replaced(store, snapshot, WRONG[kind](snapshot))
    loaded = await load(store, "s")
    assert (loaded.state, loaded.verified_from) == (journal.state, 0)
    assert len(loaded.unfit) == 2


async def test_snapshots_that_cannot_be_read_are_as_if_there_were_none(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await with_snapshots(store)
    change(store, "DROP TABLE snapshot")
    loaded = await load(store, "s")
    assert (loaded.state, loaded.verified_from) == (journal.state, 0)
    assert [unfit.seq for unfit in loaded.unfit] == [0]
    for _ in range(6):
        await journal.append([said()])
    await journal.release()
    assert len(caplog.records) == 1


async def test_a_snapshot_of_another_stores_session_of_that_name_is_passed_over(
    store: Store, tmp_path: Path
) -> None:
    elsewhere = await open_store(sqlite_url(tmp_path / "elsewhere" / "x.db"))
    await with_snapshots(elsewhere)
    journal = await with_snapshots(store)
    foreign = await elsewhere.snapshots("s")
    await elsewhere.close()
    for own, other in zip(await store.snapshots("s"), foreign, strict=True):
        assert own.seq == other.seq
        replaced(store, own, other)
    loaded = await load(store, "s")
    assert (loaded.state, loaded.verified_from) == (journal.state, 0)
    assert all("another one" in unfit.reason for unfit in loaded.unfit)


async def test_damage_after_the_snapshot_is_named_and_not_laid_to_it(store: Store) -> None:
    journal = await with_snapshots(store)
    change(store, "UPDATE record SET at = at + 1 WHERE seq = ?", (journal.state.seq,))
    with pytest.raises(IntegrityError) as caught:
        await load(store, "s")
    assert caught.value.seq == journal.state.seq


async def test_damage_of_the_record_that_a_snapshot_follows_on_is_named(store: Store) -> None:
    await with_snapshots(store)
    newest, older = await store.snapshots("s")
    change(store, "UPDATE record SET at = at + 1 WHERE seq = ?", (newest.seq,))
    with pytest.raises(UnfitSnapshotError):
        await begin_at(store, newest)
    with pytest.raises(IntegrityError) as caught:
        await load(store, "s")
    assert caught.value.seq == newest.seq
    assert (await begin_at(store, older)).seq == older.seq


async def test_a_journal_that_got_shorter_is_noticed_at_a_snapshot_too(store: Store) -> None:
    """Its end is cut off, so that nothing comes after the snapshot."""
    await with_snapshots(store)
    newest = (await store.snapshots("s"))[0]
    change(store, "DELETE FROM record WHERE seq > ?", (newest.seq,))
    with pytest.raises(IntegrityError, match=r"shorter|ends"):
        await load(store, "s")


def _with_blobs(journal: GeneratedJournal, limit: int) -> tuple[list[Row], list[bytes]]:
    """The rows as they are when bodies over `limit` bytes are kept as blobs."""
    rows: list[Row] = []
    blobs: list[bytes] = []
    for row, record in zip(journal.rows, journal.records, strict=True):
        body = row.body
        if len(body) > limit:
            blobs.append(body)
            body = encode_blob_ref(_sha256(body), len(body), record.body.outline())
        kept = row._replace(body=body)
        previous = rows[-1].chain if rows else b""
        rows.append(kept._replace(chain=chain_of(previous, journal.session, kept)))
    return rows, blobs


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


async def _loaded_at_each_record(journal: GeneratedJournal, url: str, limit: int) -> None:
    rows, blobs = _with_blobs(journal, limit)
    store = await open_store(url)
    for blob in blobs:
        await store.put_blob(blob)
    lease = await store.acquire(journal.session)
    at = 0
    while at < len(rows):
        while lease.epoch < rows[at].epoch:
            await lease.release()
            lease = await store.acquire(journal.session)
        await store.append(Append(journal.session, (rows[at],), at, lease))
        at += 1
        # The state by the snapshot before this record, and this record.
        loaded = await load(store, journal.session)
        assert loaded.verified_from == (at - 1 if at > 1 else 0)
        assert digest(replaced_chain(loaded.state)) == digest(
            replaced_chain(fold(journal.session, journal.records[:at]))
        )
        await store.put_snapshot(snapshot_of(loaded.state), lease)
    await store.close()


def replaced_chain(state: Any) -> Any:
    """Without what the place of a body changes."""
    twin = state.copy()
    twin.chain = b""
    return twin


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(journals(max_moves=25), st.sampled_from([60, 120, BLOB_LIMIT]))
def test_from_a_snapshot_at_any_record_the_state_is_that_of_the_whole_journal(
    tmp_path_factory: pytest.TempPathFactory, journal: GeneratedJournal, limit: int
) -> None:
    """Invariant 7 through a store, also where bodies are kept as blobs."""
    url = sqlite_url(tmp_path_factory.mktemp("journal") / "x.db")
    asyncio.run(_loaded_at_each_record(journal, url, limit))


# --- writing -----------------------------------------------------------------------------------


async def test_none_is_written_for_what_is_read_in_a_moment(store: Store) -> None:
    journal = await working(store)
    for _ in range(LEAST // TEXT):
        await journal.append([said()])
        await journal._snapshots.rest()
    assert await store.snapshots("s") == []
    await journal.append([said()])
    await journal._snapshots.rest()
    [snapshot] = await store.snapshots("s")
    assert snapshot.seq == journal.state.seq
    assert snapshots.state_of(snapshot) == journal.state


async def test_many_small_records_are_much_to_read_too(store: Store) -> None:
    journal = await working(store)
    for _ in range(30):
        await journal.append([said("x")] * 50)
    await journal._snapshots.rest()
    assert len(await store.snapshots("s")) == 1


async def test_the_newest_two_are_kept_and_the_tail_stays_bounded(store: Store) -> None:
    journal = await working(store)
    for _ in range(40):
        await journal.append([said()])
        await journal._snapshots.rest()
        assert (await load(store, "s")).tail <= LEAST + TEXT + 1_000
    assert len(await store.snapshots("s")) == 2


async def test_a_long_journal_without_one_gets_one_from_its_next_owner(store: Store) -> None:
    journal = await with_snapshots(store)
    change(store, "DELETE FROM snapshot")
    await journal.release()
    successor = await opened(store)
    await successor.release()
    [snapshot] = await store.snapshots("s")
    assert snapshot.seq == successor.state.seq


async def test_a_large_state_is_written_again_only_when_as_much_has_come(store: Store) -> None:
    """A snapshot of a megabyte costs a megabyte: the next one waits for as much of a journal."""
    journal = await working(store)
    await journal.append([folded(b"f" * 1_000_000)])
    await journal._snapshots.rest()
    [first] = await store.snapshots("s")
    assert len(first.body) > 1_000_000
    for _ in range(15):
        await journal.append([said()])
        await journal._snapshots.rest()
    assert [each.seq for each in await store.snapshots("s")] == [first.seq]
    for _ in range(5):
        await journal.append([said()])
        await journal._snapshots.rest()
    assert len(await store.snapshots("s")) == 2


def folded(state: bytes) -> Draft:
    body = AgentStateFolded(generation="g", offset=1, stdout=1, last_input=0, state=state)
    return Draft(body, loop="main", turn="r")


async def test_large_folded_states_of_an_agent_do_not_add_up(store: Store) -> None:
    """Each is a blob that opening needs; from the snapshot on only the newest few are fetched."""
    journal = await working(store)
    for number in range(12):
        await journal.append([folded(b"%d" % number * 400_000)])
        await journal._snapshots.rest()
    loaded = await load(store, "s")
    assert loaded.state == journal.state
    assert loaded.state.loops["main"].folded == journal.state.loops["main"].folded
    assert loaded.tail < 3_000_000
    # What the snapshot holds needs no blob any more.
    newest = (await store.snapshots("s"))[0]
    for path in (Path(database_path(store.url, {})).parent / "x.d" / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    assert (await begin_at(store, newest)).loops["main"].folded is not None


class Watched:
    """A real store whose snapshots wait, or fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gate: asyncio.Event | None = None
        self.asked = 0
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put_snapshot(self, snapshot: Snapshot, lease: Any) -> None:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        await self._store.put_snapshot(snapshot, lease)


@pytest.fixture
def watched(store: Store) -> Any:
    return Watched(store)


async def test_appends_go_on_while_a_snapshot_is_written(store: Store, watched: Any) -> None:
    journal = await working(watched)
    watched.gate = asyncio.Event()
    for _ in range(15):
        await in_time(journal.append([said()]))
    assert watched.asked == 1
    giving_back = asyncio.create_task(journal.release())
    await asyncio.sleep(0)
    assert not giving_back.done()
    assert await store.holder("s") is not None
    watched.gate.set()
    await in_time(giving_back)
    assert await store.holder("s") is None
    # It is of the record that made it due, not of those that came meanwhile.
    [snapshot] = await store.snapshots("s")
    assert snapshot.seq < journal.state.seq
    assert (await load(store, "s")).state == journal.state


async def test_one_that_cannot_be_written_is_told_once_and_keeps_nobody(
    watched: Any, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await working(watched)
    watched.error = OSError("no space")
    with caplog.at_level(logging.WARNING, logger="outlast"):
        for _ in range(30):
            await journal.append([said()])
            await journal._snapshots.rest()
    assert watched.asked > 2  # it is tried again
    assert watched.asked < 10  # and not at each append
    [told] = caplog.records
    assert "s" in told.getMessage()
    assert "no space" in told.getMessage()
    assert not journal.lost.is_set()
    watched.error = None
    for _ in range(6):
        await journal.append([said()])
        await journal._snapshots.rest()
    assert (await load(watched, "s")).verified_from > 0


async def test_a_replaced_owners_snapshot_is_refused_and_ends_it(
    store: Store, watched: Any, caplog: pytest.LogCaptureFixture
) -> None:
    journal = await working(watched)
    watched.gate = asyncio.Event()
    while not watched.asked:
        await journal.append([said()])
        await asyncio.sleep(0)
    change(store, "UPDATE lease SET epoch = epoch + 1")  # as for an owner that was declared dead
    watched.gate.set()
    await journal._snapshots.rest()
    assert journal.lost.is_set()
    assert await store.snapshots("s") == []
    assert not caplog.records
    with pytest.raises(LeaseLostError):
        await journal.append([said()])


async def test_a_fenced_snapshot_stays_refused_for_an_owner_that_came_back(store: Store) -> None:
    old = await with_snapshots(store)
    await old.lease.release()
    successor = await opened(store)
    with pytest.raises(FencedError):
        await store.put_snapshot(snapshot_of(old.state), old.lease)
    assert successor.state == await load_state(store, "s")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes fault points act in this process."""

    def plan(text: str) -> None:
        monkeypatch.setenv("OUTLAST_FAULTS_TESTING", "1")
        monkeypatch.setenv("OUTLAST_FAULTS", text)
        monkeypatch.setattr(faults, "_plan", None)
        monkeypatch.setattr(faults, "_passed", {})

    yield plan
    faults._plan = None


async def test_a_disk_that_is_full_for_the_snapshot_leaves_the_journal_alone(
    store: Store, failing: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    journal = await working(store)
    failing("store.snapshot.before_commit=raise:ENOSPC")
    for _ in range(8):
        await journal.append([said()])
    await journal._snapshots.rest()
    assert await store.snapshots("s") == []
    assert len(caplog.records) == 1
    failing("")
    assert (await load(store, "s")).state == journal.state == await whole(store)
    await journal.append([Draft(TurnDone(stop_reason="end"), loop="main", turn="r")])
    await journal.release()
    lease = await store.acquire("s")
    successor = await Journal.open(store, lease)
    await successor.append(
        [Draft(Fence(epoch=lease.epoch, holder="me", previous_epoch=successor.state.epoch))]
    )
    await successor.release()
    assert len(await store.snapshots("s")) == 1
