"""A restore that fails is taken back whole, also when a part of that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import outlast
from outlast.agents import Command
from outlast.errors import RestoreError
from outlast.restore import phases
from outlast.restore.phases import PHASES, Phase, Restoring
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command


async def fails(now: Restoring) -> None:
    raise OSError("the disk is gone")


async def is_cancelled(now: Restoring) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("undo", [fails, is_cancelled])
async def test_a_step_back_that_fails_does_not_keep_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, undo: phases.Step
) -> None:
    url = sqlite_url(tmp_path / "x.db")
    agents = {"a": Command(command(SCRIPTED))}
    async with outlast.Runtime(url, agents=agents) as runtime:
        turn = await runtime.session("s", workspace=tmp_path).send("hello", agent="a")
        assert (await turn.result()).text == "hello"
    async with outlast.Runtime(url, agents=agents) as first, outlast.Runtime(url, agents=agents) as second:
        with monkeypatch.context() as patch:
            patch.setattr(phases, "PHASES", (*PHASES[:-1], Phase("last", "append", fails, undo)))
            with pytest.raises((RestoreError, asyncio.CancelledError)):
                await first.restore("s")
        assert ("the disk is gone" in caplog.text) == (undo is fails)
        session = await second.restore("s")
        async with asyncio.timeout(30):
            assert (await (await session.send("again")).result()).text == "again"
