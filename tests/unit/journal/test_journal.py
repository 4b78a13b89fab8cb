"""The journal's single writer: atomic, fenced, shielded; and what it leaves alone when it is refused."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.support.stores import admit, in_time, rows

from outlast.errors import (
    AmbiguousAppendError,
    ConflictError,
    IntegrityError,
    InvalidRecordError,
    LeaseLostError,
    StoreError,
    StoreFullError,
    UsageError,
)
from outlast.ids import new_id
from outlast.journal import Journal, load_state, read_records
from outlast.records.codec import BLOB_LIMIT
from outlast.records.envelope import Draft
from outlast.records.types import (
    AgentEventRecorded,
    BlobRef,
    CallObserved,
    Content,
    Fence,
    GatePrepared,
    InputAccepted,
    LoopStarted,
    Manifest,
    ReplyInterrupted,
    SessionStarted,
    TurnDone,
    TurnStarted,
)
from outlast.state.catalog import catalog_entry
from outlast.state.fold import digest
from outlast.store.contract import Append, Lease, Settlement, Store
from outlast.store.url import open_store

MANIFEST = Manifest(agent="a", agent_kind="command", adapter="command", workspace="/w")


def opening(epoch: int) -> list[Draft]:
    started = SessionStarted(lineage=new_id(), manifest=MANIFEST, fingerprint="f", title="t", workspace="/w")
    loop = LoopStarted(loop="main", name="main", agent="a", agent_kind="command")
    return [Draft(Fence(epoch=epoch, holder="me")), Draft(started), Draft(loop, loop="main")]


def accepted(request: str, text: str = "hi") -> Draft:
    return Draft(InputAccepted(request_id=request, content=[Content(text=text)]), loop="main", cause=request)


def begun(request: str, index: int = 1) -> Draft:
    return Draft(TurnStarted(index=index, request_id=request), loop="main", turn=request)


async def opened(store: Store, name: str = "s") -> Journal:
    lease = await store.acquire(name)
    journal = await Journal.open(store, lease)
    if journal.state.seq == 0:
        await journal.append(opening(lease.epoch))
    else:
        await journal.append(
            [Draft(Fence(epoch=lease.epoch, holder="me", previous_epoch=journal.state.epoch))]
        )
    return journal


@pytest.mark.parametrize("way", ["closed the store", "gave it back", "took it over"])
async def test_a_lease_that_is_gone_is_told_by_its_reason(url: str, way: str) -> None:
    """Whoever closes his own store is not told of another process."""
    store = await open_store(url)
    journal = await opened(store)
    match way:
        case "closed the store":
            await store.close()
        case "gave it back":
            await journal.lease.release()
        case _:
            await journal.lease.release()
            await store.acquire("s")
            journal.lease.reason = None  # as for an owner that was stopped and declared dead
    with pytest.raises(LeaseLostError, match=way):
        await journal.append([accepted("r")])
    with pytest.raises(LeaseLostError, match=way):
        journal.raise_if_lost()
    await store.close()


async def intact(store: Store) -> tuple[list[int], int]:
    """What a reader is given of a damaged journal, and the record that it is then refused for."""
    given: list[int] = []
    try:
        async for record in read_records(store, "s"):
            given.append(record.seq)
    except IntegrityError as error:
        return given, error.seq
    raise AssertionError("the damage was not noticed")


class Troubled:
    """A real store between which and the journal something goes wrong."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lost_answers = 0
        """So many appends are stored and their answer is lost."""
        self.lost_requests = 0
        """So many appends never arrive, and nobody knows."""
        self.full = 0
        self.gate: asyncio.Event | None = None
        """Answers wait for it."""
        self.stored = asyncio.Event()
        self.appends: list[Append] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, batch: Append) -> int:
        self.appends.append(batch)
        if self.full > 0:
            self.full -= 1
            raise StoreFullError("made to fail")
        if self.lost_requests > 0:
            self.lost_requests -= 1
            raise AmbiguousAppendError("made to fail")
        seq = await self._store.append(batch)
        self.stored.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.lost_answers > 0:
            self.lost_answers -= 1
            raise AmbiguousAppendError("made to fail")
        return seq


@pytest.fixture
def troubled(store: Store) -> Any:
    return Troubled(store)


