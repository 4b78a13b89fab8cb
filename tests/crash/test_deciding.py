"""What people and configuration decide: cancel, kill, close, retry, skip, gates, `on_interrupt`, busy."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from tests.support.place import Place
from tests.support.processes import Child, until

from outlast.errors import BusyError
from outlast.records.types import (
    GateOpened,
    GateResolved,
    InputCancelled,
    LoopChanged,
    SessionStopped,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
    TurnStarted,
)
from outlast.runtime.client import Client
from outlast.runtime.handles import Answer, Settled

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"
FIRST_HANGS = "[[effect:{turn} {attempt}]][[touch:started]][[prompt:got-{attempt}]][[1?hang]][[say:finished]]"


def in_mid_turn(place: Place, prompt: str = MID_TURN, agent: str = "plain") -> Child:
    """A runtime whose turn `one` is at work, and `two` in the queue."""
    place.send("job", prompt, key="one", agent=agent)
    place.send("job", QUICK, key="two", agent=agent)
    runtime = place.start("resume", "job", "--json")
    place.until_there("started")
    return runtime


def kill_all(place: Place) -> None:
    """kill -9 of the runtime, the agent, its shim and its guard."""
    for child in place.children:
        if child.running:
            child.kill()
    place.kill_leftovers()


def command(place: Place, name: str, turn: str | None = None) -> Settled:
    """A command from another process than the owner's."""

    async def give(client: Client) -> Settled:
        session = client.session("job")
        if name == "close":
            return await session.close(actor="test")
        methods = {
            "cancel": session.cancel,
            "kill": session.kill,
            "retry": session.retry,
            "skip": session.skip,
        }
        return await methods[name](turn, actor="test")

    return place.ask(give)


def answer(place: Place, gate: str, choice: str) -> Answer:
    return place.ask(lambda client: client.session("job").answer(gate, choice, by="alice"))


# --- cancel, kill, close ---------------------------------------------------------------------------


