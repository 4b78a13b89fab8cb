"""Clocks that are wrong, that step, or that another time namespace has shifted: nothing is ended by them."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from tests.support.place import Place
from tests.support.processes import Child, until

from outlast.records.types import TurnAttached, TurnAttemptStarted

pytestmark = pytest.mark.slow

MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"
SAYS = "[[effect:{turn}]][[say:finished {turn}]]"
ASKS = "[[effect:{turn}]][[gate:g:go on?:yes,no]][[say:finished {turn}]]"

SHIFTED = ("unshare", "--time", "--boottime", "{off}", "--monotonic", "{off}")

STEPPING = """
import sys, threading, time
nanoseconds, seconds, steps = time.time_ns, time.time, [0]
time.time_ns = lambda: nanoseconds() + steps[0] * 10**9
time.time = lambda: seconds() + steps[0]
off, flag = int(sys.argv[1]), sys.argv[2]
def step():
    import os
    while not os.path.exists(flag):
        time.sleep(0.01)
    steps[0] = off
threading.Thread(target=step, daemon=True).start()
from outlast.cli import main
sys.argv = ["outlast", *sys.argv[3:]]
sys.exit(main())
"""
"""`outlast ARGUMENTS` on a machine whose wall clock steps by so many seconds once a file is there."""


def in_other_time(place: Place, off: int, *arguments: str) -> Child:
    """`outlast ARGUMENTS` where the machine has been up for so many seconds more."""
    argv = [word.format(off=off) for word in SHIFTED]
    return place.start_program(*argv, sys.executable, "-m", "outlast", *arguments, env=place.environ())


@pytest.fixture(scope="module")
def _namespaces() -> None:
    argv = [word.format(off=3600) for word in SHIFTED]
    if (
        not shutil.which("unshare")
        or subprocess.run([*argv, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this user may not make a time namespace; CI runs this in its run as root (.ci/run)")


@pytest.mark.usefixtures("_namespaces")
@pytest.mark.parametrize("off", [3600, -60])
def test_an_owner_in_another_time_namespace_attaches_to_a_healthy_agent(place: Place, off: int) -> None:
    """What counts since boot, and when a process started, is read there as it is everywhere: the agent, which
    may be idle for a minute, is neither taken for dead nor for idle."""
    owner = place.start("run", "-a", "patient", "--session", "job", "--key", "one", MID_TURN)
    place.until_there("started")
    owner.kill()
    later = in_other_time(place, off, "resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    refused = place.call("resume", "job", "--json")
    assert (refused.status, refused.errors[-1]["error"]) == (4, "lease_held"), refused
    place.go()
    assert later.wait().outcomes == ["done"], later.told()
    journal = place.journal("job")
    assert len(journal.bodies(TurnAttached)) == len(journal.bodies(TurnAttemptStarted)) == 1
    place.assert_effects_once("one")


@pytest.mark.usefixtures("_namespaces")
def test_a_shim_in_another_time_namespace_is_known_to_the_rest_of_the_machine(place: Place) -> None:
    owner = in_other_time(place, 3600, "run", "-a", "patient", "--session", "job", "--key", "one", MID_TURN)
    place.until_there("started")
    place.until_recorded("job", "InputReserved")
    assert place.call("doctor").status == 0
    for pid in [pid for pid, line in place.leftovers.items() if "outlast run" in line and pid != owner.pid]:
        subprocess.run(["kill", "-KILL", str(pid)], check=True)
    owner.kill()
    later = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()
    assert later.wait().outcomes == ["done"], later.told()
    place.assert_effects_once("one")


@pytest.mark.parametrize("off", [3600, pytest.param(-3600, marks=pytest.mark.slow)])
def test_a_wall_clock_that_steps_in_mid_turn_ends_nothing(place: Place, off: int) -> None:
    """Neither the agent's idle time nor a question that is open, and what comes after it is in order."""
    argv = (sys.executable, "-c", STEPPING, str(off), str(place.file("step")))
    run = ("run", "-a", "patient", "--session", "job", "--key", "one", "--json", MID_TURN)
    owner = place.start_program(*argv, *run, env=place.environ())
    place.until_there("started")
    place.go("step")
    place.send("job", ASKS, key="two", agent="patient")
    until(lambda: len(place.journal("job").of("InputAccepted")) == 2, "the second input is accepted")
    place.go()
    assert owner.wait().status in (0, 6), owner.told()
    resumed = place.call("resume", "job", "--json")
    gates = place.journal("job").state.gates
    assert (resumed.status, len(gates)) == (6, 1), resumed
    assert place.call("answer", "job", *gates, "yes").status == 0
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    journal = place.journal("job")
    assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
    times = [record.at for record in journal.records]
    assert max(times) - min(times) > 3500 * 1_000_000
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")
