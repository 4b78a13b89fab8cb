"""A state folder that is copied or moved while its agents run: whose the agents are then, and what an owner
does whose agent somebody else has."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import apsw
import pytest
from tests.support.place import Place
from tests.support.processes import Child

from outlast.keep import AgentFolder, Claim, ShimClient, probe
from outlast.records.types import TurnAttemptStarted, TurnInterrupted, TurnParked

pytestmark = pytest.mark.slow

MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"
QUICK = "[[effect:{turn}]][[say:finished {turn}]]"


def at_work(place: Place, agent: str = "plain") -> Child:
    """An owner whose agent is in the middle of turn `one`."""
    run = place.start("run", "-a", agent, "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    place.until_recorded("job", "InputReserved")
    return run


def copied(place: Place, *options: str) -> Path:
    """A copy of the whole state folder, by the tool that people use."""
    copy = place.root / "copy"
    subprocess.run(["cp", *options, str(place.state), str(copy)], check=True)
    return copy


def agent_folder(place: Place) -> AgentFolder:
    (path,) = place.state.glob("outlast.d/agents/*")
    return AgentFolder(path)


def test_the_owner_of_a_copy_leaves_the_originals_agent_alone(place: Place) -> None:
    original, run = place.state, at_work(place)
    place.state = copied(place, "-a")
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["interrupted"], resumed
    evidence = place.journal("job").the(TurnInterrupted).evidence
    assert "is a copy" in evidence
    assert str(original) in evidence
    assert run.running

    second = place.call("run", "--session", "job", "--key", "two", "--json", QUICK)
    assert second.outcomes == ["done"], second
    assert [a.generation for a in place.journal("job").bodies(TurnAttemptStarted)] == [
        "gen-000001",
        "gen-000002",
    ]
    place.journal("job").assert_every_input_ends_once()

    place.state = original
    place.go()
    assert run.wait().outcomes == ["done"]
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_a_copys_turn_is_not_sent_again_by_itself(place: Place) -> None:
    """Also where the agent's configuration wants turns that were cut off to be tried again: nobody knows what
    the original's agent does with it."""
    original, run = place.state, at_work(place, "retrying")
    place.state = copied(place, "-a")
    assert place.call("resume", "job", "--json").status == 1
    assert place.journal("job").the(TurnParked).reason == "held"

    place.state = original
    place.go()
    assert run.wait().outcomes == ["done"]
    place.assert_effects_once("one")


def test_a_copy_does_not_return_an_input_that_the_original_may_have_given_meanwhile(place: Place) -> None:
    """The copy is made before the input is written: that it is not in the copy's spool proves nothing."""
    place.send("job", MID_TURN, key="one")
    run = place.start("resume", "job", "--json", faults="turn.input.before=stop")
    run.wait_stopped()
    original = place.state
    place.state = copied(place, "-a")
    run.go_on()
    place.until_there("started")
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["interrupted"], resumed

    place.state = original
    place.go()
    assert run.wait().outcomes == ["done"]
    place.assert_effects_once("one")


def test_a_copy_of_the_database_alone_knows_that_its_agent_is_elsewhere(place: Place) -> None:
    original = place.state
    at_work(place).kill()
    place.state = place.root / "copy"
    place.state.mkdir(mode=0o700)
    for file in original.glob("outlast.db*"):
        subprocess.run(["cp", "-a", str(file), str(place.state)], check=True)
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["interrupted"], resumed
    evidence = place.journal("job").the(TurnInterrupted).evidence
    assert str(original) in evidence
    assert "lives" in evidence

    place.state = original
    place.go()
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.assert_effects_once("one")


@pytest.mark.parametrize("with_folders", [True, False])
def test_a_repair_in_a_copy_leaves_the_originals_agent_alone(place: Place, *, with_folders: bool) -> None:
    original, run = place.state, at_work(place)
    place.state = copied(place, "-a")
    if not with_folders:
        shutil.rmtree(place.state / "outlast.d" / "agents")
    connection = apsw.Connection(str(place.state / "outlast.db"))
    connection.execute("UPDATE record SET at = at + 1 WHERE seq = (SELECT max(seq) FROM record)")
    connection.close()
    repaired = place.call("repair", "job")
    assert repaired.status == 0, repaired
    assert place.call("verify", "job").status == 0

    place.state = original
    assert run.running
    place.go()
    assert run.wait().outcomes == ["done"]
    place.assert_effects_once("one")


def test_a_moved_state_folder_has_its_agents_with_it(place: Place) -> None:
    run = at_work(place)
    run.kill()
    place.state = place.state.rename(place.root / "elsewhere")
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()
    assert owner.wait().outcomes == ["done"]
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one")


def test_a_copy_made_after_the_agent_had_ended_goes_on_as_the_original_would(place: Place) -> None:
    """As when a state folder is moved to another filesystem."""
    at_work(place)
    for pid in place.leftovers:
        os.kill(pid, signal.SIGSTOP)  # None of them is to see another one's end.
    place.kill_leftovers()
    place.state = copied(place, "-a")
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["interrupted"], resumed
    assert place.call("run", "--session", "job", "--key", "two", "--json", QUICK).outcomes == ["done"]
    place.assert_effects_once("one", "two")


async def taken(folder: AgentFolder) -> ShimClient:
    """Attach as an owner of a later epoch would."""
    facts = probe(folder)
    assert facts.floor is not None
    assert facts.latest is not None
    client = await ShimClient.connect(facts.latest.generation)
    floor = facts.floor
    await client.attach(Claim(floor.store_id, floor.lineage, floor.epoch + 5, "somebody else"))
    return client


@pytest.mark.parametrize("late", [False, True], ids=["now", "while it slept"])
def test_an_owner_whose_agent_somebody_else_has_stops_waiting_and_says_so(place: Place, late: bool) -> None:
    run = at_work(place)
    tip = place.journal("job").state.seq
    if late:
        run.signal(signal.SIGSTOP)
        run.wait_stopped()

    async def other_owner() -> None:
        client = await taken(agent_folder(place))
        if late:
            run.go_on()
        ended = await asyncio.to_thread(run.wait)
        assert ended.status == 4, ended
        assert ended.errors[-1]["error"] == "lease_lost", ended
        assert "another process has its agent" in ended.errors[-1]["message"]
        assert not client.lost.is_set()
        await client.kill(0.0)
        await client.close()

    asyncio.run(other_owner())
    assert place.journal("job").state.seq == tip
    place.assert_effects_once("one")
