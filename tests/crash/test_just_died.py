"""An agent that lives between turns dies as the next prompt comes: what it did not read goes to a new one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import serving

import outlast
from outlast import faults
from outlast.journal import read_records
from outlast.records.types import Body, InputReserved, InputReturned, TurnAttemptStarted, TurnFailed
from outlast.store.url import sqlite_url

DEAF = "Path('agent').write_text(str(os.getpid()))\ndone('first')\nuntil('never')"
"""The turn ends, and nothing more is read."""
COUNTED = "open('effects', 'a').write('x'); done('second')"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[outlast.Session]:
    url = sqlite_url(tmp_path / "x.db")
    async with outlast.Runtime(url, agents={"a": serving()}) as runtime:
        session = runtime.session("s", workspace=tmp_path)
        yield session
        await session.kill()


def kill_agent(tmp_path: Path) -> None:
    os.kill(int((tmp_path / "agent").read_text()), signal.SIGKILL)


async def bodies(session: outlast.Session, turn: str) -> list[Body]:
    return [r.body async for r in read_records(session._backing.store, "s") if r.turn == turn]


async def until_reserved(session: outlast.Session, turn: str) -> None:
    async for item in session.follow():
        if isinstance(item, outlast.Record) and item.turn == turn and isinstance(item.body, InputReserved):
            return


async def test_a_prompt_that_a_dying_agent_did_not_read_is_given_to_a_new_one(
    session: outlast.Session, tmp_path: Path
) -> None:
    """Written whole, into a pipe that nobody reads any more."""
    first = await (await session.send(DEAF, agent="a", key="one")).result()
    assert first.text == "first"
    turn = await session.send(COUNTED, key="two")
    await until_reserved(session, "two")
    kill_agent(tmp_path)
    second = await turn.result()
    assert (second.outcome, second.text) == ("done", "second")
    assert (tmp_path / "effects").read_text() == "x"
    seen = await bodies(session, "two")
    assert [type(body).__name__ for body in seen if isinstance(body, TurnFailed)] == []
    (returned,) = [body for body in seen if isinstance(body, InputReturned)]
    assert "had ended before" in returned.evidence
    lives = [body.generation for body in seen if isinstance(body, TurnAttemptStarted)]
    assert lives == ["gen-000001", "gen-000002"]


@pytest.mark.slow
async def test_an_agent_that_is_dead_when_the_prompt_comes_costs_nothing(
    session: outlast.Session, tmp_path: Path
) -> None:
    """However far its shim has come with its end by then."""
    for n in range(8):
        first = await (await session.send(DEAF, agent="a", key=f"one {n}")).result()
        assert first.text == "first"
        kill_agent(tmp_path)
        second = await (await session.send(COUNTED, key=f"two {n}")).result()
        assert (second.outcome, second.text) == ("done", "second")
    assert (tmp_path / "effects").read_text() == "x" * 8


HAS_CHILD = (
    "import subprocess\nPath('agent').write_text(str(os.getpid()))\n"
    "subprocess.Popen(['sleep', '600'], start_new_session=True)\ndone('first')\nuntil('never')"
)
"""The child has the agent's stdin, so that nobody can tell what was read of it, and its stdout."""


async def test_a_prompt_that_comes_too_late_for_an_agent_whose_child_lives_on_costs_nothing(
    session: outlast.Session, tmp_path: Path
) -> None:
    """Its shim takes no input any more, and has not yet told its end."""
    first = await (await session.send(HAS_CHILD, agent="a", key="one")).result()
    assert first.text == "first"
    kill_agent(tmp_path)
    second = await (await session.send(COUNTED, key="two")).result()
    assert (second.outcome, second.text) == ("done", "second")
    assert (tmp_path / "effects").read_text() == "x"


async def test_the_last_words_of_an_agent_stand_before_the_return_of_what_it_did_not_read(
    session: outlast.Session, tmp_path: Path
) -> None:
    last = "until('go'); say('message', role='assistant', text='last words'); os.kill(os.getpid(), 9)"
    await (await session.send(f"done('first'); {last}", agent="a", key="one")).result()
    turn = await session.send(COUNTED, key="two")
    await until_reserved(session, "two")
    (tmp_path / "go").touch()
    assert (await turn.result()).text == "second"
    seen = await bodies(session, "two")
    (said,) = [n for n, body in enumerate(seen) if "last words" in repr(body)]
    (back,) = [n for n, body in enumerate(seen) if isinstance(body, InputReturned)]
    assert said < back


