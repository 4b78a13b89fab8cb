"""An agent's name that stands for another program than the one whose session it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.crash.test_performing import bodies
from tests.support.agents import Keeping, ManyTurns, serving

import outlast
from outlast.agents import Claude, Codex
from outlast.records.agent_state import AgentStateCaptured, AgentStateRestored
from outlast.records.types import AgentSessionChanged, TurnAttemptStarted
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command

OWN = "0b9b2c70-0000-4000-8000-000000000001"
SAYS = f"[[session:{OWN}]][[say:finished]]"
FAILS = f"[[session:{OWN}]][[exit:3]]"
OTHERS = [Codex, Claude]

pytestmark = pytest.mark.slow


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Of every program that keeps sessions."""
    made = [tmp_path / name for name in ("own", "codex", "claude")]
    for home in made:
        home.mkdir()
    monkeypatch.setenv("CODEX_HOME", str(made[1]))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(made[2]))
    return made


@asynccontextmanager
async def owner(path: Path, agent: Any) -> AsyncIterator[tuple[outlast.Runtime, outlast.Session]]:
    async with outlast.Runtime(sqlite_url(path / "x.db"), agents={"a": agent}) as runtime:
        session = runtime.session("s", workspace=path)
        yield runtime, session
        if runtime.actor("s") is not None:
            await session.finish()


def keeping(path: Path) -> Keeping:
    return Keeping(command(SCRIPTED, "--effects", str(path / "effects")), home=path / "own")


def files(homes: list[Path]) -> dict[Path, bytes]:
    return {file: file.read_bytes() for home in homes for file in home.rglob("*") if file.is_file()}


async def begun(path: Path, homes: list[Path], prompt: str) -> None:
    """A session of the one program, whose file is captured and has gone since."""
    async with owner(path, keeping(path)) as (_, session):
        file = homes[0] / OWN
        file.write_bytes(b"a line\n")
        await (await session.send(SAYS, agent="a")).result()
        await (await session.send(prompt)).result()
    file.unlink()


async def refused_alike(path: Path, other: Any, homes: list[Path]) -> None:
    """By the plan and by each turn, with what to do about it; nothing is written and no session is lost."""
    before = files(homes)
    async with owner(path, other) as (runtime, session):
        attempts = len(await bodies(session, TurnAttemptStarted))
        (planned,) = (await runtime.plan_restore("s")).next_sessions
        assert (planned.action, planned.provider_session) == ("refuse", OWN)
        for _ in range(2):
            receipt = (await (await session.send("go on")).result()).receipt
            assert receipt is not None
            assert (receipt.failed_phase, receipt.error.code) == ("host_launch", "session_mismatch")
            assert receipt.error.message == planned.reason
        assert f"one of command, and a stands for {other.kind} now" in planned.reason
        assert "let it stand for command again" in planned.reason
        assert len(await bodies(session, TurnAttemptStarted)) == attempts
        assert {body.provider for body in await bodies(session, AgentStateCaptured)} == {"command"}
        assert await bodies(session, AgentStateRestored) == []
        assert {body.state for body in await bodies(session, AgentSessionChanged)} == {"bound", "confirmed"}
    assert files(homes) == before


@pytest.mark.parametrize("on_lost", ["ask", "reseed"])
@pytest.mark.parametrize("prompt", [SAYS, FAILS], ids=["done", "failed"])
@pytest.mark.parametrize("other", OTHERS)
async def test_another_programs_session_is_neither_put_back_nor_resumed_nor_lost(
    tmp_path: Path, homes: list[Path], other: Any, prompt: str, on_lost: Any
) -> None:
    await begun(tmp_path, homes, prompt)
    await refused_alike(tmp_path, other(binary="/bin/false", on_lost=on_lost), homes)
    async with owner(tmp_path, keeping(tmp_path)) as (_, session):
        outcome = await (await session.send(SAYS)).result()
        # It is told of the failed prompt, too, and does what that says.
        assert outcome.receipt is None or outcome.receipt.failed_phase == "host_execute"
        assert (await bodies(session, AgentStateRestored))[-1].provider == "command"


@pytest.mark.parametrize("other", OTHERS)
async def test_a_person_who_wants_it_has_a_session_begun_in_the_other_program(
    tmp_path: Path, homes: list[Path], other: Any
) -> None:
    """Which cannot be executed here: the turn fails of that alone."""
    await begun(tmp_path, homes, SAYS)
    async with owner(tmp_path, other(binary="/bin/false")) as (_, session):
        await (await session.send("go on", key="t")).result()
        assert (await session.retry("t", session="reseed")).result == "done"
        receipt = (await (await session.send("go on", key="t")).result()).receipt
        assert receipt is not None
        assert receipt.error.code not in ("session_mismatch", "session_missing")
        assert len(await bodies(session, TurnAttemptStarted)) == 3


async def test_what_waits_is_not_used_up_by_a_name_that_stands_for_another_program(
    tmp_path: Path, homes: list[Path]
) -> None:
    await begun(tmp_path, homes, SAYS)
    keys = ["one", "two", "three"]
    async with outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        for key in keys:
            await client.session("s").send(SAYS, key=key)
    async with owner(tmp_path, Codex(binary="/bin/false")) as (runtime, session):
        plan = await runtime.plan_restore("s")
        assert "the first is parked for that, the others are held" in "\n".join(plan.lines())
        assert plan.ahead is not None
        assert plan.ahead.runs == ("one",)
        await runtime.restore("s")
        await session.quiet()
        outcomes = {turn.turn: turn.outcome for turn in (await session.view()).turns}
        assert [outcomes.get(key) for key in keys] == ["parked", "queued", "queued"]
    async with owner(tmp_path, keeping(tmp_path)) as (_, session):
        assert (await session.retry("one")).result == "done"
        await session.quiet()
        outcomes = {turn.turn: turn.outcome for turn in (await session.view()).turns}
        assert [outcomes[key] for key in keys] == ["done", "done", "done"]


async def test_a_living_agent_is_not_given_what_is_in_another_programs_language(
    tmp_path: Path, homes: list[Path]
) -> None:
    """It is ended: its name stands for another program, which nobody can speak with by that name."""

    class Other(ManyTurns):
        kind = "other"

    async with owner(tmp_path, serving()) as (_, session):
        prompt = f"say('session', id={OWN!r}); done()"
        assert (await (await session.send(prompt, agent="a")).result()).outcome == "done"
        await session.detach()
    async with owner(tmp_path, Other(["/bin/false"])) as (runtime, session):
        assert [loop.action for loop in (await runtime.plan_restore("s")).loops] == ["end"]
        receipt = (await (await session.send("done('read')")).result()).receipt
        assert receipt is not None
        assert receipt.error.code == "session_mismatch"
