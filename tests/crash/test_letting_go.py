"""An owner that fails before it serves, or while it leaves: it says so, and the session is free."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import outlast
from outlast import faults
from outlast.agents import Command
from outlast.errors import RestoreError
from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.records.types import InputReserved, RestoreErrored, RestoreStarted
from outlast.store.contract import Append
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command

pytestmark = pytest.mark.slow


@asynccontextmanager
async def owner(path: Path) -> AsyncIterator[outlast.Runtime]:
    agents = {"a": Command(command(SCRIPTED))}
    async with outlast.Runtime(sqlite_url(path / "x.db"), agents=agents) as runtime, asyncio.timeout(60):
        yield runtime


async def served(runtime: outlast.Runtime, path: Path, text: str = "hello") -> outlast.Session:
    session = runtime.session("s", workspace=path)
    turn = await session.send(text, agent="a")
    assert (await turn.result()).text == text
    return session


def raise_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(faults, "_plan", {name: (None, "raise:EIO")})


async def test_an_owner_that_cannot_resume_the_queue_lets_the_session_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owner(tmp_path) as runtime:
        session = await served(runtime, tmp_path)
        turn = await session.send("[[hang]]", agent="a")
        async for item in session.follow():
            if isinstance(item, Record) and isinstance(item.body, InputReserved) and item.turn == turn.id:
                break
        await session.cancel()
        assert (await turn.result()).outcome == "cancelled"
    async with owner(tmp_path) as first, owner(tmp_path) as second:
        with monkeypatch.context() as patches:
            raise_at(patches, "actor.resume.before_append")
            with pytest.raises(RestoreError) as failed:
                await first.restore("s")
        assert (failed.value.phase, failed.value.kind) == ("resume", "append")
        assert isinstance(failed.value.__cause__, OSError)
        assert await second.store.holder("s") is None
        await second.restore("s")
        await (await served(second, tmp_path, "by another")).finish()
        await first.restore("s")
        await served(first, tmp_path, "by the first")


async def test_an_owner_that_fails_of_the_file_system_while_it_leaves_says_so(tmp_path: Path) -> None:
    async with owner(tmp_path) as runtime:
        await served(runtime, tmp_path)
        actor = runtime.actor("s")
        assert actor is not None
        (folder,) = (runtime.store.folder / "agents").iterdir()
        shutil.rmtree(folder)
        folder.write_text("in the way")
        await actor.finish()
        with pytest.raises(NotADirectoryError):
            await actor.quiet()
        assert await runtime.store.holder("s") is None


async def test_an_owner_whose_release_fails_has_ended_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owner(tmp_path) as runtime:
        await served(runtime, tmp_path)
        actor = runtime.actor("s")
        assert actor is not None
        with monkeypatch.context() as patches:
            raise_at(patches, "actor.release.before")
            await actor.finish()
        with pytest.raises(OSError, match="Input/output error"):
            await actor.quiet()


async def test_a_restore_that_is_cancelled_while_its_fence_is_stored_tells_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owner(tmp_path) as runtime:
        await served(runtime, tmp_path)
    async with owner(tmp_path) as runtime:
        append = runtime.store.append

        async def stored(batch: Append) -> int:
            tip = await append(batch)
            if any(row.type == "RestoreStarted" for row in batch.rows):
                runtime._claims["s"].give_up()
            return tip

        monkeypatch.setattr(runtime.store, "append", stored)
        with pytest.raises(asyncio.CancelledError):
            await runtime.restore("s")
        told = [record.body async for record in read_records(runtime.store, "s")]
        assert isinstance(told[-2], RestoreStarted)
        assert isinstance(told[-1], RestoreErrored)
        assert await runtime.store.holder("s") is None


async def test_a_drain_that_is_left_early_leaves_no_task_behind(tmp_path: Path) -> None:
    def waiting() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "drain s"]

    async with owner(tmp_path) as runtime:
        session = await served(runtime, tmp_path)
        turn = await session.send("[[wait:go]]", agent="a")

        async def drained() -> None:
            async for _ in session.drain():
                pass

        draining = asyncio.create_task(drained())
        for _ in range(1000):
            if waiting():
                break
            await asyncio.sleep(0.01)
        assert waiting() == ["drain s"]
        draining.cancel()
        await asyncio.wait([draining])
        await asyncio.sleep(0)  # who was cancelled runs once more
        assert waiting() == []
        (tmp_path / "go").touch()
        assert (await turn.result()).outcome == "done"


async def test_names_that_were_listened_for_are_forgotten(tmp_path: Path) -> None:
    async with owner(tmp_path) as runtime:
        session = await served(runtime, tmp_path)
        for name in ("s", "other"):
            with runtime.listen(name), runtime.listen(name):
                pass
        assert runtime._listeners == {}
        await session.close()
        await runtime.session("t", workspace=tmp_path).send("x", agent="a")
        await runtime.own("t")
        assert set(runtime._actors) == {"t"}
