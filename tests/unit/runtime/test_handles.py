"""Handles of sessions that nobody owns, and of runtimes that are opened in the wrong way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import outlast
from outlast.agents import Command
from outlast.errors import InputError, OutlastError, TurnHeldError, UsageError
from outlast.runtime.handles import Answer
from outlast.store.url import sqlite_url

T = TypeVar("T")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))
    return sqlite_url(tmp_path / "state" / "outlast.db")


async def test_an_answer_to_a_question_that_never_was_admits_nothing(url: str) -> None:
    async with outlast.connect(url) as client:
        session = client.session("s")
        await session.send("hi", agent="a")
        assert await session.answer("no such question", "allow_once") == Answer("gone")
        assert [entry.kind for entry in await client.store.pending("s")] == ["input"]


async def test_a_runtime_is_open_once_at_a_time(url: str) -> None:
    runtime = outlast.Runtime(url)
    async with runtime:
        with pytest.raises(UsageError, match="open already"):
            await runtime.__aenter__()
        assert (await runtime.store.tip("s")).seq == 0
    async with runtime:
        assert (await runtime.store.tip("s")).seq == 0


async def test_a_client_is_open_once_at_a_time(url: str) -> None:
    async with outlast.connect(url) as client:
        with pytest.raises(UsageError, match="open already"):
            await client.__aenter__()
        assert (await client.store.tip("s")).seq == 0


async def test_a_runtime_that_could_not_be_opened_may_be_opened_later(tmp_path: Path, url: str) -> None:
    (tmp_path / "state").write_text("in the way")
    runtime = outlast.Runtime(url)
    with pytest.raises(OutlastError):
        await runtime.__aenter__()
    (tmp_path / "state").unlink()
    async with runtime:
        assert (await runtime.store.tip("s")).seq == 0


async def test_a_workspace_that_no_record_could_name_is_refused(url: str) -> None:
    async with outlast.connect(url) as client:
        with pytest.raises(InputError, match="the workspace is not valid UTF-8"):
            client.session("s", workspace="/caf\udce9")


async def test_a_current_folder_that_was_deleted_is_named(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    async with outlast.connect(url) as client:
        monkeypatch.chdir(gone)
        gone.rmdir()
        try:
            with pytest.raises(UsageError, match="current folder is not there"):
                await client.session("s").send("hi", agent="a")
            with pytest.raises(UsageError, match="current folder is not there"):
                client.session("s", workspace="below")
        finally:
            monkeypatch.chdir(tmp_path)
        assert await client.store.pending("s") == []


async def test_a_session_is_not_begun_in_a_folder_that_is_not_there(url: str, tmp_path: Path) -> None:
    """Its turn would fail there, later."""
    async with outlast.connect(url) as client:
        session = client.session("s", workspace=tmp_path / "later")
        with pytest.raises(UsageError, match=f"there is no folder {tmp_path / 'later'}"):
            await session.send("hi", agent="a")
        assert await client.store.pending("s") == []
        (tmp_path / "later").mkdir()
        await session.send("hi", agent="a")
        (tmp_path / "later").rmdir()
        await session.send("it has begun by now", agent="a")


async def test_an_input_is_admitted_without_a_count_of_what_waits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hundred thousandth one costs what the second does."""
    async with outlast.connect(url) as client:

        def counted(name: str) -> None:
            raise AssertionError(f"what waits in {name} is counted")

        for look in ("listed", "pending"):
            monkeypatch.setattr(client.store, look, counted)
        for _ in range(2):
            await client.session("s").send("hi", agent="a")
        with pytest.raises(UsageError, match="belongs to agent a, not b"):
            await client.session("s").send("hi", agent="b")


@pytest.mark.parametrize(("command", "because"), [("cancel", "the queue is held"), ("close", "was closed")])
async def test_who_waits_for_a_turn_that_only_a_person_lets_begin_is_told_so(
    url: str, command: str, because: str
) -> None:
    """With the way on, whoever owns the session; and waits as before once it is let go on."""
    async with outlast.connect(url) as client, outlast.Runtime(url, agents={"a": Command(["a"])}) as runtime:
        session = client.session("a b")
        turn = await session.send("hi", agent="a", key="k")
        assert (await getattr(session, command)()).result == "queued"
        visitor = await runtime.visit("a b")
        assert visitor is not None
        await visitor.quiet()
        with pytest.raises(TurnHeldError, match=because) as held:
            await within(turn.result())
        assert (held.value.turn, held.value.session_id, held.value.exit_code) == ("k", "a b", 1)
        if command == "cancel":
            assert held.value.hint == "`outlast skip 'a b'` lets it go on"
            await visitor.finish()
        with pytest.raises(TurnHeldError, match=because) as held:
            await within(client.session("a b").outcome("k"))
        assert held.value.hint == "`outlast resume 'a b'` goes on with it"
        await session.send("go on")
        with pytest.raises(TimeoutError):
            await within(turn.result(), 0.05)


async def within(work: Coroutine[Any, Any, T], seconds: float = 10) -> T:
    async with asyncio.timeout(seconds):
        return await work