def test_cancel_then_run(place: Place) -> None:
    """A person's cancel holds the queue: nothing starts by itself. The next input sets it going again."""
    owner = in_mid_turn(place)
    assert command(place, "cancel").result == "done"
    cancelled = owner.wait()
    assert (cancelled.status, cancelled.outcomes) == (130, ["cancelled"])
    assert place.effects == ["one"]
    assert json.loads(place.call("ls", "--json").stdout)[0]["status"] == "parked"

    place.send("job", QUICK, key="three")
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["done", "done"], resumed
    journal = place.journal("job")
    assert journal.the(TurnInterrupted).reason == "cancelled"
    assert [change.state for change in journal.bodies(LoopChanged)] == ["held", "active"]
    assert [record.turn for record in journal.of("TurnDone")] == ["two", "three"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")


@pytest.mark.slow
def test_cancelled_queue_goes_on_with_a_resume(place: Place) -> None:
    owner = in_mid_turn(place)
    command(place, "cancel")
    owner.wait()
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.journal("job").assert_every_input_ends_once()


def test_held_queue_goes_on_with_a_skip(place: Place) -> None:
    """Its owner lives: it holds the queue until it is told to leave what was cancelled as it is."""
    place.send("job", MID_TURN, key="one", agent="asking")
    place.send("job", QUICK, key="two", agent="asking")
    owner = patient_owner(place)
    place.until_there("started")
    assert command(place, "cancel").result == "done"
    assert command(place, "skip").result == "done"
    place.until_recorded("job", "TurnDone", turn="two")
    place.go("leave")
    assert owner.wait().status == 0, owner.told()
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_cancel_of_a_waiting_input(place: Place) -> None:
    owner = in_mid_turn(place)
    place.until_recorded("job", "InputAccepted")
    assert command(place, "cancel", "two").result == "done"
    place.go()
    assert owner.wait().outcomes == ["done"]
    journal = place.journal("job")
    assert journal.the(InputCancelled).request_id == "two"
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one")


@pytest.mark.slow
def test_cancel_survives_its_owner(place: Place) -> None:
    """The owner dies before it has done it: the next one does, and settles it once."""
    owner = in_mid_turn(place)
    owner.signal(signal.SIGSTOP)
    owner.wait_stopped()
    place.start("cancel", "job", "--json")
    until(lambda: place.ask(lambda client: client.store.pending("job")), "the cancel is admitted")
    owner.kill()
    resumed = place.start("resume", "job", "--json")
    journal = place.until_recorded("job", "TurnInterrupted")
    resumed.wait()
    assert journal.the(TurnInterrupted).reason == "cancelled"
    assert not place.ask(lambda client: client.store.pending("job"))
    place.call("resume", "job")
    place.journal("job").assert_every_input_ends_once()


def test_command_to_a_session_without_owner_begins_no_turn(place: Place) -> None:
    """Whoever cancels, kills or closes comes for that alone: the work that waits is left to its owner."""
    owner = in_mid_turn(place)
    owner.kill()
    place.go()
    until(lambda: not place.leftovers, "the agent has finished by itself")
    late = place.call("cancel", "job", "--json")
    told = {
        "session": "job",
        "result": "done",
        "detail": "no turn was running; the queue is held (1 waiting)",
    }
    assert (late.status, json.loads(late.stdout)) == (0, told), late
    journal = place.journal("job")
    assert journal.the(TurnDone).stop_reason == "end_turn"
    assert not journal.bodies(TurnStarted, "two")

    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_kill_ends_the_whole_tree(place: Place) -> None:
    owner = in_mid_turn(place, "[[ignore-term]][[daemon:daemon]][[wait:daemon]][[touch:started]][[hang]]")
    assert command(place, "kill").result == "done"
    assert owner.wait().outcomes == ["cancelled"]
    assert place.journal("job").the(TurnInterrupted).reason == "killed"
    assert "verified" in place.journal("job").the(TurnInterrupted).evidence
    place.assert_nothing_left()
    place.call("resume", "job")
    place.journal("job").assert_every_input_ends_once()


def test_close_and_the_input_that_opens_again(place: Place) -> None:
    owner = in_mid_turn(place)
    assert command(place, "close").result == "done"
    assert owner.wait().outcomes == ["interrupted"]
    journal = place.journal("job")
    assert journal.the(TurnInterrupted).reason == "closed"
    assert journal.the(SessionStopped).reason == "closed"
    assert not journal.bodies(TurnDone)
    place.assert_nothing_left()
    place.send("job", QUICK, key="three")
    assert place.call("resume", "job", "--json").outcomes == ["done", "done"]

    command(place, "close")
    assert place.call("close", "job").status == 0
    assert json.loads(place.call("ls", "--json").stdout)[0]["status"] == "stopped"
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")


def test_a_run_whose_session_is_closed_by_somebody_else_ends_with_its_turn(place: Place) -> None:
    run = place.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    assert place.call("close", "job").status == 0
    ended = run.wait()
    assert (ended.status, ended.outcomes) == (1, ["interrupted"]), ended
    assert not ended.errors


# --- retry and skip --------------------------------------------------------------------------------


def test_retry_of_a_failed_turn(place: Place) -> None:
    """The same turn, once more; its id and index stay."""
    place.send("job", "[[effect:{turn} {attempt}]][[1?exit:3]][[say:finished]]", key="one")
    assert place.call("resume", "job", "--json").outcomes == ["failed"]
    assert command(place, "retry").result == "queued"
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    journal = place.journal("job")
    assert journal.the(TurnRetried).by == "test"
    assert (len(journal.bodies(TurnFailed)), len(journal.bodies(TurnDone))) == (1, 1)
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one 1", "one 2")


def test_poison_turn(place: Place) -> None:
    """A turn that takes its agent and its owner along each time is stopped after three attempts without
    progress; the queue goes on, and a person may still retry it."""
    hangs = "".join(f"[[{attempt}?hang]]" for attempt in (1, 2, 3))
    prompt = "[[effect:{turn} {attempt}]][[touch:started-{attempt}]]" + hangs + "[[say:finished]]"
    place.send("job", prompt, key="one", agent="retrying")
    place.send("job", QUICK, key="two", agent="retrying")
    for attempt in (1, 2, 3):
        place.start("resume", "job", "--json")
        place.until_there(f"started-{attempt}")
        kill_all(place)
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes[-1] == "done", resumed
    journal = place.journal("job")
    assert journal.the(TurnParked, "one").reason == "quarantined"
    assert len(journal.bodies(TurnDone, "two")) == 1

    command(place, "retry", "one")
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one 1", "one 2", "one 3", "one 4", "two")


# --- on_interrupt ----------------------------------------------------------------------------------


def cut_off(place: Place, agent: str) -> None:
    """Turn `one` is at work when everything dies."""
    in_mid_turn(place, FIRST_HANGS, agent)
    kill_all(place)


@pytest.mark.slow
def test_on_interrupt_skip(place: Place) -> None:
    cut_off(place, "plain")
    assert place.call("resume", "job", "--json").outcomes == ["interrupted", "done"]
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one 1", "two")


@pytest.mark.parametrize(
    ("agent", "mode"), [("retrying", "again"), pytest.param("continuing", "continue", marks=pytest.mark.slow)]
)
def test_on_interrupt_retry_and_continue(place: Place, agent: str, mode: str) -> None:
    cut_off(place, agent)
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes[-2:] == ["done", "done"], resumed
    journal = place.journal("job")
    assert len(journal.bodies(TurnInterrupted, "one")) == 1
    retried = journal.the(TurnRetried, "one")
    assert (retried.by, retried.mode) == ("on_interrupt", mode)
    first, second = (json.loads(place.file(f"got-{attempt}").read_text()) for attempt in (1, 2))
    assert first["idempotency_key"] == second["idempotency_key"] == "job/one"
    assert second.get("continue", False) is (mode == "continue")
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one 1", "one 2", "two")


@pytest.mark.slow
def test_on_interrupt_of_the_input_wins(place: Place) -> None:
    place.send("job", FIRST_HANGS, key="one", agent="plain", on_interrupt="retry")
    place.start("resume", "job")
    place.until_there("started")
    kill_all(place)
    assert place.call("resume", "job", "--json").outcomes[-1] == "done"
    place.assert_effects_once("one 1", "one 2")


@pytest.mark.slow
def test_on_interrupt_hold(place: Place) -> None:
    """Parked; the queue goes on; `skip` gives it up."""
    cut_off(place, "holding")
    assert place.call("resume", "job", "--json").outcomes[-1] == "done"
    journal = place.journal("job")
    assert journal.the(TurnParked, "one").reason == "held"
    assert [turn["outcome"] for turn in place.show("job")["turns"]] == ["parked", "done"]
    command(place, "skip", "one")
    place.call("resume", "job")
    assert not place.journal("job").state.parked
    place.assert_effects_once("one 1", "two")


@pytest.mark.parametrize(
    ("choice", "effects"),
    [("retry", ("one 1", "one 2", "two")), pytest.param("skip", ("one 1", "two"), marks=pytest.mark.slow)],
)
def test_on_interrupt_ask(place: Place, choice: str, effects: tuple[str, ...]) -> None:
    """A gate offers the ways on; the queue goes on meanwhile; the answer decides."""
    cut_off(place, "curious")
    asked = place.call("resume", "job", "--json")
    assert (asked.status, asked.outcomes[-1]) == (6, "done"), asked
    journal = place.journal("job")
    assert len(journal.bodies(TurnDone, "two")) == 1
    gate = journal.the(GateOpened)
    assert [offered.id for offered in gate.choices] == ["skip", "continue", "retry", "hold"]
    answer(place, gate.gate, choice)
    place.call("resume", "job", "--json")
    journal = place.journal("job")
    assert journal.the(GateResolved).answer == choice
    assert not journal.state.parked
    journal.assert_every_input_ends_once()
    place.assert_effects_once(*effects)


@pytest.mark.parametrize(
    ("agent", "state", "order", "effects"),
    [
        ("holding", "held", "retry", ("one 1", "one 2", "two")),
        pytest.param("curious", "asked", "skip", ("one 1", "two"), marks=pytest.mark.slow),
        pytest.param("holding", "held", "skip", ("one 1", "two"), marks=pytest.mark.slow),
        pytest.param("curious", "asked", "retry", ("one 1", "one 2", "two"), marks=pytest.mark.slow),
    ],
)
def test_resolve_refused(place: Place, agent: str, state: str, order: str, effects: tuple[str, ...]) -> None:
    """A turn of unknown outcome is parked, with or without a question to a person: the commands that settle
    it do so in just that state, also while nobody owns the session."""
    cut_off(place, agent)
    place.call("resume", "job")
    parked = place.journal("job").the(TurnParked)
    assert (parked.reason, parked.detail) == ("held", "asked" if state == "asked" else "")
    ordered = place.call(order, "job", "one")
    assert ordered.status == 0, ordered
    place.call("resume", "job")

    settled = place.journal("job").state
    assert not settled.parked
    assert not settled.gates
    place.assert_effects_once(*effects)


# --- busy ------------------------------------------------------------------------------------------


def test_busy_merge(place: Place) -> None:
    """Inputs that come while a turn runs are turns of their own afterwards, or are refused so that the sender
    hears of it, as each of them asked for."""
    owner = in_mid_turn(place)
    place.send("job", QUICK, key="no", when_busy="reject")
    place.send("job", QUICK, key="yes", when_busy="queue")

    async def wait(client: Client) -> None:
        await client.session("job").outcome("no")

    with pytest.raises(BusyError):
        place.ask(wait)
    place.go()
    assert owner.wait().outcomes == ["done", "done", "done"]
    journal = place.journal("job")
    assert journal.the(InputCancelled).reason == "busy"
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "yes")