async def test_a_batch_is_durable_folded_and_listed_when_it_returns(store: Store) -> None:
    journal = await opened(store)
    records = await journal.append([accepted("r"), begun("r")])
    assert [record.seq for record in records] == [4, 5]
    assert journal.state.seq == 5
    assert journal.state == await load_state(store, "s")
    [listed] = await store.list()
    assert listed.entry == catalog_entry(journal.state)
    assert listed.entry.state == "running"
    assert [record async for record in read_records(store, "s", 3)] == records


async def test_the_next_owner_begins_with_its_fence(store: Store) -> None:
    journal = await opened(store)
    await journal.lease.release()
    lease = await store.acquire("s")
    successor = await Journal.open(store, lease)
    with pytest.raises(UsageError):
        await successor.append([accepted("r")])
    with pytest.raises(UsageError):
        await successor.append([Draft(Fence(epoch=lease.epoch + 1, holder="me"))])
    await successor.append([Draft(Fence(epoch=lease.epoch, holder="me", previous_epoch=1)), accepted("r")])
    assert successor.state.epoch == lease.epoch
    with pytest.raises(UsageError):
        await successor.append([])


async def test_a_record_that_contradicts_the_journal_is_not_stored(store: Store) -> None:
    journal = await opened(store)
    state = journal.state
    with pytest.raises(IntegrityError):
        await journal.append([accepted("r"), begun("unknown")])
    assert journal.state is state
    assert (await store.tip("s")).seq == state.seq
    with pytest.raises(InvalidRecordError):
        await journal.append([Draft(TurnStarted(index="x", request_id="r"))])  # type: ignore[arg-type]
    await journal.append([accepted("r"), begun("r")])


async def test_settlements_name_the_records_of_their_drafts(store: Store) -> None:
    await admit(store, "s", "r")
    await admit(store, "s", "r2")
    journal = await opened(store)
    await journal.append([accepted("r"), begun("r"), accepted("r2")], settle=[("r", 0), ("r2", 2)])
    assert await store.pending("s") == []
    settled = [await store.settled("s", request) for request in ("r", "r2")]
    assert [tombstone and tombstone.seq for tombstone in settled] == [4, 6]


async def test_an_expected_seq_that_is_past_refuses_the_batch_and_costs_no_lease(store: Store) -> None:
    journal = await opened(store)
    await journal.append([accepted("r")], expected_seq=3)
    with pytest.raises(ConflictError) as refused:
        await journal.append([accepted("r2")], expected_seq=3)
    assert refused.value.tip == 4
    assert not journal.lost.is_set()
    await journal.append([accepted("r2")], expected_seq=4)


async def test_concurrent_callers_are_served_in_the_order_of_their_calls(store: Store) -> None:
    journal = await opened(store)
    calls = [journal.append([accepted(f"r{i}"), accepted(f"r{i}b")]) for i in range(20)]
    batches = await in_time(asyncio.gather(*calls))
    assert [record.seq for batch in batches for record in batch] == list(range(4, 44))
    assert list(journal.state.queue) == [f"r{i}{suffix}" for i in range(20) for suffix in ("", "b")]


