"""An agent that was kept between turns: its silence there is no turn's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.agents import Serving, serving
from tests.support.processes import until

import outlast
from outlast.agents.command_fold import CommandFold
from outlast.agents.contract import Agent, CloseStdin, Fold, FoldContext, InputLine, Wanted
from outlast.clock import boottime
from outlast.store.url import sqlite_url
from outlast.turns import follower

LATER = 60 * 10**9


class Silent(Serving):
    """A program that is not ready to be given anything, and never says so."""

    def fold(self, context: FoldContext, state: bytes | None = None) -> Fold:
        return _Silent(context, stdin="open", require_nonce=False, state=state)


class _Silent(CommandFold):
    def next(self, wanted: Wanted) -> InputLine | CloseStdin | None:
        return None


@asynccontextmanager
async def session_of(path: Path, agent: Agent) -> AsyncIterator[outlast.Session]:
    async with (
        asyncio.timeout(30),
        outlast.Runtime(sqlite_url(path / "x.db"), agents={"a": agent}) as runtime,
    ):
        session = runtime.session("s", workspace=path)
        yield session
        await session.finish()


async def test_a_prompt_is_not_failed_for_the_silence_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which had been broken by something that was printed after the turn: that is recorded first."""
    async with session_of(tmp_path, serving(idle_timeout=5.0, idle_park=600.0)) as session:
        noise = "done(); until('go'); write(b'noise\\n'); open('said', 'w').close()"
        assert (await (await session.send(noise, agent="a")).result()).outcome == "done"
        (tmp_path / "go").touch()
        await asyncio.to_thread(until, (tmp_path / "said").exists, "it was printed")
        monkeypatch.setattr(follower, "boottime", lambda: boottime() + LATER)
        second = await (await session.send("done('heard')")).result()
        assert (second.outcome, second.text) == ("done", "heard"), second.receipt


async def test_silence_before_an_input_is_named_fails_the_launch(tmp_path: Path) -> None:
    """Nothing was given to the agent that a recovery would have to spare."""
    async with session_of(tmp_path, serving(Silent, idle_timeout=0.1)) as session:
        receipt = (await (await session.send("done()", agent="a")).result()).receipt
        assert receipt is not None
        assert (receipt.failed_phase, receipt.error.code) == ("host_launch", "timeout_idle")
        assert receipt.host_recovery is None