# --- gates -----------------------------------------------------------------------------------------

GATED = "[[effect:{turn} before]][[gate:g:go on?:allow_once,reject_once]][[effect:{turn} after]]"

OWNER = """
import asyncio, sys
from pathlib import Path
import outlast
from outlast.agents import Command
async def main():
    agent = Command(sys.argv[1].split("\\n"), stdin="open")
    async with outlast.Runtime(agents={"asking": agent}) as runtime:
        live = await runtime.restore("job")
        while not Path("leave").exists():
            await asyncio.sleep(0.01)
        await live.quiet()
        await live.finish()
asyncio.run(main())
"""
"""An embedding program that owns a session until it is told to leave, and leaves every gate to people."""


def patient_owner(place: Place) -> Child:
    from outlast.testing.agents import SCRIPTED
    from outlast.testing.agents import command as command_line

    argv = "\n".join(command_line(SCRIPTED, "--effects", str(place.effects_file)))
    return place.start_program(sys.executable, "-c", OWNER, argv, env=place.environ())


def asked_owner(place: Place) -> tuple[Child, str]:
    """An owner that waits with its agent for an answer, and the gate."""
    place.send("job", GATED, key="one", agent="asking")
    owner = patient_owner(place)
    return owner, place.until_recorded("job", "GateOpened").the(GateOpened).gate


