"""What a person decides about a turn at another place, while nobody owns its session: the program that is
started again carries it out and is told what came of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cli.support import Shell
from tests.crash.test_owed_commands import WORDS, given_to_nobody, left_unknown, runtime_of
from tests.crash.test_performing import PROMPT, World, an_agent, bodies, owner

import outlast
from outlast.errors import RestoreError
from outlast.records.types import RestoreStarted, TurnAttemptStarted
from outlast.store.url import sqlite_url


async def asked_again(runtime: outlast.Runtime) -> outlast.Outcome:
    """What the README's program does each time that it is started."""
    async with asyncio.timeout(30):
        turn = await runtime.session("s").send(PROMPT, agent="a", key="t")
        outcome = await turn.result()
        if runtime.actor("s") is not None:
            await runtime.session("s").finish()
        return outcome


@pytest.mark.parametrize(("kind", "attempts"), [("settle", 1), ("retry", 2)])
async def test_a_program_started_again_carries_out_what_was_decided_and_has_its_result(
    tmp_path: Path, kind: str, attempts: int
) -> None:
    world = await left_unknown(tmp_path)
    await given_to_nobody(tmp_path, WORDS[kind])
    async with runtime_of(tmp_path, world) as runtime:
        outcome = await asked_again(runtime)
        assert (outcome.outcome, outcome.text) == ("done", "finished")
        assert len(await bodies(runtime.session("s"), TurnAttemptStarted)) == attempts
        assert not (await runtime.session("s").view()).commands
    assert len(world.given) == 2


async def test_a_turn_that_is_skipped_is_what_it_was_once_that_is_carried_out(tmp_path: Path) -> None:
    world = await left_unknown(tmp_path)
    await given_to_nobody(tmp_path, lambda session: session.skip("t"))
    async with runtime_of(tmp_path, world) as runtime:
        assert (await asked_again(runtime)).outcome == "parked"
        assert not (await runtime.session("s").view()).commands
    assert len(world.given) == 1


async def test_where_nothing_is_decided_a_known_key_is_answered_from_the_journal(tmp_path: Path) -> None:
    await left_unknown(tmp_path)
    async with outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        for _ in range(2):
            turn = await client.session("s").send(PROMPT, agent="a", key="t")
            assert (await turn.result()).outcome == "parked"
        assert len(await bodies(client.session("s"), RestoreStarted)) == 0


async def test_a_client_that_nobody_can_serve_is_told_how_the_turn_stands(tmp_path: Path) -> None:
    await left_unknown(tmp_path)
    await given_to_nobody(tmp_path, WORDS["settle"])
    async with outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        assert (await client.session("s").outcome("t")).outcome == "parked"


async def test_a_client_is_told_what_came_of_a_decision_that_an_owner_carries_out(tmp_path: Path) -> None:
    world = World(answers=[OSError("cut off"), None, "pushed"])
    push = outlast.TurnEffect("push", "write_back", world.body)
    async with owner(tmp_path, [push]) as session, outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        assert (await (await session.send(PROMPT, agent="a", key="t")).result()).outcome == "parked"
        busy = await session.send(f"[[wait:{tmp_path}/go]]", key="u")
        await busy.accepted()
        settled = asyncio.create_task(client.session("s").settle("push", done=False))
        while not (await client.session("s").view()).commands:
            pass
        waiting = asyncio.create_task(client.session("s").outcome("t"))
        await asyncio.wait([waiting], timeout=0)
        (tmp_path / "go").touch()
        assert ((await waiting).outcome, (await settled).result) == ("done", "done")


async def test_a_program_without_the_effects_is_told_that_it_cannot_carry_it_out(tmp_path: Path) -> None:
    await left_unknown(tmp_path)
    await given_to_nobody(tmp_path, WORDS["settle"])
    async with runtime_of(tmp_path) as runtime:
        with pytest.raises(RestoreError, match="owes push"):
            await asked_again(runtime)


def test_run_with_a_known_key_carries_out_a_retry_that_waits(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.agents(a=tuple(an_agent(tmp_path).command))
    prompt = "[[1?exit:9]][[say:well]]"
    first = shell.run("run", "-a", "a", "--key", "k", "--session", "s", prompt)
    assert first.code == 1, first
    assert shell.run("retry", "s").code == 0
    again = shell.run("run", "-a", "a", "--key", "k", "--session", "s", prompt)
    assert (again.code, again.out.strip()) == (0, "well"), again
