"""What is shown to whoever looks on: what the whole view says of the present, at the cost of the tail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support.counting import Counting
from tests.support.stores import admit, entry

from outlast.errors import SessionNotFoundError
from outlast.journal import Journal
from outlast.records.envelope import Draft
from outlast.records.types import AgentEventRecorded, Content, Fence, InputAccepted, TurnDone, TurnStarted
from outlast.runtime.awaiting import newest
from outlast.runtime.client import Client
from outlast.runtime.present import present
from outlast.runtime.view import build_view
from outlast.state.messages import AgentMessage, OwnerMessage
from outlast.store.contract import Append, Store
from outlast.store.url import open_store, sqlite_url
from outlast.testing.journals import GeneratedJournal, JournalBuilder, journals
from outlast.turns.requests import InputRequest, encode


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(sqlite_url(tmp_path / "x.db"))
    yield opened
    await opened.close()


async def _same_as_the_view(journal: GeneratedJournal, url: str) -> None:
    store = await open_store(url)
    rows, at = journal.rows, 0
    while at < len(rows):
        lease = await store.acquire(journal.session)
        while lease.epoch < rows[at].epoch:
            await lease.release()
            lease = await store.acquire(journal.session)
        end = at
        while end < len(rows) and rows[end].epoch == lease.epoch:
            end += 1
        catalog = entry(journal.session, end)
        await store.append(Append(journal.session, rows[at:end], at, lease, catalog=catalog))
        at = end
        await lease.release()
    view, now = await build_view(store, journal.session), await present(store, journal.session)
    found = await newest(store, journal.session)
    await store.close()
    began = [t for t in view.turns if t.outcome != "queued" and (t.started_at or t.outcome != "cancelled")]
    assert found == ((began[-1].turn, began[-1].seq) if began else None)
    assert (now.seq, now.row) == (view.seq, view.row)
    assert now.attempts == view.attempts
    assert (now.queue, now.gates) == (view.queue, view.gates)
    running = [turn.turn for turn in view.turns if turn.outcome == "running"]
    assert running == ([] if now.running is None else [now.running])
    shown = [m for m in view.messages if not isinstance(m, OwnerMessage) and m.turn in running]
    assert [m.to_json() for m in now.messages] == [m.to_json() for m in shown]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(journals(max_moves=40).filter(lambda journal: len(journal.rows) > 0))
def test_the_present_is_what_the_whole_view_says_of_it(
    tmp_path_factory: pytest.TempPathFactory, journal: GeneratedJournal
) -> None:
    asyncio.run(_same_as_the_view(journal, sqlite_url(tmp_path_factory.mktemp("journal") / "x.db")))


async def test_a_long_history_is_not_read_for_the_present(store: Store) -> None:
    lease = await store.acquire("session")
    journal = await Journal.open(store, lease)
    opening = JournalBuilder().drafts[1:]
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="me")), *opening])
    for number in range(1, 400):
        turn = f"turn-{number}"
        said = AgentEventRecorded(kind="message", text="x" * 500)
        accepted = InputAccepted(request_id=turn, content=[Content(text="hi")])
        started = TurnStarted(index=number, request_id=turn)
        done = TurnDone(stop_reason="end")
        bodies = [accepted, started, *[said] * 10, done]
        await journal.append([Draft(body, loop="main", turn=turn) for body in bodies])
    accepted = InputAccepted(request_id="now", content=[Content(text="the question")])
    waits = InputAccepted(request_id="later", content=[Content(text="and another")])
    started = TurnStarted(index=400, request_id="now")
    said = AgentEventRecorded(kind="message", text="so far")
    bodies = [accepted, waits, started, said]
    await journal.append([Draft(body, loop="main", turn="now") for body in bodies])
    content = b'{"content":[{"type":"text","text":"not taken yet"}]}'
    await admit(store, "session", "last", content)
    await journal.release()

    counting: Any = Counting(store)
    now = await present(counting, "session")
    assert counting.rows < 1500 < journal.state.seq / 3
    counting.rows = 0
    assert await newest(counting, "session") == ("now", journal.state.seq - 3)
    assert counting.rows < 1500
    assert now.running == "now"
    assert [q.request_id for q in now.queue] == ["later", "last"]
    assert [q.input for q in now.queue] == ["and another", "not taken yet"]
    assert [m.text for m in now.messages if isinstance(m, AgentMessage)] == ["so far"]


async def test_there_is_no_present_of_a_session_that_is_not_there(store: Store) -> None:
    with pytest.raises(SessionNotFoundError):
        await present(store, "nobody")


async def test_an_input_that_nobody_can_read_hides_nothing_else(store: Store) -> None:
    await admit(store, "s", "unreadable", b"\xff")
    await admit(store, "s", "readable", encode(InputRequest(content=[Content(text="hello")])))
    wanted = [("unreadable", "(cannot be read)", False), ("readable", "hello", False)]
    for queue in ((await build_view(store, "s")).queue, (await present(store, "s")).queue):
        assert [(each.request_id, each.input, each.accepted) for each in queue] == wanted


async def test_a_session_that_is_not_there_is_told_in_the_same_words_by_everybody(store: Store) -> None:
    client = Client(store.url)
    told = set()
    async with client:
        for asked in (
            build_view(store, "x"),
            present(store, "x"),
            store.find("x"),
            client.session("x").view(),
            client.session("x").gates(),
        ):
            with pytest.raises(SessionNotFoundError) as refused:
                await asked
            told.add((refused.value.message, refused.value.hint, refused.value.session_id))
    assert told == {("no session x", "`outlast ls` lists them", "x")}
