"""A gate that was answered, and an agent that ends without having heard it: the session goes on."""

from __future__ import annotations

import os
import signal

import pytest
from tests.support.place import Place
from tests.support.processes import until

from outlast.records.types import GateResolved, TurnFailed, TurnInterrupted, TurnParked
from outlast.runtime.client import Client
from outlast.runtime.handles import Answer

pytestmark = pytest.mark.slow

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"


def answer(place: Place) -> Answer:
    async def give(client: Client) -> Answer:
        session = client.session("job")
        (gate,) = await session.gates()
        return await session.answer(gate.id, "allow_once", by="ann")

    return place.ask(give)


def test_a_gate_is_answered_and_owner_and_agent_die_before_the_answer_is_written(place: Place) -> None:
    prompt = "[[touch:up]][[gate:g:ok?:allow_once,reject_once]]"
    runtime = place.start(
        "run",
        *("-a", "asking", "--session", "job", "--key", "one", "--approve", "all", prompt),
        faults="turn.input.before@2=kill",
    )
    place.until_there("up")
    runtime.wait()
    (agent,) = (pid for pid, line in place.leftovers.items() if "scripted.py" in line)
    os.kill(agent, signal.SIGKILL)
    until(lambda: not place.leftovers, "its shim has seen its end, and ended")
    place.send("job", QUICK, key="two", agent="asking")

    assert place.call("resume", "job", "--json").outcomes == ["interrupted", "done"]
    (resolved,) = place.journal("job").bodies(GateResolved)
    assert (resolved.reason, resolved.answer) == ("policy", "allow_once")
    assert place.call("resume", "job", "--json").status == 0


def test_a_gate_is_answered_while_its_agent_is_being_ended(place: Place) -> None:
    prompt = "[[ignore-term]][[gate:g:ok?:allow_once,reject_once]][[touch:closed]][[hang]]"
    place.send("job", prompt, key="one", agent="asking")
    runtime = place.start("resume", "job", "--json")
    place.until_recorded("job", "GateOpened")
    cancel = place.start("cancel", "job")
    place.until_there("closed")
    assert answer(place).result == "answered"

    assert cancel.wait().status == 0
    runtime.wait()
    place.send("job", QUICK, key="two", agent="asking")
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    journal = place.journal("job")
    assert [body.reason for body in journal.bodies(TurnInterrupted)] == ["cancelled"]
    assert [body.reason for body in journal.bodies(GateResolved)] == ["answered"]


def test_a_question_about_an_earlier_turn_that_nobody_answers_switches_no_deadline_off(place: Place) -> None:
    place.send("job", "[[touch:up]][[wait:never]]", key="one", agent="strict")
    runtime = place.start("resume", "job", "--json", faults="turn.input.after=kill")
    place.until_there("up")
    runtime.wait()
    (agent,) = (pid for pid, line in place.leftovers.items() if "scripted.py" in line)
    os.kill(agent, signal.SIGKILL)
    until(lambda: not place.leftovers, "its shim has seen its end, and ended")
    place.call("resume", "job", "--json")
    assert place.journal("job").the(TurnParked, "one").detail == "asked"

    place.send("job", "[[wait:never]]", key="two", agent="strict")
    assert place.call("resume", "job", "--json").outcomes == ["failed"]
    assert place.journal("job").the(TurnFailed, "two").receipt.error.code == "timeout_idle"
    ask = place.ask(lambda client: client.session("job").gates())
    assert [gate.question[:7] for gate in ask] == ["A crash"]