def test_question_answered_from_another_process(place: Place) -> None:
    owner, gate = asked_owner(place)
    place.go("leave")
    first = answer(place, gate, "allow_once")
    again = answer(place, gate, "reject_once")
    assert owner.wait().status == 0, owner.told()

    assert (first.result, first.by) == ("answered", "alice")
    assert (again.result, again.by) == ("taken", "alice")
    journal = place.journal("job")
    assert (journal.the(GateResolved).reason, journal.the(GateResolved).answer) == ("answered", "allow_once")
    place.assert_effects_once("one before", "one after")


def test_stale_condition(place: Place) -> None:
    """What a session is shown to be in ends with its cause: the wait for an answer with the agent that
    asked, the held queue with the resume."""
    owner, _ = asked_owner(place)
    assert json.loads(place.call("ls", "--json").stdout)[0]["status"] == "waiting"
    os.kill(next(pid for pid, line in place.leftovers.items() if "scripted.py --effects" in line), 9)
    place.until_recorded("job", "TurnFailed")
    (row,) = json.loads(place.call("ls", "--json").stdout)
    assert (row["status"], row["open_gates"]) == ("failed", 0)

    place.send("job", MID_TURN, key="two", agent="asking")
    place.until_there("started")
    place.send("job", QUICK, key="three", agent="asking")
    command(place, "cancel")
    assert json.loads(place.call("ls", "--json").stdout)[0]["status"] == "parked"
    command(place, "skip")
    place.until_recorded("job", "TurnDone", turn="three")
    place.go("leave")
    assert owner.wait().status == 0, owner.told()
    assert json.loads(place.call("ls", "--json").stdout)[0]["status"] == "idle"


