"""A store in memory ends with its process, and so does whatever runs for it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.support.processes import Child, processes_of, until

import outlast
from outlast.agents import Command
from outlast.keep import AgentFolder, Verified, tree_dead
from outlast.testing.agents import SCRIPTED, command

pytestmark = pytest.mark.slow

PATIENCE = 30.0
ASKS = "[[gate:g:May I?:yes,no]]"
BUSY = "[[touch:busy]][[wait:go]][[say:done]]"


def agent(**said: object) -> Command:
    return Command(command(SCRIPTED), stdin="open", **said)  # type: ignore[arg-type]


async def asked(session: outlast.Session) -> None:
    async for item in session.follow():
        if getattr(item, "type", "") == "GateOpened":
            return


def trees(runtime: outlast.Runtime) -> list[object]:
    folders = (runtime.store.folder / "agents").iterdir()
    return [tree_dead(found) for path in folders if (found := AgentFolder(path).latest()) is not None]


async def test_who_leaves_a_store_in_memory_ends_its_agents(tmp_path: Path) -> None:
    """One that waits for an answer, which nobody could give it any more, and one that is at work."""
    async with outlast.Runtime("memory://", agents={"a": agent()}) as runtime, asyncio.timeout(PATIENCE):
        asking = runtime.session("asking", workspace=tmp_path)
        await asking.send(ASKS)
        await runtime.session("busy", workspace=tmp_path).send(BUSY)
        await asked(asking)
        while not (tmp_path / "busy").exists():  # noqa: ASYNC110 - a file rings no bell
            await asyncio.sleep(0.01)
        folder = runtime.store.folder / "agents"
        assert processes_of(tmp_path)
        store = runtime.store  # its folder goes with it
    latest = [AgentFolder(path).latest() for path in folder.iterdir()]
    assert [type(tree_dead(found)) for found in latest if found is not None] == [Verified, Verified]
    until(lambda: not processes_of(tmp_path), "all of it has ended", PATIENCE)
    assert store.url == "memory://"


async def test_the_last_runtime_that_leaves_a_named_store_ends_its_agents(tmp_path: Path) -> None:
    """Until then they go on; whoever opens the store again finds the turn interrupted."""
    url = "memory://shared-by-two"
    async with outlast.Runtime(url, agents={"a": agent()}) as second, asyncio.timeout(PATIENCE):
        async with outlast.Runtime(url, agents={"a": agent()}) as first:
            session = first.session("s", workspace=tmp_path)
            await session.send(ASKS)
            await asked(session)
        (living,) = trees(second)
        assert not isinstance(living, Verified)
        session = await second.restore("s")
        assert len(await session.gates()) == 1
    until(lambda: not processes_of(tmp_path), "all of it has ended", PATIENCE)
    async with outlast.Runtime(url, agents={"a": agent()}) as third, asyncio.timeout(PATIENCE):
        session = await third.restore("s")
        await session.quiet()
        view = await session.view()
        assert [turn.outcome for turn in view.turns] == ["interrupted"]
        assert view.gates == []


OWNER = """
import asyncio, sys
import outlast
from outlast.agents import Command
from outlast.testing.agents import SCRIPTED, command

async def main():
    agent = Command(command(SCRIPTED), stdin="open", orphan_grace=float(sys.argv[1]))
    async with outlast.Runtime("memory://", agents={"a": agent}) as runtime:
        session = runtime.session("s")
        await session.send("[[gate:g:May I?:yes,no]]")
        async for item in session.follow():
            if getattr(item, "type", "") == "GateOpened":
                print("asked", flush=True)

asyncio.run(main())
"""


def test_an_agent_that_asks_a_process_that_was_killed_ends_by_its_grace(tmp_path: Path) -> None:
    """In a store on disk it would wait for the next owner."""
    work = tmp_path / "work"
    work.mkdir()
    child = Child.start(
        [sys.executable, "-c", OWNER, "1"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        cwd=work,
        output=tmp_path / "owner",
    )
    try:
        until(lambda: "asked" in child.told(), f"it has asked: {child.told()}")
    finally:
        child.kill()
    until(lambda: not processes_of(tmp_path), "its agent, shim and guard have ended", PATIENCE)
