"""An owner that sleeps at the worst moment and another that takes over: one agent, never two."""

from __future__ import annotations

import signal

import pytest
from tests.support.place import Place
from tests.support.processes import Child, until

from outlast.records.types import Fence, InputReturned, TurnAttemptStarted, TurnStarted

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"


def asleep_before_start(place: Place) -> Child:
    """An owner that has its idle shim and its recorded attempt, and is stopped right before START."""
    place.send("job", QUICK, key="one")
    place.send("job", QUICK, key="two")
    sleeper = place.start("resume", "job", "--json", faults="turn.start.before=stop")
    sleeper.wait_stopped()
    return sleeper


def assert_ran_once(place: Place) -> None:
    journal = place.journal("job")
    assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
    assert "never started" in journal.the(InputReturned).evidence
    assert [fence.epoch for fence in journal.bodies(Fence)] == [1, 2]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_double_agent(place: Place) -> None:
    """The stopped owner is killed, verified, by the one that takes over; its idle shim starts nothing."""
    sleeper = asleep_before_start(place)
    owner = place.call("resume", "job", "--take-over", "--json")

    assert owner.outcomes == ["done", "done"]
    assert sleeper.wait().status == -signal.SIGKILL
    assert_ran_once(place)


def test_zombie_writer(place: Place) -> None:
    """The kill is left out, as if it had not worked: the owner that wakes after its successor has finished
    starts no agent and writes nothing."""
    sleeper = asleep_before_start(place)
    owner = place.call("resume", "job", "--take-over", "--json", faults="takeover.kill=skip")
    assert owner.outcomes == ["done", "done"]
    tip = place.journal("job").state.seq

    sleeper.go_on()
    woken = sleeper.wait()
    assert woken.status == 4, woken
    assert woken.errors[-1]["error"] == "lease_lost", woken
    assert place.journal("job").state.seq == tip
    assert_ran_once(place)


@pytest.mark.slow
def test_zombie_writer_beside_a_living_successor(place: Place) -> None:
    """It wakes while its successor's agent is at work: its START is refused, the other goes on."""
    place.send("job", MID_TURN, key="one")
    sleeper = place.start("resume", "job", "--json", faults="turn.start.before=stop")
    sleeper.wait_stopped()
    owner = place.start("resume", "job", "--take-over", "--json", faults="takeover.kill=skip")
    place.until_there("started")
    sleeper.go_on()
    assert sleeper.wait().status == 4
    assert owner.running

    place.go()
    assert owner.wait().outcomes == ["done"]
    journal = place.journal("job")
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 2
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one")


@pytest.mark.slow
def test_sleeper_alone_wakes_after_its_shim_has_left(place: Place) -> None:
    """Nobody took over, but the machine slept for longer than an idle shim waits for its START: the owner
    that wakes starts another one, and the input runs once."""
    place.send("job", QUICK, key="one")
    sleeper = place.start("resume", "job", "--json", faults="turn.start.before=stop")
    sleeper.wait_stopped()
    until(lambda: list(place.leftovers) == [sleeper.pid], "the idle shim has ended by itself")
    sleeper.go_on()

    assert sleeper.wait().outcomes == ["done"]
    journal = place.journal("job")
    assert len(journal.bodies(TurnStarted, "one")) == 1
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one")


@pytest.mark.slow
def test_owner_in_mid_turn_is_taken_over(place: Place) -> None:
    """A living, hanging owner is ended; its agent, which lives on, is attached to by the next one."""
    hanging = place.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    hanging.signal(signal.SIGSTOP)
    hanging.wait_stopped()
    refused = place.call("resume", "job", "--json")
    assert refused.status == 4
    assert f"pid {hanging.pid}" in refused.errors[-1]["message"]

    owner = place.start("resume", "job", "--take-over", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()
    assert owner.wait().outcomes == ["done"]
    assert hanging.wait().status == -signal.SIGKILL
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one")


def test_zombie_writer_in_mid_turn(place: Place) -> None:
    """The kill is left out and the first owner wakes in mid turn, with its successor attached: it writes no
    record more and leaves the agent alone."""
    first = place.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    first.signal(signal.SIGSTOP)
    first.wait_stopped()
    owner = place.start("resume", "job", "--take-over", "--json", faults="takeover.kill=skip")
    place.until_recorded("job", "TurnAttached")
    first.go_on()
    place.go()

    assert owner.wait().outcomes == ["done"]
    woken = first.wait()
    journal = place.journal("job")
    fences = [record.seq for record in journal.of("Fence")]
    assert all(record.epoch == 2 for record in journal.records if record.seq >= fences[1])
    assert woken.status in (0, 4), woken
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one")
