"""What an agent was begun with, and what it was given: the same for every owner that comes after."""

from __future__ import annotations

import json
import os
import shlex
import signal

import pytest
from tests.support.place import Place
from tests.support.processes import until

from outlast.records.types import InputReserved, TurnAttached, TurnAttemptStarted, TurnDone

SHY = """
echo '{"type":"session","id":"prov-1"}'
read -r line
printf '%s\\n' "$line" >> EFFECTS
echo '{"type":"message","text":"hello"}'
echo '{"type":"done"}'
"""
MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"


def kill_all(place: Place) -> None:
    place.kill_leftovers()


def spooled(place: Place, said: bytes) -> bool:
    files = [path for path in place.state.glob("outlast.d/agents/*/gen-*/**/*") if path.is_file()]
    return any(said in path.read_bytes() for path in files)


def test_an_agent_that_names_its_session_before_its_prompt_is_told_nothing_new(place: Place) -> None:
    """The session is in the journal when the owner dies, and the prompt is not written: the next owner writes
    the very line that was named, and does not ask the agent to resume what it has just begun."""
    script = SHY.replace("EFFECTS", shlex.quote(str(place.effects_file)))
    with place.config.open("a", encoding="utf-8") as config:
        config.write(f'[agents.shy]\nkind = "command"\ncommand = ["sh", "-c", {json.dumps(script)}]\n')
    place.send("job", "hi", agent="shy", key="one")
    killed = place.start("resume", "job", faults="turn.start.after=stop,turn.input.before=kill")
    until(lambda: spooled(place, b"prov-1"), "the agent has named its session")
    os.kill(killed.pid, signal.SIGCONT)
    assert killed.wait().status == -signal.SIGKILL
    place.until_recorded("job", "AgentSessionChanged")
    assert place.call("resume", "job", "--json").status == 0
    journal = place.journal("job")
    assert len(journal.bodies(TurnAttached)) == len(journal.bodies(TurnDone)) == 1
    assert len(journal.bodies(InputReserved)) == 1
    assert [json.loads(line)["resume"] for line in place.effects] == [None]
    verified = place.call("verify", "job")
    assert verified.status == 0, verified


@pytest.mark.slow
def test_lives_that_end_at_their_launch_are_no_attempts_of_the_turn(place: Place) -> None:
    """Two of them, and the third is killed in mid turn: it was the first that was given the input."""
    place.send("job", MID_TURN, agent="retrying", key="one")
    passages = place.root / "passages"
    passages.mkdir()
    faults = f"passages={passages},keep.start.before@1=kill,keep.start.after@1=kill"
    place.start("resume", "job", faults=faults)
    place.until_there("started")
    assert len(place.journal("job").bodies(TurnAttemptStarted, "one")) == 3
    kill_all(place)
    plan = place.call("plan", "job", "--json")
    assert plan.status == 0, plan
    (turn,) = json.loads(plan.stdout)["turns"]
    assert (turn["action"], turn["then"]) == ("interrupt", "retry")
