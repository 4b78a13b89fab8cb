"""An agent that cannot be launched fails its turn, says why, and costs the session nothing: what waits is not
used up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from tests.support.processes import processes_of, until

import outlast
from outlast.agents import Command
from outlast.agents.contract import Fold, FoldContext, LaunchContext, LaunchSpec
from outlast.agents.failure import kind_of
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command

SECRET = "sk-abcdefghijkl"


class CannotLaunch(Command):
    def launch(self, context: LaunchContext) -> LaunchSpec:
        raise ValueError(f"a bug in the adapter, token={SECRET}")


class CannotFold(Command):
    def fold(self, context: FoldContext, state: bytes | None = None) -> Fold:
        raise ValueError(f"a bug in the adapter, token={SECRET}")


class FolderGoes(Command):
    """The workspace is removed after the adapter has looked."""

    def launch(self, context: LaunchContext) -> LaunchSpec:
        spec = super().launch(context)
        Path(context.workspace).rmdir()
        return spec


class LooksLong(Command):
    """It is done once the owner's event loop has done something else."""

    loop: ClassVar[asyncio.AbstractEventLoop]

    def launch(self, context: LaunchContext) -> LaunchSpec:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(timeout=5)
        return super().launch(context)


@asynccontextmanager
async def owner(path: Path, kind: type[Command] = Command) -> AsyncIterator[outlast.Session]:
    agent = kind(command(SCRIPTED, "--effects", str(path / "effects")))
    (path / "work").mkdir(exist_ok=True)
    url = sqlite_url(path / "x.db")
    async with outlast.Runtime(url, agents={"a": agent}) as runtime, asyncio.timeout(30):
        yield runtime.session("s", workspace=path / "work")
        assert runtime.actor("s") is not None


@pytest.mark.parametrize("kind", [CannotLaunch, CannotFold])
async def test_an_adapter_that_cannot_launch_fails_the_turn_and_not_its_owner(
    tmp_path: Path, kind: type[Command], caplog: pytest.LogCaptureFixture
) -> None:
    async with owner(tmp_path, kind) as session:
        turn = await (await session.send("hello", agent="a")).result()
        assert turn.outcome == "failed"
        assert turn.receipt is not None
        assert (turn.receipt.failed_phase, turn.receipt.error.code) == ("host_launch", "unknown")
        assert "ValueError" in turn.receipt.error.message
        assert SECRET not in turn.receipt.error.message + caplog.text
        assert caplog.text.count("ValueError") == 1
        # The owner is there, and so is the next turn.
        assert (await (await session.send("again")).result()).outcome == "failed"
    async with owner(tmp_path) as session:
        assert (await (await session.send("hello")).result()).text == "hello"
    until(lambda: not processes_of(tmp_path), "nothing is left")


@pytest.mark.parametrize("when", ["before", "at the last moment"])
async def test_a_workspace_that_is_gone_is_told_with_what_to_do(tmp_path: Path, when: str) -> None:
    async with owner(tmp_path, Command if when == "before" else FolderGoes) as session:
        if when == "before":
            assert (await (await session.send("hi", agent="a")).result()).outcome == "done"
            (tmp_path / "work").rmdir()
        turn = await (await session.send("hello", agent="a")).result()
        assert turn.outcome == "parked"
        assert turn.receipt is not None
        assert (turn.receipt.failed_phase, turn.receipt.error.code) == ("host_launch", "workspace_missing")
        with pytest.raises(outlast.errors.TurnParkedError, match="is not there") as refused:
            turn.raise_for_failure()
        assert refused.value.hint == "Put the folder back, then `outlast retry s`."
        assert f"the workspace {tmp_path / 'work'} is not there" in turn.receipt.error.message
        assert kind_of("workspace_missing").next_step == "Put the folder back, then `outlast retry`."
    async with owner(tmp_path) as session:
        assert (await session.retry()).result == "done"
        assert (await session.outcome(turn.turn)).text == "hello"
    until(lambda: not processes_of(tmp_path), "nothing is left")


@pytest.mark.parametrize("program", ["/nope/agent", "no-such-agent", "no_interpreter"])
async def test_of_an_agent_that_is_not_there_it_is_told_that_no_program_ran(
    tmp_path: Path, program: str
) -> None:
    if program == "no_interpreter":
        script = tmp_path / program
        script.write_text("#!/nope/python\n")
        script.chmod(0o755)
        program = str(script)
    (tmp_path / "work").mkdir()
    agents = {"a": Command([program])}
    async with outlast.Runtime(sqlite_url(tmp_path / "x.db"), agents=agents) as runtime, asyncio.timeout(30):
        session = runtime.session("s", workspace=tmp_path / "work")
        turn = await (await session.send("hello", agent="a")).result()
    assert turn.outcome == "parked"
    assert turn.receipt is not None
    error = turn.receipt.error
    assert (turn.receipt.failed_phase, error.code, error.exit_status) == (
        "host_launch",
        "launch_failed",
        None,
    )
    assert Path(program).name in error.message
    assert "no program ran" in kind_of(error.code).sentence


async def test_an_adapter_that_looks_for_long_before_a_launch_holds_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LooksLong, "loop", asyncio.get_running_loop(), raising=False)
    async with owner(tmp_path, LooksLong) as session:
        turn = await (await session.send("hello", agent="a")).result()
        assert turn.outcome == "done"
