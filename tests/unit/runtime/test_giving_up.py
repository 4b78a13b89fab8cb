"""A restore that its caller gave up takes nothing, then or later."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import outlast
from outlast.agents import Command
from outlast.errors import SessionNotFoundError
from outlast.restore import phases
from outlast.restore.phases import PHASES, Phase, Restoring
from outlast.runtime.actor import SessionActor


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name}"


@asynccontextmanager
async def runtimes(url: str) -> AsyncIterator[tuple[outlast.Runtime, outlast.Runtime]]:
    """Two of them, the first of which owns session `s` for commands alone."""
    agents = {"a": Command(["a"])}
    async with outlast.Runtime(url, agents=agents) as first, outlast.Runtime(url, agents=agents) as second:
        async with outlast.connect(url) as client:
            await client.session("s").send("hi", agent="a")
        yield first, second


async def test_a_restore_that_was_given_up_does_not_take_the_session_later(url: str) -> None:
    async with runtimes(url) as (first, second):
        owner = await first.visit("s")
        assert owner is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await second.restore("s", wait=60)
        assert not second.serving("s")
        await owner.detach()
        assert await second.store.holder("s") is None
        assert await first.visit("s") is not None


async def test_who_waits_for_the_same_restore_still_gets_it(url: str) -> None:
    async with runtimes(url) as (first, second):
        owner = await first.visit("s")
        assert owner is not None
        async with asyncio.timeout(20):
            waiting = [asyncio.create_task(second.restore("s", wait=60)) for _ in range(2)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting[0]
            await owner.detach()
            assert (await waiting[1]).id == "s"
        assert second.actor("s") is not None


async def test_who_comes_while_it_is_taken_back_is_not_given_up_with_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def waits(now: Restoring) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def taken_back(now: Restoring) -> None:
        await may_end.wait()

    async with runtimes(url) as (runtime, _), asyncio.timeout(20):
        with monkeypatch.context() as patch:
            patch.setattr(phases, "PHASES", (*PHASES[:1], Phase("stuck", "replay", waits, taken_back)))
            first = asyncio.create_task(runtime.restore("s"))
            await begun.wait()
        first.cancel()
        await asyncio.sleep(0)
        second = asyncio.create_task(runtime.visit("s"))
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second is not None


async def test_one_that_is_given_up_as_it_begins_to_serve_leaves_the_session(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SessionActor.start

    async with runtimes(url) as (first, second), asyncio.timeout(20):

        async def started(actor: SessionActor) -> None:
            await start(actor)
            task.cancel()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(SessionActor, "start", started)
            task = asyncio.create_task(first.visit("s"))
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await first.store.holder("s") is None
        assert await second.visit("s") is not None
        assert first.actor("s") is None


async def test_what_a_restore_failed_of_is_no_error_of_a_task_where_nobody_waits(url: str) -> None:
    loop, told = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: told.append(context))
    async with runtimes(url) as (runtime, _):
        for turns in range(20):
            task = asyncio.create_task(runtime.restore("nope"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError, SessionNotFoundError):
                await task
    gc.collect()
    assert told == []
