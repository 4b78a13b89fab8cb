"""The spool of a living agent is damaged: the agent is ended, its turn says why, the session goes on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.agents import ManyTurns
from tests.support.place import Place
from tests.support.processes import until

import outlast
from outlast.agents import Command
from outlast.agents.command_fold import CommandFold
from outlast.agents.contract import AgentEvent, Fold, FoldContext
from outlast.journal import load_state, read_records
from outlast.records.types import AgentEventRecorded, TurnInterrupted
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command

pytestmark = pytest.mark.slow

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
TALKS = "[[effect:{turn}]][[say:" + "x" * 2000 + "]][[touch:up]][[hang]]"


def spool_in(state: Path) -> Path:
    (spool,) = state.glob("*/agents/*/gen-*/spool.*")
    return spool


def damage(state: Path) -> None:
    """One bit of what the agent said is another than it was."""
    spool = spool_in(state)
    data = spool.read_bytes()
    at = data.rindex(b"x" * 1000) + 100
    with spool.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))


def lose(state: Path) -> None:
    """The spool is gone, as if somebody had cleaned up."""
    spool = spool_in(state)
    spool.rename(spool.with_name(f"spool.{10**9:020d}"))


@pytest.mark.parametrize("harm", [damage, lose])
def test_a_turn_whose_spool_is_damaged_is_interrupted_and_its_agent_ended(place: Place, harm: object) -> None:
    place.send("job", TALKS, key="one")
    place.send("job", QUICK, key="two")
    runtime = place.start("resume", "job")
    place.until_there("up")
    place.until_recorded("job", "AgentEventRecorded")
    runtime.kill()
    harm(place.state)  # type: ignore[operator]

    assert place.call("resume", "job", "--json").outcomes == ["interrupted", "done"]
    journal = place.journal("job")
    interrupted = journal.the(TurnInterrupted, "one")
    assert interrupted.reason == "crash"
    assert "spool" in interrupted.evidence
    assert "its agent was ended, verified" in interrupted.evidence
    assert [body.text[:3] for body in journal.bodies(AgentEventRecorded, "one")] == ["xxx"]
    place.assert_effects_once("one", "two")


def test_a_damaged_spool_is_no_leave_to_send_the_input_for_ever(place: Place) -> None:
    """`on_interrupt` decides, and its budget holds."""
    place.send("job", "[[effect:{attempt}]]" + TALKS.replace("hang", "1?hang"), key="one", agent="retrying")
    runtime = place.start("resume", "job")
    place.until_there("up")
    place.until_recorded("job", "AgentEventRecorded")
    runtime.kill()
    damage(place.state)
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    assert place.effects == ["1", "one", "2", "one"]


@pytest.mark.parametrize("which", ["gen-000001", "."])
def test_a_folder_that_is_removed_in_mid_turn_interrupts_it_and_its_agent_is_ended(
    place: Place, which: str
) -> None:
    place.send("job", "[[effect:{turn}]][[touch:up]][[wait:go]][[say:more]][[hang]]", key="one")
    place.send("job", QUICK, key="two")
    runtime = place.start("resume", "job", "--json")
    place.until_there("up")
    place.until_recorded("job", "InputReserved")
    (folder,) = place.state.glob("outlast.d/agents/*")
    shutil.rmtree(folder / which)
    place.go()

    assert runtime.wait().outcomes == ["interrupted", "done"]
    evidence = place.journal("job").the(TurnInterrupted, "one").evidence
    assert "its spool is not there any more" in evidence
    assert "its agent was ended, verified" in evidence
    place.assert_effects_once("one", "two")


# --- in one process ----------------------------------------------------------------------------------


class Faulty(CommandFold):
    """Its author did not think of the word `boom`."""

    def apply_out(self, line: bytes) -> list[AgentEvent]:
        if b"boom" in line:
            raise ZeroDivisionError("the key is sk-abcdefghijkl")
        return super().apply_out(line)


class WithFaultyFold(Command):
    def fold(self, context: FoldContext, state: bytes | None = None) -> Fold:
        return Faulty(context, stdin=self.stdin, require_nonce=False, state=state)


@asynccontextmanager
async def owner(path: Path, kind: type[Command]) -> AsyncIterator[outlast.Session]:
    agent = kind(command(SCRIPTED, "--effects", str(path / "effects")), stdin="open")
    url = sqlite_url(path / "x.db")
    async with outlast.Runtime(url, agents={"a": agent}) as runtime, asyncio.timeout(30):
        yield runtime.session("s", workspace=path)


async def test_an_adapter_that_fails_at_what_the_agent_says_costs_the_turn_and_not_the_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with owner(tmp_path, WithFaultyFold) as session:
        turn = await session.send("[[say:before]][[say:boom]][[hang]]", agent="a", key="one")
        outcome = await turn.result()
        assert (outcome.outcome, outcome.text) == ("interrupted", "before")
        second = await (await session.send("[[say:well]]", key="two")).result()
        assert (second.outcome, second.text) == ("done", "well")
        records = [r.body async for r in read_records(session._backing.store, "s")]
    (interrupted,) = [body for body in records if isinstance(body, TurnInterrupted)]
    assert "ZeroDivisionError" in interrupted.evidence
    assert "sk-" not in interrupted.evidence + caplog.text
    assert caplog.text.count("ZeroDivisionError") == 1


async def test_an_agent_between_turns_whose_spool_is_damaged_is_ended(tmp_path: Path) -> None:
    said = "[[done]][[wait:go]][[say:" + "x" * 2000 + "]][[hang]]"
    async with owner(tmp_path, ManyTurns) as session:
        assert (await (await session.send(said, agent="a", key="one")).result()).outcome == "done"
    (tmp_path / "go").touch()
    # Once in the prompt, once in what it says.
    until(lambda: spool_in(tmp_path).read_bytes().count(b"x" * 2000) == 2, "it has said more")
    damage(tmp_path)
    async with owner(tmp_path, ManyTurns) as session:
        second = await (await session.send("[[say:well]][[done]]", key="two")).result()
        assert (second.outcome, second.text) == ("done", "well")
        state = await load_state(session._backing.store, "s")
        await session.kill()
    assert state.turns == 2