async def test_nul_block(store: Store) -> None:
    """NUL, line ends of all kinds and emoji go through unchanged, also around the limit of a blob."""
    text = "\x00\r\n\n\r\U0001f642 -- \u2028"
    journal = await opened(store)
    for number, size in enumerate((1, BLOB_LIMIT - 200, BLOB_LIMIT, 4 * BLOB_LIMIT)):
        given = text * (size // len(text) + 1)
        [record] = await journal.append([accepted(f"r{number}", given)])
        [found] = [r async for r in read_records(store, "s", record.seq - 1)]
        assert found == record
        assert isinstance(found.body, InputAccepted)
        assert found.body.content == [Content(text=given)]


async def test_a_large_body_is_a_blob_and_a_lost_blob_fails_closed(store: Store) -> None:
    journal = await opened(store)
    [record] = await journal.append([accepted("r", "x" * BLOB_LIMIT)])
    await journal.append([accepted("r2")])
    [raw, after] = [r async for r in read_records(store, "s", 3, large="reference")]
    assert isinstance(raw.body, BlobRef)
    assert raw.chain == record.chain
    path = store.folder / "blobs" / raw.body.digest[:2] / raw.body.digest
    path.write_bytes(b"changed")
    with pytest.raises(IntegrityError) as refused:
        await anext(read_records(store, "s", 3))
    assert refused.value.seq == record.seq
    assert [r async for r in read_records(store, "s", 4)] == [after]


async def test_a_session_is_opened_without_what_was_said_in_it(store: Store) -> None:
    """Large inputs and outputs are not read for it; a lost one of long ago keeps nobody out."""
    lease = await store.acquire("s")
    journal = await Journal.open(store, lease)
    untitled = [
        Draft(replace(d.body, title="")) if isinstance(d.body, SessionStarted) else d
        for d in opening(lease.epoch)
    ]
    await journal.append(untitled)
    await journal.append([accepted("r", "called by this\n" + "x" * BLOB_LIMIT), begun("r")])
    said = [
        AgentEventRecorded(kind="message", text="\0" * 65_536),
        CallObserved(call="c", name="n", status="started", input="\0" * BLOB_LIMIT),
        ReplyInterrupted(text="\0" * BLOB_LIMIT),
        TurnDone(stop_reason="end_turn"),
    ]
    await journal.append([Draft(body, loop="main", turn="r") for body in said])
    assert len(list(store.folder.glob("blobs/*/*"))) == 4
    shutil.rmtree(store.folder / "blobs")
    found = await load_state(store, "s")
    assert digest(found) == digest(journal.state)
    assert found.title.startswith("called by this x")
    with pytest.raises(IntegrityError, match="missing"):
        assert [r async for r in read_records(store, "s")]


async def test_a_large_body_that_is_all_folded_is_read(store: Store) -> None:
    journal = await opened(store)
    payload = b"p" * BLOB_LIMIT
    await journal.append(
        [Draft(GatePrepared(gate="g", name="1", generation="g", payload=payload), loop="main")]
    )
    assert (await load_state(store, "s")).prepared["g"].payload == payload


async def test_an_answer_that_was_lost_is_found_by_the_same_rows_again(store: Store, troubled: Any) -> None:
    lease = await store.acquire("s")
    journal = await Journal.open(troubled, lease)
    troubled.lost_answers, troubled.lost_requests = 2, 0
    await journal.append(opening(lease.epoch))
    troubled.lost_requests = 3
    await journal.append([accepted("r")])
    assert journal.state.seq == 4
    assert journal.state == await load_state(store, "s")
    # The very same rows each time: another try with new ids would be another record.
    assert len({batch.rows for batch in troubled.appends}) == 2


async def test_a_full_disk_leaves_the_journal_where_it_was(store: Store, troubled: Any) -> None:
    lease = await store.acquire("s")
    journal = await Journal.open(troubled, lease)
    await journal.append(opening(lease.epoch))
    troubled.full = 2
    for _ in range(2):
        with pytest.raises(StoreFullError):
            await journal.append([accepted("r")])
        assert journal.state.seq == 3
    assert not journal.lost.is_set()
    await journal.append([accepted("r")])
    assert list(journal.state.queue) == ["r"]


async def test_a_caller_that_is_cancelled_is_held_until_the_outcome_is_known(
    store: Store, troubled: Any
) -> None:
    lease = await store.acquire("s")
    journal = await Journal.open(troubled, lease)
    await journal.append(opening(lease.epoch))
    troubled.gate = asyncio.Event()
    troubled.stored.clear()
    appending = asyncio.create_task(journal.append([accepted("r")]))
    await in_time(troubled.stored.wait())
    for _ in range(3):
        appending.cancel()
        await asyncio.sleep(0)
        assert not appending.done()
    troubled.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await appending
    # It was stored, and the journal knows it.
    assert list(journal.state.queue) == ["r"]
    assert (await store.tip("s")).seq == journal.state.seq
    troubled.gate = None
    await journal.append([accepted("r2")])


async def test_a_caller_that_is_cancelled_while_the_store_is_locked_is_held_until_it_is_stored(
    store: Store,
) -> None:
    journal = await opened(store)
    turn = os.open(store.folder / "turn", os.O_RDWR)
    fcntl.flock(turn, fcntl.LOCK_EX)
    appending = asyncio.create_task(journal.append([accepted("r")]))
    await asyncio.sleep(0)
    for _ in range(3):
        appending.cancel()
        await asyncio.sleep(0)
        assert not appending.done()
    os.close(turn)
    with pytest.raises(asyncio.CancelledError):
        await in_time(appending)
    assert "r" in journal.state.queue
    assert (await load_state(store, "s")).queue["r"] == journal.state.queue["r"]
    await journal.append([accepted("r2")])
    assert await load_state(store, "s") == journal.state


async def test_a_caller_that_is_cancelled_while_its_batch_is_refused_hears_of_both(store: Store) -> None:
    journal = await opened(store)
    await journal.lease.release()
    await opened(store)  # its epoch is higher
    appending = asyncio.create_task(journal.append([accepted("r")]))
    await asyncio.sleep(0)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError) as found:
        await in_time(appending)
    assert isinstance(found.value.__cause__, LeaseLostError)
    assert journal.lost.is_set()
    assert "r" not in journal.state.queue


