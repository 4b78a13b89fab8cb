"""Somebody stops an agent's shim, its guard or the agent itself (SIGSTOP): nothing hangs without a word,
nothing is inferred, and no second agent is started beside the first."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.place import Place
from tests.support.processes import Child, until

import outlast
from outlast.agents import Command
from outlast.keep import AgentFolder, GenerationFacts, probe, proc
from outlast.records.envelope import Record
from outlast.records.types import (
    GateOpened,
    InputReserved,
    SessionStopped,
    TurnAttached,
    TurnAttemptStarted,
    TurnFailed,
    TurnInterrupted,
)
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command
from outlast.turns import conversation

pytestmark = pytest.mark.slow

MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"
QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
ASKS = "[[effect:{turn}]][[gate:g:well?:yes,no]][[wait:go]][[say:finished {turn}]]"
DAEMON = "[[daemon:daemon]][[effect:{turn}]][[touch:started]][[wait:go]]"


def at_work(place: Place, prompt: str = MID_TURN, agent: str = "plain") -> Child:
    """An owner whose agent is in the middle of turn `one`."""
    run = place.start("run", "-a", agent, "--session", "job", "--key", "one", "--json", prompt)
    place.until_there("started")
    return run


def life(folder: Path) -> GenerationFacts:
    """The newest life of the only session's agent, by the store's folder."""
    (path,) = folder.glob("agents/*")
    found = probe(AgentFolder(path)).latest
    assert found is not None
    return found


def stop(pid: int) -> int:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: proc.is_stopped(pid), f"{pid} is stopped")
    return pid


def stop_shim(folder: Path) -> int:
    shim = life(folder).shim
    assert shim is not None
    return stop(shim.pid)


def stop_guard(folder: Path) -> int:
    guard = life(folder).guard
    assert guard is not None
    return stop(guard.pid)


@pytest.mark.parametrize("order", [["kill"], ["kill", "--force"], ["close"], ["cancel"]], ids=" ".join)
def test_a_person_ends_an_agent_whose_shim_is_stopped(place: Place, order: list[str]) -> None:
    """Its owner continues the shim that is to end it."""
    run = at_work(place)
    stop_shim(place.state / "outlast.d")
    ordered = place.call(order[0], "job", *order[1:], "--json")
    assert ordered.status == 0, ordered
    assert json.loads(ordered.stdout)["result"] == "done"
    closed = order == ["close"]
    ended = run.wait()
    assert (ended.status, ended.outcomes) == ((1, ["interrupted"]) if closed else (130, ["cancelled"])), ended
    until(lambda: not place.leftovers, "all is gone")
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one")


@pytest.mark.parametrize("order", [["kill"], ["kill", "--force"], ["close"]], ids=" ".join)
def test_a_person_ends_an_agent_whose_shim_is_stopped_and_that_nobody_owns(
    place: Place, order: list[str]
) -> None:
    at_work(place).kill()
    stop_shim(place.state / "outlast.d")
    ordered = place.call(order[0], "job", *order[1:], "--json")
    assert ordered.status == 0, ordered
    assert json.loads(ordered.stdout)["result"] == "done"
    until(lambda: not place.leftovers, "all is gone")
    journal = place.journal("job")
    if order == ["close"]:
        journal.the(SessionStopped)
    journal.the(TurnInterrupted)
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one")


def test_a_stopped_owner_and_its_stopped_shim_are_ended_by_force(place: Place) -> None:
    run = at_work(place)
    stop_shim(place.state / "outlast.d")
    stop(run.pid)
    ordered = place.call("kill", "job", "--force", "--json")
    assert ordered.status == 0, ordered
    assert run.wait().status == -signal.SIGKILL
    until(lambda: not place.leftovers, "all is gone")
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one")


def test_a_restore_names_the_stopped_shim_and_leaves_the_session_as_it_is(place: Place) -> None:
    at_work(place).kill()
    tip = place.journal("job").state.seq
    shim = stop_shim(place.state / "outlast.d")
    refused = place.call("resume", "job", "--json")
    assert refused.status == 4, refused
    error = refused.errors[-1]
    assert f"pid {shim}" in error["message"]
    assert f"kill -CONT {shim}" in error["hint"]
    assert proc.is_stopped(shim)
    assert place.journal("job").state.seq == tip

    os.kill(shim, signal.SIGCONT)
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()
    assert owner.wait().outcomes == ["done"]
    journal = place.journal("job")
    assert len(journal.bodies(TurnAttached)) == 1
    assert len(journal.bodies(TurnAttemptStarted)) == 1
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one")


def test_another_prompt_does_not_start_an_agent_beside_one_whose_shim_is_stopped(place: Place) -> None:
    """It is kept, and runs once the session is restored."""
    at_work(place).kill()
    shim = stop_shim(place.state / "outlast.d")
    second = place.call("run", "--session", "job", "--key", "two", "--json", QUICK)
    assert second.status == 4, second
    assert f"pid {shim}" in second.errors[-1]["message"]
    assert life(place.state / "outlast.d").generation.number == 1

    os.kill(shim, signal.SIGCONT)
    place.go()
    assert place.call("resume", "job", "--json").outcomes == ["done", "done"]
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "killed"])
async def test_what_is_told_to_an_agent_waits_for_its_stopped_shim(tmp_path: Path, killed: bool) -> None:
    """An answer comes while the shim is stopped: its owner names the shim, and tells the agent once when it
    goes on; or somebody wants the agent ended."""
    agent = Command(command(SCRIPTED, "--effects", str(tmp_path / "effects")), stdin="open")
    async with outlast.Runtime(sqlite_url(tmp_path / "x.db"), agents={"a": agent}) as runtime:
        session = runtime.session("job", workspace=tmp_path)
        turn = await session.send(ASKS, key="one")
        async for item in session.follow():
            if isinstance(item, Record) and isinstance(item.body, GateOpened):
                break
        with runtime.listen("job") as said:
            shim = stop_shim(tmp_path / "x.d")
            async with asyncio.timeout(60):
                await session.answer((await session.gates())[0].id, "yes")
                while not (notice := await said.get()).notice:
                    continue
                assert f"pid {shim}" in notice.text
                if killed:
                    assert (await session.kill()).result == "done"
                else:
                    os.kill(shim, signal.SIGCONT)
                    (tmp_path / "go").touch()
                outcome = await turn.result()
        assert outcome.outcome == ("cancelled" if killed else "done")
        assert killed or outcome.text == "g=yes\nfinished one"
        assert (tmp_path / "effects").read_text("utf-8").splitlines() == ["one"]
        await session.finish()


async def test_whoever_follows_a_turn_is_told_that_its_shim_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "WATCH", 0.1)
    agent = Command(command(SCRIPTED, "--effects", str(tmp_path / "effects")))
    async with outlast.Runtime(sqlite_url(tmp_path / "x.db"), agents={"a": agent}) as runtime:
        session = runtime.session("job", workspace=tmp_path)
        turn = await session.send(MID_TURN, key="one")
        async for item in session.follow():
            if isinstance(item, Record) and isinstance(item.body, InputReserved):
                break
        with runtime.listen("job") as said:
            shim = stop_shim(tmp_path / "x.d")
            async with asyncio.timeout(60):
                while f"pid {shim}" not in (await said.get()).text:
                    continue
                os.kill(shim, signal.SIGCONT)
                (tmp_path / "go").touch()
                assert (await turn.result()).outcome == "done"
            assert said.empty()
        await session.finish()


def test_a_shim_that_is_stopped_before_its_start_starts_one_agent(place: Place) -> None:
    """The agent that it may have started all the same is ended, verified, before there is another."""
    place.send("job", QUICK, key="one")
    owner = place.start("resume", "job", "--json", faults="turn.start.before=stop")
    owner.wait_stopped()
    stop_shim(place.state / "outlast.d")
    owner.go_on()
    assert owner.wait().outcomes == ["done"]
    journal = place.journal("job")
    assert len(journal.bodies(TurnAttemptStarted)) == 2
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one")


@pytest.mark.parametrize("order", ["kill", "resume"])
def test_a_stopped_guard_is_continued_to_end_what_its_dead_shim_has_left(place: Place, order: str) -> None:
    at_work(place, DAEMON).kill()
    daemon = int(place.until_there("daemon"))
    stop_guard(place.state / "outlast.d")
    shim = life(place.state / "outlast.d").shim
    assert shim is not None
    os.kill(shim.pid, signal.SIGKILL)
    until(lambda: life(place.state / "outlast.d").shim_alive is False, "the shim is gone")
    assert proc.start_ticks(daemon) is not None
    if order == "resume":
        place.send("job", QUICK, key="two")
    place.call(order, "job")
    until(lambda: not place.leftovers, "all is gone")
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once(*(["one", "two"] if order == "resume" else ["one"]))


def test_a_shim_killed_beside_its_stopped_guard_ends_the_turn(place: Place) -> None:
    run = at_work(place, DAEMON)
    stop_guard(place.state / "outlast.d")
    shim = life(place.state / "outlast.d").shim
    assert shim is not None
    os.kill(shim.pid, signal.SIGKILL)
    assert run.wait().outcomes == ["failed"]
    until(lambda: not place.leftovers, "all is gone")
    place.assert_effects_once("one")


def test_an_agent_that_is_stopped_itself_is_killed_all_the_same(place: Place) -> None:
    run = at_work(place)
    stop(life(place.state / "outlast.d").agent_pid)
    assert place.call("kill", "job").status == 0
    assert run.wait().outcomes == ["cancelled"]
    until(lambda: not place.leftovers, "all is gone")


def test_an_agent_that_is_stopped_itself_is_silent_and_its_idle_time_runs(place: Place) -> None:
    run = place.start("run", "-a", "impatient", "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    stop(life(place.state / "outlast.d").agent_pid)
    assert run.wait().outcomes == ["failed"]
    receipt = place.journal("job").the(TurnFailed).receipt
    assert receipt.error.code == "timeout_idle"
    until(lambda: not place.leftovers, "all is gone")


@pytest.mark.parametrize("role", ["shim", "guard"])
def test_the_doctor_names_what_is_stopped_and_the_command_that_mends_it(place: Place, role: str) -> None:
    run = at_work(place)
    pid = stop_shim(place.state / "outlast.d") if role == "shim" else stop_guard(place.state / "outlast.d")
    told = place.call("doctor", "--json")
    assert told.status == 1, told
    found = [f for f in json.loads(told.stdout)["findings"] if f"{role} (pid {pid})" in f["message"]]
    assert [(f["level"], f["remedy"]) for f in found] == [("fault", f"kill -CONT {pid}")]
    os.kill(pid, signal.SIGCONT)
    place.go()
    assert run.wait().outcomes == ["done"]


def test_the_doctor_says_that_an_agent_folder_is_a_copy(place: Place) -> None:
    run = at_work(place)
    original, place.state = place.state, place.root / "copy"
    subprocess.run(["cp", "-a", str(original), str(place.state)], check=True)
    told = place.call("doctor", "--json")
    assert [f for f in json.loads(told.stdout)["findings"] if "is a copy" in f["message"]], told
    place.state = original
    place.go()
    assert run.wait().outcomes == ["done"]
