"""The main job on real processes: what dies dies by kill -9, what lives goes on, nothing happens twice."""

from __future__ import annotations

import os
import signal

import pytest
from tests.support.place import Place
from tests.support.processes import Child, until

from outlast.records.types import (
    InputAccepted,
    InputReturned,
    RestoreDone,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnStarted,
)

MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"
"""One effect, then in mid turn until the test lets it go."""
QUICK = "[[effect:{turn}]][[say:finished {turn}]]"


def in_mid_turn(place: Place, *, agent: str = "plain") -> Child:
    """A runtime whose turn `one` is at work, and two more inputs in the queue."""
    runtime = place.start("run", "-a", agent, "--session", "job", "--key", "one", MID_TURN)
    place.until_there("started")
    place.send("job", QUICK, key="two", agent=agent)
    place.send("job", QUICK, key="three", agent=agent)
    return runtime


def agent_pid(place: Place) -> int:
    """The agent's own process, not its shim's."""
    return next(pid for pid, line in place.leftovers.items() if "scripted.py" in line and pid != 0)


def kill_agent(place: Place) -> None:
    """kill -9 of the agent's process; its shim and runtime live on."""
    os.kill(agent_pid(place), signal.SIGKILL)


def kill_tree(place: Place) -> None:
    """kill -9 of agent, shim and guard at once: nobody is left to record how they ended."""
    place.kill_leftovers()


def test_queue_lost(place: Place) -> None:
    """The runtime dies in mid turn: the next one attaches to the living agent, finishes the same turn and
    drains the queue."""
    in_mid_turn(place).kill()
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()
    resumed = owner.wait()

    assert resumed.status == 0
    assert resumed.outcomes == ["done", "done", "done"]
    journal = place.journal("job")
    assert journal.the(TurnAttached, "one").attempt == 1
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    assert len(journal.bodies(TurnStarted, "one")) == 1
    assert not journal.bodies(TurnInterrupted)
    assert journal.the(RestoreDone).actions == ["attach one"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")
    assert [t["outcome"] for t in place.show("job")["turns"]] == ["done"] * 3


def test_agent_dies_under_a_living_runtime(place: Place) -> None:
    """The turn's failure is a typed receipt, and the queue goes on."""
    runtime = in_mid_turn(place)
    kill_agent(place)
    ended = runtime.wait()

    assert ended.status == 1
    journal = place.journal("job")
    receipt = journal.the(TurnFailed, "one").receipt
    assert receipt.failed_phase == "host_execute"
    assert receipt.completed_phases == ["accept", "host_launch"]
    assert (receipt.error.code, receipt.error.signal) == ("crashed", 9)
    assert receipt.host_recovery is not None
    assert receipt.host_recovery.kind == "resume_session"
    assert receipt.host_recovery.schema_version == "outlast_turn_host_recovery_v1"
    assert [journal.the(TurnDone, turn).stop_reason for turn in ("two", "three")] == ["end_turn"] * 2
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")


def test_both_die(place: Place) -> None:
    """Agent and runtime die: the turn is interrupted with its evidence, not executed again, and the queue
    goes on."""
    in_mid_turn(place).kill()
    kill_agent(place)
    resumed = place.call("resume", "job", "--json")

    assert resumed.status == 1
    assert resumed.outcomes == ["interrupted", "done", "done"]
    journal = place.journal("job")
    interrupted = journal.the(TurnInterrupted, "one")
    assert interrupted.reason == "crash"
    assert "signal 9" in interrupted.evidence
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")


@pytest.mark.slow
def test_all_die_at_once_with_shim_and_guard(place: Place) -> None:
    """Nobody is left to say how the agent ended: the turn is still closed, and not executed again."""
    in_mid_turn(place).kill()
    kill_tree(place)
    resumed = place.call("resume", "job", "--json")

    assert resumed.outcomes == ["interrupted", "done", "done"]
    assert "the input was written" in place.journal("job").the(TurnInterrupted, "one").evidence
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")


@pytest.mark.slow
def test_agent_that_ends_unowned_is_settled(place: Place) -> None:
    """The agent finishes while no runtime lives: its own end, read from the spool, is the turn's."""
    in_mid_turn(place).kill()
    place.go()
    until(lambda: not place.leftovers, "the agent has finished by itself")
    resumed = place.call("resume", "job", "--json")

    assert resumed.status == 0
    assert resumed.outcomes == ["done", "done", "done"]
    journal = place.journal("job")
    assert not journal.bodies(TurnAttached)
    assert "finished one" in [line["text"] for line in resumed.lines if "outcome" in line]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")


@pytest.mark.parametrize(
    "moment", ["actor.finish.before", pytest.param("actor.finish.after", marks=pytest.mark.slow)]
)
def test_queue_lost_at_the_last_moment(place: Place, moment: str) -> None:
    """An input that is sent while its owner is leaving is run by it all the same: the sender saw an owner, so
    that nobody else would come for it; and what has begun is not ended by the leaving."""
    place.send("job", QUICK, key="one")
    owner = place.start("resume", "job", "--json", faults=f"{moment}=stop")
    owner.wait_stopped()
    place.send("job", QUICK, key="two")
    owner.go_on()

    assert owner.wait().outcomes == ["done", "done"]
    journal = place.journal("job")
    assert not journal.bodies(TurnInterrupted)
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_claim_gap(place: Place) -> None:
    """Killed between the recorded attempt and the agent's start: the input is back in its place, before the
    others, and runs once."""
    place.send("job", QUICK, key="one")
    place.send("job", QUICK, key="two")
    killed = place.call("resume", "job", faults="turn.start.before=kill")
    assert killed.status == -signal.SIGKILL
    assert place.effects == []

    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["done", "done"]
    journal = place.journal("job")
    assert "never started" in journal.the(InputReturned).evidence
    assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
    assert {started.index for started in journal.bodies(TurnStarted, "one")} == {1}
    assert [started.attempt for started in journal.bodies(TurnAttemptStarted, "one")] == [1, 1]
    assert len(journal.bodies(InputAccepted)) == 2
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")
