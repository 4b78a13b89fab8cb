"""Who decides a gate without a person: a policy that fails, and one that comes with a later owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.agents import Command
from outlast.errors import UsageError
from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.records.types import GateOpened, GateResolved
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command
from outlast.turns import deciding

ASKS = "[[gate:g:ok?:allow_once,reject_once]]"


HOLDS_ON = f"[[ignore-term]]{ASKS}[[hang]]"


@asynccontextmanager
async def owner(path: Path, policy: Callable[[GateOpened], Any]) -> AsyncIterator[outlast.Session]:
    agent = Command(command(SCRIPTED, "--effects", str(path / "effects")), stdin="open")
    url = sqlite_url(path / "x.db")
    async with outlast.Runtime(url, agents={"a": agent}, on_gate=policy) as runtime, asyncio.timeout(30):
        yield runtime.session("s", workspace=path)


def fails(gate: GateOpened) -> str | None:
    raise ValueError(f"a bug in the embedding program, token=sk-abcdefghijkl, at {gate.question}")


async def gate_of(session: outlast.Session) -> str:
    """The open gate, once there is one."""
    async for item in session.follow():
        if isinstance(item, Record) and isinstance(item.body, GateOpened):
            return item.body.gate
    raise AssertionError


async def resolutions(session: outlast.Session) -> list[tuple[str, str | None]]:
    records = [record.body async for record in read_records(session._backing.store, "s")]
    return [(body.reason, body.answer) for body in records if isinstance(body, GateResolved)]


async def test_a_gate_whose_policy_fails_is_left_to_a_person_and_the_failure_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with owner(tmp_path, fails) as session:
        turn = await session.send(ASKS, agent="a")
        gate = await gate_of(session)
        await session.answer(gate, "reject_once", by="ann")
        assert (await turn.result()).text == "g=reject_once"
        assert await resolutions(session) == [("answered", "reject_once")]
    assert caplog.text.count("ValueError") == 1
    assert "a person has to answer it" in caplog.text
    assert "sk-" not in caplog.text


async def cancels_itself(gate: GateOpened) -> str | None:
    raise asyncio.CancelledError


def spoils_the_question(gate: GateOpened) -> str | None:
    gate.choices.clear()
    return "no such choice"


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lambda gate: "allow", "which the gate does not have"),
        (lambda gate: True, "chose True"),
        (lambda gate: [gate], "which the gate does not have"),
        (cancels_itself, "cancelled by something of its own"),
        (spoils_the_question, "no such choice"),
    ],
    ids=["unknown", "no text", "a list", "cancelled", "changed question"],
)
async def test_an_answer_that_is_none_leaves_the_gate_to_a_person(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, policy: Any, told: str
) -> None:
    async with owner(tmp_path, policy) as session:
        turn = await session.send(ASKS, agent="a")
        await session.answer(await gate_of(session), "allow_once", by="ann")
        assert (await turn.result()).text == "g=allow_once"
        assert await resolutions(session) == [("answered", "allow_once")]
    assert told in caplog.text
    assert "a person has to answer it" in caplog.text


class Choices(StrEnum):
    ONCE = "allow_once"


async def test_a_choice_that_equals_one_of_the_gates_is_that_one(tmp_path: Path) -> None:
    async with owner(tmp_path, lambda gate: Choices.ONCE) as session:
        turn = await session.send(ASKS, agent="a")
        assert (await turn.result()).text == "g=allow_once"
        assert await resolutions(session) == [("policy", "allow_once")]


async def test_what_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"outlast\.allow"):
        outlast.Runtime("memory://", on_gate="allow")  # type: ignore[arg-type]


async def test_an_owner_that_comes_later_decides_the_gates_that_are_open(tmp_path: Path) -> None:
    async with owner(tmp_path, outlast.ask) as session:
        await session.send(ASKS, agent="a", key="one")
        await gate_of(session)
    async with owner(tmp_path, outlast.allow) as session:
        turn = await session.send("[[say:hello]]", key="two")
        assert (await turn.result()).outcome == "done"
        assert (await session.outcome("one")).text == "g=allow_once"
        assert await resolutions(session) == [("policy", "allow_once")]


async def test_a_policy_that_is_still_at_it_ends_before_its_turn_does(tmp_path: Path) -> None:
    """What the embedding program does there must not go on beside the next turn."""
    ended = False

    async def takes_its_time(gate: GateOpened) -> str | None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.5)  # what it has begun is put in order
            ended = True
        return None

    async with owner(tmp_path, takes_its_time) as session:
        turn = await session.send(HOLDS_ON, agent="a")
        await gate_of(session)
        await session.cancel()
        assert (await turn.result()).outcome == "cancelled"
        assert ended


async def test_a_policy_that_takes_no_notice_of_its_end_does_not_hold_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deciding, "LEAVE", 0.1)
    enough = asyncio.Event()

    async def takes_no_notice(gate: GateOpened) -> str | None:
        while not enough.is_set():
            with suppress(asyncio.CancelledError):
                await enough.wait()
        return None

    async with owner(tmp_path, takes_no_notice) as session:
        turn = await session.send(HOLDS_ON, agent="a")
        await gate_of(session)
        await session.cancel()
        assert (await turn.result()).outcome == "cancelled"
        assert "goes on after its turn" in caplog.text
        enough.set()
