"""A plan says of the agent's own session what the next start of the agent then does with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from tests.support.agents import Keeping

import outlast
from outlast.restore.plan import RestorePlan
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command

SESSION = "thr"


@asynccontextmanager
async def runtime_of(
    path: Path, on_lost: Literal["ask", "refuse", "reseed"] = "ask"
) -> AsyncIterator[outlast.Runtime]:
    argv = command(SCRIPTED, "--effects", str(path / "effects"))
    agent = Keeping(argv, home=path / "home", on_lost=on_lost)
    async with (
        asyncio.timeout(30),
        outlast.Runtime(sqlite_url(path / "x.db"), agents={"a": agent}) as runtime,
    ):
        yield runtime


async def captured(path: Path) -> Path:
    """The file of a session that has ended one turn, which is captured, and has another input waiting."""
    (path / "home").mkdir()
    (path / "work").mkdir()
    file = path / "home" / SESSION
    file.write_bytes(b"one line\n")
    async with runtime_of(path) as runtime:
        session = runtime.session("s", workspace=path / "work")
        first = await (await session.send(f"[[session:{SESSION}]]one", agent="a")).result()
        assert first.outcome == "done"
        await session.finish()
    async with outlast.connect(sqlite_url(path / "x.db")) as client:
        await client.session("s").send("[[say:two]]", key="two")
    return file


async def planned(path: Path, on_lost: Literal["ask", "refuse", "reseed"] = "ask") -> RestorePlan:
    """The plan, which changes nothing."""
    before = {file: file.read_bytes() for file in (path / "home").iterdir()}
    async with runtime_of(path, on_lost) as runtime:
        tip = (await runtime.store.tip("s")).seq
        plan = await runtime.plan_restore("s")
        assert (await runtime.store.tip("s")).seq == tip
    assert {file: file.read_bytes() for file in (path / "home").iterdir()} == before
    return plan


async def resumed(path: Path, on_lost: Literal["ask", "refuse", "reseed"] = "ask") -> outlast.View:
    """The session as it is once a restore has gone on with what waited."""
    async with runtime_of(path, on_lost) as runtime:
        session = await runtime.restore("s")
        await session.quiet()
        await session.finish()
        return await session.view()


async def test_of_a_damaged_file_the_plan_says_what_the_resume_then_asks(tmp_path: Path) -> None:
    file = await captured(tmp_path)
    file.write_bytes(b"another line\n")
    plan = await planned(tmp_path)
    (chosen,) = plan.next_sessions
    assert chosen.action == "ask"
    assert str(file) in chosen.reason
    assert plan.lines()[-1].startswith(
        "inputs that wait: 1 (1 not accepted yet): the first is parked with that question"
    )

    view = await resumed(tmp_path)
    assert view.turns[-1].outcome == "parked"
    (gate,) = view.gates
    assert chosen.reason in gate.question
    assert [choice.id for choice in gate.choices] == [*chosen.choices, "refuse"]
    again = await planned(tmp_path)
    assert again.next_sessions[0].choices == chosen.choices


async def test_of_a_file_that_is_gone_the_plan_says_that_it_is_put_back(tmp_path: Path) -> None:
    file = await captured(tmp_path)
    file.unlink()
    plan = await planned(tmp_path)
    (chosen,) = plan.next_sessions
    assert (chosen.action, chosen.provider_session) == ("put_back", SESSION)
    assert "its file was gone" in chosen.reason
    assert plan.lines()[-1].endswith("run in their order")

    view = await resumed(tmp_path)
    assert file.read_bytes() == b"one line\n"
    assert view.turns[-1].outcome == "done"
    (session,) = view.agent_sessions
    assert session.confirmed
    assert session.went_back is not None
    assert session.went_back.reason == "its file was gone"


async def test_of_a_whole_file_the_plan_says_that_it_is_resumed(tmp_path: Path) -> None:
    await captured(tmp_path)
    (chosen,) = (await planned(tmp_path)).next_sessions
    assert chosen.action == "resume"
    assert "nothing is wrong with the agent's own file" in chosen.reason
    assert (await resumed(tmp_path)).turns[-1].outcome == "done"


async def test_where_nobody_is_asked_the_plan_says_what_the_agents_setting_makes_of_it(
    tmp_path: Path,
) -> None:
    file = await captured(tmp_path)
    file.write_bytes(b"another line\n")
    (chosen,) = (await planned(tmp_path, "reseed")).next_sessions
    assert (chosen.action, chosen.provider_session) == ("start_new", None)
    assert str(file) in chosen.reason
    (chosen,) = (await planned(tmp_path, "refuse")).next_sessions
    assert chosen.action == "refuse"
    assert "put_back" in chosen.choices

    assert (await resumed(tmp_path, "refuse")).turns[-1].outcome == "failed"
    plan = await planned(tmp_path, "refuse")
    assert plan.held_by_loss


async def test_of_a_choice_that_waits_the_plan_says_what_the_start_then_does(tmp_path: Path) -> None:
    file = await captured(tmp_path)
    file.write_bytes(b"another line\n")
    (gate,) = (await resumed(tmp_path)).gates
    async with outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        assert (await client.session("s").answer(gate.id, "put_back", by="ann")).result == "queued"
        await client.session("s").send("[[say:three]]", key="three")

    plan = await planned(tmp_path)
    (chosen,) = plan.next_sessions
    assert (chosen.action, chosen.provider_session) == ("put_back", SESSION)
    text = "\n".join(plan.lines())
    assert f"gate {gate.id}: keep: the runtime asked it itself and is given the answer put_back" in text
    assert f"answer {gate.id} put_back by ann: " in text
    assert "what was captured of the agent's session is put back; turn two runs again" in text
    assert "inputs that wait: 1 (1 not accepted yet): run in their order" in text
    assert plan.lines()[-1] == "then these turns run: two, then three"

    view = await resumed(tmp_path)
    assert file.read_bytes() == b"one line\n"
    assert [turn.outcome for turn in view.turns] == ["done", "done", "done"]