def test_second_approve(place: Place) -> None:
    """The gate is open, the runtime is killed, the agent lives: answered after the restart, once."""
    owner, gate = asked_owner(place)
    owner.kill()
    assert answer(place, gate, "allow_once").result == "queued"
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["done"], resumed
    assert "g=allow_once" in resumed.lines[-1]["text"]
    journal = place.journal("job")
    assert len(journal.bodies(GateResolved)) == 1
    assert not journal.bodies(TurnInterrupted)
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one before", "one after")
    again = answer(place, gate, "allow_once")
    assert (again.result, again.by) == ("taken", "alice")


@pytest.mark.slow
def test_answer_reaches_the_agent_once_although_its_owner_died(place: Place) -> None:
    """Killed between the recorded answer and the line that tells the agent: the next owner tells it."""
    owner, gate = asked_owner(place)
    owner.kill()
    answer(place, gate, "allow_once")
    cut = place.call("resume", "job", "--json", faults="turn.input.before=kill")
    assert cut.status == -signal.SIGKILL
    assert len(place.journal("job").bodies(GateResolved)) == 1
    assert place.effects == ["one before"]
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["done"], resumed
    place.assert_effects_once("one before", "one after")


def test_gate_reasked_never(place: Place) -> None:
    """Without a terminal and with nobody to ask, `run` leaves the agent waiting and exits 6; the question is
    still there for whoever comes."""
    asked = place.call("run", "-a", "asking", "--session", "job", "--key", "one", "--json", GATED)
    assert asked.status == 6, asked
    assert asked.errors[-1]["error"] == "waiting_for_answer"
    (gate,) = place.show("job")["gates"]
    told = place.call("answer", "job", gate["id"][:13], "allow_once", "--json")
    assert told.status == 0, told
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.assert_effects_once("one before", "one after")


@pytest.mark.parametrize(
    ("approve", "choice"),
    [("all", "allow_once"), pytest.param("never", "reject_once", marks=pytest.mark.slow)],
)
def test_policy_decides_a_permission(place: Place, approve: str, choice: str) -> None:
    ran = place.call("run", "-a", "asking", "--session", "job", "--approve", approve, "--json", GATED)
    assert ran.status == 0, ran
    resolved = place.journal("job").the(GateResolved)
    assert (resolved.reason, resolved.answer) == ("policy", choice)
    assert f"g={choice}" in ran.lines[-1]["text"]


@pytest.mark.slow
def test_grace_vs_gate(place: Place) -> None:
    """Two agents have lost their owner: the one that works is ended when its grace is over, the one that
    waits for a person is not."""
    asked = place.start("run", "-a", "short", "--session", "job", "--key", "one", "--json", GATED)
    assert asked.wait().status == 6
    orphan = place.start("run", "-a", "short", "--session", "orphan", "--key", "other", MID_TURN)
    place.until_there("started")
    orphan.kill()
    until(lambda: ended_by_its_grace(place), "the orphan is ended")
    (gate,) = place.show("job")["gates"]
    answer(place, gate["id"], "allow_once")
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    assert place.call("resume", "orphan", "--json").outcomes == ["interrupted"]
    place.assert_effects_once("one before", "one after", "other")


def ended_by_its_grace(place: Place) -> bool:
    """One of the two agents is gone."""
    return sum("scripted.py" in line for line in place.leftovers.values()) == 1


def test_gate_dead(place: Place) -> None:
    """The agent that asked is dead: its gate is abandoned, visibly, and an answer is told so."""
    _, gate = asked_owner(place)
    kill_all(place)
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["interrupted"], resumed
    assert place.journal("job").the(GateResolved).reason == "abandoned"
    assert not place.show("job")["gates"]
    late = place.call("answer", "job", gate, "allow_once", "--json")
    assert (late.status, json.loads(late.stdout)["result"]) == (3, "gone"), late
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one before")
