"""What is only slow, silent, busy or wrong about the time of day is left alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import pairwise

import pytest
from tests.support.place import Place
from tests.support.processes import Child

from outlast.agents import Codex, Command
from outlast.records.types import (
    GateOpened,
    InputReserved,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
)
from outlast.testing.agents import SCRIPTED, command

pytestmark = pytest.mark.slow

MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"
QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
LONG = "[[shell:sleep 1.3; touch {0}]][[wait:{0}]]"
CALL = "[[tool:c:build:started]]{}[[tool:c:build:completed]][[effect:{{turn}}]][[say:built]]"
"""A silent call; LONG takes longer than the `idle_timeout` of the agent `impatient`."""


def add_agent(place: Place, name: str, argv: tuple[str, ...], said: Mapping[str, str]) -> None:
    """One more agent in the user's configuration."""
    lines = [f"[agents.{name}]", 'kind = "command"', f"command = {json.dumps(argv)}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in said.items()]
    with place.config.open("a", encoding="utf-8") as config:
        config.write("\n".join(lines) + "\n")


def scripted(place: Place) -> tuple[str, ...]:
    return command(SCRIPTED, "--effects", str(place.effects_file))


def test_healthy_killed(place: Place) -> None:
    """A call that is silent for longer than `idle_timeout` is work, not silence; and unless somebody sets
    one there is no limit to a whole turn."""
    place.send("job", CALL.format(LONG.format("built")), key="one", agent="impatient")
    resumed = place.call("resume", "job", "--json")

    assert resumed.outcomes == ["done"], resumed
    place.assert_effects_once("one")
    assert (Command(["agent"]).total_timeout, Codex().total_timeout) == (None, None)


def test_adopted_killed(place: Place) -> None:
    """The next owner finds an agent that has been silent for longer than `idle_timeout` in an open call, and
    waits for it as the first one would have."""
    silent = LONG.format("half-built") + "[[wait:go]]" + LONG.format("built")
    place.send("job", CALL.format(silent), key="one", agent="impatient")
    first = place.start("resume", "job")
    place.until_recorded("job", "CallObserved")
    first.kill()
    place.until_there("half-built")
    second = place.start("resume", "job", "--json")
    place.until_recorded("job", "RestoreDone")
    place.go()

    assert second.wait().outcomes == ["done"], second.told()
    journal = place.journal("job")
    assert journal.the(TurnAttached).attempt == 1
    assert len(journal.bodies(TurnAttemptStarted)) == 1
    place.assert_effects_once("one")


PATIENT_OWNER = """
import asyncio, sys
import outlast
from outlast.agents import Command
async def main():
    agent = Command(sys.argv[1].split("\\n"), stdin="open", idle_timeout=1.0)
    async with outlast.Runtime(agents={"polite": agent}) as runtime:
        session = runtime.session("job")
        turn = await session.send(sys.argv[2], key="one")
        await turn.result()
        await session.finish()
asyncio.run(main())
"""
"""An embedding program that leaves every gate to people and waits as long as they take."""


def test_blocked_as_timeout(place: Place) -> None:
    """A person takes longer to answer than the agent may be silent: nobody calls that a time-out, and the
    answer reaches the agent."""
    prompt = "[[shell:sleep 2; touch late]][[gate:g:trust it?:allow_once,reject_once]][[effect:trusted]]"
    argv = "\n".join(scripted(place))
    owner = place.start_program(sys.executable, "-c", PATIENT_OWNER, argv, prompt, env=place.environ())
    gate = place.until_recorded("job", "GateOpened").the(GateOpened).gate
    place.until_there("late")
    assert place.call("answer", "job", gate, "allow_once").status == 0

    assert owner.wait().status == 0, owner.told()
    assert len(place.journal("job").bodies(TurnDone)) == 1
    place.assert_effects_once("trusted")


def test_started_is_ready(place: Place) -> None:
    """The agent's process is there and does not read yet. Its prompt waits for it, over the death of the
    owner that gave it, and is read once."""
    slow = 'touch begun; while [ ! -e ready ]; do sleep 0.02; done; exec "$@"'
    add_agent(place, "slow", ("/bin/sh", "-c", slow, "sh", *scripted(place)), {})
    place.send("job", QUICK, key="one", agent="slow")
    owner = place.start("resume", "job")
    place.until_there("begun")
    place.until_recorded("job", "InputReserved")
    owner.kill()
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "RestoreDone")
    place.go("ready")

    assert owner.wait().outcomes == ["done"], owner.told()
    assert len(place.journal("job").bodies(InputReserved)) == 1
    place.assert_effects_once("one")


def test_lock_long(place: Place) -> None:
    """While a turn runs its session is looked at, planned, followed and sent to from other processes."""
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", MID_TURN)
    place.until_there("started")
    assert [turn["outcome"] for turn in place.show("job")["turns"]] == ["running"]
    for looking in (("tail", "job"), ("plan", "job"), ("send", "job", "--key", "two", QUICK)):
        looked = place.call(*looking)
        assert looked.status == 0, looked
    assert owner.running
    place.go()

    assert owner.wait().status == 0, owner.told()
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


OTHER_TIME = """
import sys, time
off, nanoseconds, seconds = int(sys.argv[1]), time.time_ns, time.time
time.time_ns = lambda: nanoseconds() + off * 10**9
time.time = lambda: seconds() + off
from outlast.cli import main
sys.argv = ["outlast", *sys.argv[2:]]
sys.exit(main())
"""
"""`outlast ARGUMENTS` on a machine whose clock is wrong by so many seconds."""


def at_another_time(place: Place, off: int, *arguments: str) -> Child:
    return place.start_program(sys.executable, "-c", OTHER_TIME, str(off), *arguments, env=place.environ())


@pytest.mark.parametrize("first", [3600, pytest.param(-3600, marks=pytest.mark.slow)])
def test_clock_jump(place: Place, first: int) -> None:
    """The clock steps by two hours between owners and beside a living one: no ownership expires by it, none
    is kept by it, and the order of things is theirs."""
    place.send("job", MID_TURN, key="one")
    owner = at_another_time(place, first, "resume", "job")
    place.until_there("started")
    refused = at_another_time(place, -first, "resume", "job", "--json").wait()
    assert (refused.status, refused.errors[-1]["error"]) == (4, "lease_held"), refused
    sent = at_another_time(place, -first, "send", "job", "--key", "two", QUICK).wait()
    assert sent.status == 0, sent
    owner.kill()
    second = at_another_time(place, -first, "resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()

    assert second.wait().outcomes == ["done", "done"], second.told()
    journal = place.journal("job")
    assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
    times = [record.at for record in journal.records]
    jump = max(abs(later - earlier) for earlier, later in pairwise(times))
    assert jump > 3600 * 1_000_000
    assert len(journal.bodies(TurnDone)) == 2
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")
