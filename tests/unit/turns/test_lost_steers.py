"""An input that is to join a turn and cannot be read any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.journal import Journal
from outlast.records import types as t
from outlast.records.envelope import Draft
from outlast.store.contract import Store
from outlast.store.url import open_store, sqlite_url
from outlast.testing.journals import JournalBuilder
from outlast.turns.steering import InputLost, Steering, content_of

LARGE = "x" * 400_000
GIVEN = t.InputReserved(generation="g", seq=2, key="large", digest="d")


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))
    opened = await open_store(sqlite_url(tmp_path / "x.db"))
    yield opened
    await opened.close()


async def running(store: Store, *, given: bool) -> Journal:
    """Turn `t` runs, and a large and a small input are to join it; the large one's blob is gone."""
    lease = await store.acquire("session")
    journal = await Journal.open(store, lease)
    drafts = JournalBuilder().running("t").drafts[1:]
    await journal.append([Draft(t.Fence(epoch=lease.epoch, holder="me")), *drafts])
    steers = [
        t.InputAccepted(request_id=name, content=[t.Content(text=text)], joins="t")
        for name, text in (("large", LARGE), ("small", "and this"))
    ]
    bodies = [*steers, GIVEN] if given else steers
    await journal.append([Draft(body, loop="main", turn="t") for body in bodies])
    for blob in (store.folder / "blobs").glob("*/*"):
        blob.unlink()
    return journal


async def test_one_that_was_not_given_yet_goes_back_to_the_queue_and_the_others_join(store: Store) -> None:
    journal = await running(store, given=False)
    prompts = await Steering(journal, "t").prompts()
    assert [prompt.request_id for prompt in prompts] == ["small"]
    assert journal.state.queue["large"].joins is None
    content = await content_of(journal, journal.state.queue["large"].seq)
    assert isinstance(content, InputLost)
    assert content.failure.code == "input_lost"


async def test_one_with_an_image_goes_back_where_the_agent_takes_none(store: Store) -> None:
    journal = await running(store, given=False)
    picture = t.Content(type="image", text="[image]", media_type="image/png", data="QUJD")
    body = t.InputAccepted(request_id="picture", content=[picture], joins="t")
    await journal.append([Draft(body, loop="main", turn="t")])
    assert [prompt.request_id for prompt in await Steering(journal, "t").prompts()] == ["small", "picture"]
    prompts = await Steering(journal, "t", images=False).prompts()
    assert [prompt.request_id for prompt in prompts] == ["small"]
    assert journal.state.queue["picture"].joins is None


async def test_one_that_the_agent_was_given_is_decided_by_what_the_agent_shows(store: Store) -> None:
    journal = await running(store, given=True)
    prompts = await Steering(journal, "t").prompts()
    assert [prompt.request_id for prompt in prompts] == ["small"]
    assert journal.state.queue["large"].joins == "t"