async def test_the_next_owner_gives_an_unread_prompt_to_a_new_agent(
    tmp_path: Path,
) -> None:
    url, agents = sqlite_url(tmp_path / "x.db"), {"a": serving()}
    async with outlast.Runtime(url, agents=agents) as runtime:
        session = runtime.session("s", workspace=tmp_path)
        await (await session.send(DEAF, agent="a", key="one")).result()
        await session.send(COUNTED, key="two")
        await until_reserved(session, "two")
    kill_agent(tmp_path)
    async with outlast.Runtime(url, agents=agents) as runtime:
        session = await runtime.restore("s")
        second = await session.outcome("two")
        assert (second.outcome, second.text) == ("done", "second")
        await session.kill()
        seen = await bodies(session, "two")
    (returned,) = [body for body in seen if isinstance(body, InputReturned)]
    assert "never" in returned.evidence
    assert (tmp_path / "effects").read_text() == "x"


async def shim_of(session: outlast.Session) -> int:
    """The shim of the newest agent life."""
    store = session._backing.store
    started = [r.body async for r in read_records(store, "s") if isinstance(r.body, TurnAttemptStarted)]
    (pid,) = [process.pid for process in started[-1].processes if process.role == "shim"]
    return pid


def kill_shims(session: outlast.Session, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next shims, each as it is about to be given an input that the journal names."""
    actor: Any = session._backing.actor("s")
    left = [None] * times

    def dies(name: str) -> bool:
        if name == "turn.input.before" and left:
            left.pop()
            (pid,) = [process.pid for process in actor.driver.host.processes if process.role == "shim"]
            os.kill(pid, signal.SIGKILL)
        return False

    monkeypatch.setattr(faults, "point", dies)


async def test_a_prompt_that_its_shim_died_before_is_given_to_a_new_agent(
    session: outlast.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a living owner. Its spool proves what it had taken."""
    await (await session.send("done('first')", agent="a", key="one")).result()
    kill_shims(session, monkeypatch, 1)
    second = await (await session.send(COUNTED, key="two")).result()
    assert (second.outcome, second.text) == ("done", "second")
    assert (tmp_path / "effects").read_text() == "x"
    seen = await bodies(session, "two")
    assert not [body for body in seen if isinstance(body, TurnFailed)]
    (returned,) = [body for body in seen if isinstance(body, InputReturned)]
    assert "shim died before" in returned.evidence


@pytest.mark.slow
async def test_a_prompt_whose_shims_die_again_and_again_fails(
    session: outlast.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given to a new agent for that once."""
    await (await session.send("done('first')", agent="a", key="one")).result()
    kill_shims(session, monkeypatch, 2)
    turn = await (await session.send(COUNTED, key="two")).result()
    assert turn.outcome == "failed"
    assert not (tmp_path / "effects").exists()
    seen = await bodies(session, "two")
    assert len([body for body in seen if isinstance(body, InputReturned)]) == 1
    assert (await (await session.send(COUNTED, key="three")).result()).text == "second"


async def test_a_prompt_that_its_agent_had_when_the_shim_died_is_not_given_again(
    session: outlast.Session, tmp_path: Path
) -> None:
    await (await session.send("done('first')", agent="a", key="one")).result()
    turn = await session.send("Path('up').touch(); until('never')", key="two")
    async with asyncio.timeout(30):
        while not (tmp_path / "up").exists():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
    os.kill(await shim_of(session), signal.SIGKILL)
    second = await turn.result()
    assert second.outcome == "failed"
    assert not [body for body in await bodies(session, "two") if isinstance(body, InputReturned)]


async def test_a_prompt_that_was_read_is_not_given_again(session: outlast.Session, tmp_path: Path) -> None:
    """Nobody can tell what became of it."""
    pid = "Path('agent').write_text(str(os.getpid()))\n"
    await (await session.send(pid + "done('first')", agent="a", key="one")).result()
    turn = await session.send(
        "open('effects', 'a').write('x')\nPath('up').touch()\nuntil('never')", key="two"
    )
    async with asyncio.timeout(30):
        while not (tmp_path / "up").exists():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
    kill_agent(tmp_path)
    second = await turn.result()
    assert second.outcome == "failed"
    assert second.receipt is not None
    assert second.receipt.error.code == "crashed"
    assert (tmp_path / "effects").read_text() == "x"


async def test_an_agent_that_dies_before_it_reads_its_first_prompt_fails_the_turn(tmp_path: Path) -> None:
    """It was begun for that turn: another one would only do the same."""
    agents = {"a": outlast.agents.Command(("sh", "-c", "exit 3"), stdin="open")}
    url = sqlite_url(tmp_path / "x.db")
    async with outlast.Runtime(url, agents=agents) as runtime, asyncio.timeout(30):
        session = runtime.session("s", workspace=tmp_path)
        outcome = await (await session.send("go", agent="a", key="one")).result()
        begun = [body for body in await bodies(session, "one") if isinstance(body, TurnAttemptStarted)]
        await session.finish()
    assert len(begun) == 1
    assert outcome.receipt is not None
    assert outcome.receipt.error.code == "exit_nonzero"
