"""A person's word on a turn that owes effects, met by owners that do not have these: it waits for one that
does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.cli.support import Shell
from tests.crash.test_performing import PROMPT, World, an_agent, bodies, owner

import outlast
from outlast.agents.failure import what_to_do
from outlast.cli.check_agents import way_back
from outlast.errors import EffectNotFoundError, RestoreError
from outlast.journal import load_state
from outlast.records.types import CommandSettled
from outlast.runtime.handles import Settled
from outlast.store.contract import Admission
from outlast.store.sqlite.layout import Layout
from outlast.store.url import sqlite_url
from outlast.turns.requests import SettleRequest, encode

Word = Callable[[outlast.Session], Awaitable[Settled]]
WORDS: dict[str, Word] = {
    "settle": lambda session: session.settle("push", done=False),
    "retry": lambda session: session.retry("t"),
}


def runtime_of(path: Path, world: World | None = None) -> outlast.Runtime:
    effects = [outlast.TurnEffect("push", "write_back", world.body)] if world else []
    return outlast.Runtime(sqlite_url(path / "x.db"), agents={"a": an_agent(path)}, effects=effects)


async def left_unknown(path: Path) -> World:
    """A turn of session `s` that is parked, because its effect failed and nobody knows what it had done."""
    world = World(answers=[OSError("cut off"), "pushed"])
    async with owner(path, [outlast.TurnEffect("push", "write_back", world.body)]) as session:
        assert (await (await session.send(PROMPT, agent="a", key="t")).result()).outcome == "parked"
    return world


async def given_to_nobody(path: Path, word: Word) -> None:
    async with outlast.connect(sqlite_url(path / "x.db")) as client:
        assert (await word(client.session("s"))).result == "queued"


@pytest.mark.parametrize("kind", WORDS)
async def test_a_word_on_owed_effects_waits_for_an_owner_that_has_them(tmp_path: Path, kind: str) -> None:
    world = await left_unknown(tmp_path)
    await given_to_nobody(tmp_path, WORDS[kind])
    async with runtime_of(tmp_path) as runtime:
        session = runtime.session("s")
        for _ in range(2):
            with pytest.raises(RestoreError, match="owes push") as refused:
                await runtime.restore("s")
            assert isinstance(refused.value.__cause__, EffectNotFoundError)
            assert "outlast cancel s t" in (refused.value.hint or "")
        assert await runtime.visit("s") is not None, "who comes for commands alone leaves it where it is"
        await session.quiet()
        with pytest.raises(EffectNotFoundError):
            await runtime.restore("s")
        await session.finish()
        assert [waiting.command for waiting in (await session.view()).commands] == [kind]
    async with runtime_of(tmp_path, world) as runtime:
        session = await runtime.restore("s")
        assert [outcome.outcome async for outcome in session.drain()] == ["done"]
        assert not (await session.view()).commands
        await session.finish()
    assert len(world.given) == 2


async def test_a_word_that_waits_for_effects_is_taken_back_by_cancel(tmp_path: Path) -> None:
    await left_unknown(tmp_path)
    await given_to_nobody(tmp_path, WORDS["settle"])
    async with runtime_of(tmp_path) as runtime:
        assert await runtime.visit("s") is not None
        session = runtime.session("s")
        cancelled = await session.cancel()
        assert (cancelled.result, "settle of turn t" in cancelled.detail) == ("done", True), cancelled
        await session.finish()
        await runtime.restore("s")
        assert (await (await session.send("[[say:goes on]]")).result()).outcome == "done"
        settled = [(body.command, body.outcome) for body in await bodies(session, CommandSettled)]
        assert settled == [("settle", "refused"), ("cancel", "done")]
        await session.finish()


async def test_an_owner_that_lives_says_at_once_that_it_lacks_the_effects(tmp_path: Path) -> None:
    await left_unknown(tmp_path)
    async with runtime_of(tmp_path) as runtime:
        session = await runtime.restore("s")
        for word in WORDS.values():
            told = await word(session)
            assert (told.result, "owes push" in told.detail) == ("refused", True), told
        await session.finish()


def test_who_says_a_word_on_owed_effects_at_a_shell_is_told_which_program_hears_it(tmp_path: Path) -> None:
    (tmp_path / "shell").mkdir()
    shell = Shell(tmp_path / "shell")
    shell.agents(a=tuple(an_agent(tmp_path).command))
    shell.environ["OUTLAST_STORE"] = sqlite_url(tmp_path / "x.db")
    asyncio.run(left_unknown(tmp_path))
    kept = shell.run("settle", "s", "push", "--done")
    assert (kept.code, kept.out) == (0, "kept for the program that has push, which turn t owes: start that\n")
    refused = shell.run("resume", "s")
    assert (refused.code, "`outlast cancel s t` takes it back" in refused.err) == (3, True), refused
    back = shell.run("cancel", "s")
    assert (back.code, back.out) == (0, "taken back, no owner had it yet: settle of turn t\n"), back


def test_of_two_contrary_words_on_a_turn_the_second_is_told_which_came_first(tmp_path: Path) -> None:
    (tmp_path / "shell").mkdir()
    shell = Shell(tmp_path / "shell")
    shell.environ["OUTLAST_STORE"] = sqlite_url(tmp_path / "x.db")
    asyncio.run(left_unknown(tmp_path))
    for _ in range(2):
        kept = shell.run("settle", "s", "push", "--not-done")
        assert (kept.code, "kept for the program that has push" in kept.out) == (0, True), kept
    contrary = [("settle", "s", "push", "--done"), ("retry", "s"), ("skip", "s"), ("retry", "s", "--fresh")]
    for words in contrary:
        late = shell.run(*words)
        first = "too late: `settle push --not-done by cli` came first and waits for an owner: kept for"
        assert (late.code, late.out.startswith(first)) == (4, True), late
    assert "settle t push --not-done by cli\n" in shell.run("show", "s").out
    late = shell.run("settle", "s", "push", "--done", "--json")
    assert (late.code, '"result":"taken"' in late.out) == (4, True), late
    [command] = shell.json("show", "s")["commands"]
    assert (command["command"], command["outcome"]) == ("settle", "absent")


@pytest.mark.parametrize(("first", "second"), [("retry", "skip"), ("skip", "retry")])
async def test_a_retry_and_a_skip_of_one_turn_are_contrary(tmp_path: Path, first: str, second: str) -> None:
    await left_unknown(tmp_path)
    async with outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        session = client.session("s")
        assert [(await getattr(session, first)()).result for _ in range(2)] == ["queued"] * 2
        told = await getattr(session, second)("t")
        assert (told.result, told.detail) == ("taken", f"`{first}` came first and waits for an owner")
        assert [command.command for command in (await session.view()).commands] == [first]


async def test_two_results_of_one_effect_are_contrary(tmp_path: Path) -> None:
    await left_unknown(tmp_path)
    async with outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        session = client.session("s")
        said = [await session.settle("push", done=True, result=number) for number in (1, 1, 2)]
        assert [each.result for each in said] == ["queued", "queued", "taken"]


async def test_a_word_on_an_effect_is_too_late_once_it_has_begun_again(tmp_path: Path) -> None:
    """Both were admitted at the same moment: the second is about what the first has changed since."""
    world = await left_unknown(tmp_path)
    world.answers = [OSError("cut off again")]
    async with outlast.connect(sqlite_url(tmp_path / "x.db")) as client:
        state = await load_state(client.store, "s")
        [effect] = state.parked["t"].effects.values()
        for outcome in ("absent", "done"):
            word = SettleRequest(turn="t", effect=effect.effect, outcome=outcome, seen=effect.seq)
            await client.store.admit(
                Admission(session="s", request_id=outcome, kind="settle", body=encode(word), actor="two")
            )
    async with runtime_of(tmp_path, world) as runtime:
        session = await runtime.restore("s")
        await session.quiet()
        [late] = await bodies(session, CommandSettled)
        assert (late.request_id, late.outcome) == ("done", "too_late")
        assert (await session.outcome("t")).outcome == "parked"
        await session.finish()


async def with_three_effects(path: Path) -> None:
    """A turn whose first effect is done, whose second failed, and whose third has not begun."""
    effects = [
        outlast.TurnEffect("validate", "validation", World().body),
        outlast.TurnEffect("write back", "write_back", World(answers=[OSError("cut off")]).body),
        outlast.TurnEffect("book", "settle", World().body),
    ]
    async with owner(path, effects) as session:
        assert (await (await session.send(PROMPT, agent="a", key="t")).result()).outcome == "parked"


def test_no_advice_names_a_command_that_is_refused_for_the_effects_that_a_turn_owes(tmp_path: Path) -> None:
    (tmp_path / "shell").mkdir()
    shell = Shell(tmp_path / "shell")
    shell.agents(a=tuple(an_agent(tmp_path).command))
    shell.environ["OUTLAST_STORE"] = sqlite_url(tmp_path / "x.db")
    asyncio.run(with_three_effects(tmp_path))
    advice = "what to do: outlast settle s 'write back' --done, or --not-done, whichever is so\n"
    assert advice in shell.run("show", "s").out
    kept = shell.run("settle", "s", "write back", "--done")
    assert kept.out == "kept for the program that has write back, book, which turn t owes: start that\n"
    run = ("run", "-a", "a", "--session", "s", "--key", "t", PROMPT)
    for refused in (shell.run("resume", "s"), shell.run(*run)):
        assert refused.code == 3, refused
        assert "owes write back, book, which this process does not have" in refused.err
        assert "outlast resume" not in refused.err
        assert "start the program that has these effects" in refused.err
    assert shell.run(*run).err.endswith("to come back: start the program that has write back, book\n")
    assert '"needs":["write back","book"]' in shell.run(*run, "--json").err


def test_the_doctor_names_the_program_and_not_a_resume_that_is_refused(tmp_path: Path) -> None:
    asyncio.run(with_three_effects(tmp_path))
    layout = Layout.of(tmp_path / "x.db")
    assert way_back(layout, "s") == "outlast resume s"
    asyncio.run(given_to_nobody(tmp_path, lambda session: session.settle("write back", done=False)))
    assert way_back(layout, "s") == "start the program that has write back, book"


def test_what_to_do_about_a_refused_effect_can_be_pasted() -> None:
    told = what_to_do("effect_refused", "write back: the tests fail: 3", "my session")
    assert "`outlast settle 'my session' 'write back' --not-done`" in told
    told = what_to_do("effect_unknown", "push: cut off", "s")
    assert "`outlast settle s push --done` or `outlast settle s push --not-done`" in told