async def test_a_caller_that_is_cancelled_before_its_turn_has_stored_nothing(
    store: Store, troubled: Any
) -> None:
    lease = await store.acquire("s")
    journal = await Journal.open(troubled, lease)
    await journal.append(opening(lease.epoch))
    troubled.gate, troubled.stored = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(journal.append([accepted("r")]))
    second = asyncio.create_task(journal.append([accepted("r2")]))
    await asyncio.sleep(0)
    second.cancel()
    troubled.gate.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert list(journal.state.queue) == ["r"]


async def test_a_lost_lease_ends_every_call_and_applies_nothing(store: Store) -> None:
    journal = await opened(store)
    await journal.lease.release()
    await opened(store)
    state = journal.state
    pending = [asyncio.create_task(journal.append([accepted(f"r{i}")])) for i in range(3)]
    for call in pending:
        with pytest.raises(LeaseLostError):
            await call
    assert journal.lost.is_set()
    assert journal.state is state
    with pytest.raises(LeaseLostError):
        journal.raise_if_lost()
    with pytest.raises(LeaseLostError):
        await journal.append([accepted("r")])


async def test_an_append_that_waits_is_refused_when_the_lease_is_lost_meanwhile(
    store: Store, troubled: Any
) -> None:
    lease = await store.acquire("s")
    journal = await Journal.open(troubled, lease)
    await journal.append(opening(lease.epoch))
    troubled.gate, troubled.stored = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(journal.append([accepted("r")]))
    second = asyncio.create_task(journal.append([accepted("r2")]))
    await in_time(troubled.stored.wait())
    lease.lost.set()
    troubled.gate.set()
    await first  # was on its way, and is stored
    with pytest.raises(LeaseLostError):
        await second
    assert (await store.tip("s")).seq == 4


async def test_an_outcome_that_nobody_can_tell_ends_the_journal(store: Store, troubled: Any) -> None:
    lease = await store.acquire("s")
    journal = await Journal.open(troubled, lease)
    await journal.append(opening(lease.epoch))
    troubled.lost_requests = 10_000
    appending = asyncio.create_task(journal.append([accepted("r")]))
    await asyncio.sleep(0)
    assert not appending.done()
    lease.lost.set()
    with pytest.raises(LeaseLostError):
        await in_time(appending)


async def test_own_fence(store: Store) -> None:
    """The owner's own fence and records never trip its own fence."""
    journal = await opened(store)
    for number in range(5):
        await journal.append([accepted(f"r{number}")])
    assert not journal.lost.is_set()


async def test_a_record_with_a_given_id_keeps_it(store: Store) -> None:
    journal = await opened(store)
    id_ = new_id()
    draft = accepted("r")
    [record] = await journal.append([Draft(draft.body, loop="main", cause="r", id=id_)])
    assert record.id == id_
    assert (await store.read("s", record.seq - 1))[0].id == UUID(id_).bytes


async def _damage(store: Store, lease: Lease) -> None:
    """A row whose chain does not follow, stored by going around the journal."""
    tip = await store.tip("s")
    await store.append(Append("s", rows(lease, tip.seq, 1), tip.seq, lease, (Settlement("r", tip.seq + 1),)))


async def test_bad_line(store: Store) -> None:
    """A record that is not what was stored is named; what is before it is given, nothing is skipped."""
    await admit(store, "s", "r")
    journal = await opened(store)
    await _damage(store, journal.lease)
    assert await intact(store) == ([1, 2, 3], 4)
    with pytest.raises(IntegrityError):
        await Journal.open(store, journal.lease)


async def test_a_closed_store_is_no_lost_lease_of_others(url: str) -> None:
    store = await open_store(url)
    journal = await opened(store)
    await store.close()
    with pytest.raises((StoreError, LeaseLostError)):
        await journal.append([accepted("r")])
