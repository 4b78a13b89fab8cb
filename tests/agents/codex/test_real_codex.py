"""The real codex and real kill -9: what lives goes on, what dies is told, nothing happens twice.

The model is a script on loopback that refuses a history whose calls and results don't pair up."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, THINK, TICK, WAIT, CodexPlace, codex_place
from tests.agents.codex.terminal import CTRL_C
from tests.support.processes import Child, until

from outlast.records.types import (
    CallObserved,
    GateOpened,
    GateResolved,
    InputReserved,
    InputReturned,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnStarted,
)

WAITING, INTERRUPTED = 6, 130
"""Exit codes of `outlast run`."""

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


# --- in a tool call -------------------------------------------------------------------------------


def in_tool_call(place: CodexPlace) -> Child:
    """A runtime whose turn `one` runs a command, and one more input in the queue."""
    runtime = place.run(WAIT)
    place.until_there("begun")
    place.until_recorded("job", "CallObserved")
    place.send("job", "what happened?", key="two", agent="codex")
    return runtime


def test_the_runtime_dies_in_a_tool_call(place: CodexPlace) -> None:
    """The next runtime attaches, the same turn ends, the command has run once."""
    in_tool_call(place).kill()
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()
    resumed = owner.wait()

    assert (resumed.status, resumed.outcomes) == (0, ["done", "done"]), resumed
    assert_same_turn(place)
    calls = place.journal("job").bodies(CallObserved, "one")
    assert [call.status for call in calls] == ["started", "completed"]
    assert (place.lines("begun"), place.lines("ended")) == (1, 1)


def assert_same_turn(place: CodexPlace) -> None:
    """Turn `one` was given to codex once, and attached to by its second owner."""
    journal = place.journal("job")
    assert journal.the(TurnAttached, "one").attempt == 1
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    assert len(journal.bodies(TurnStarted, "one")) == 1
    assert len(journal.bodies(InputReserved, "one")) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_thread()


def test_dangling_call(place: CodexPlace) -> None:
    """Codex dies in a tool call and its runtime lives: the turn has failed, nothing runs again, and the queue
    goes on in the same thread with a history that the strict model takes."""
    runtime = in_tool_call(place)
    place.kill_codex()
    ended = runtime.wait()

    assert ended.status == 1, ended
    receipt = place.journal("job").the(TurnFailed, "one").receipt
    assert (receipt.failed_phase, receipt.error.code, receipt.error.signal) == ("host_execute", "crashed", 9)
    assert receipt.host_recovery is not None
    assert_goes_on_in_its_thread(place)


def kill_codex_alone(place: CodexPlace) -> None:
    place.kill_codex()


def kill_shim_alone(place: CodexPlace) -> None:
    place.kill_shim()


def kill_the_lot(place: CodexPlace) -> None:
    place.kill_all()


@pytest.mark.parametrize(
    ("kill", "evidence"),
    [
        (kill_codex_alone, "signal 9"),
        (kill_shim_alone, "signal 9"),
        (kill_the_lot, "the input was written"),
    ],
)
def test_runtime_and_agent_die_in_a_tool_call(
    place: CodexPlace, kill: Callable[[CodexPlace], None], evidence: str
) -> None:
    """Codex, its shim or all of them with the runtime: the turn is interrupted, and not executed again."""
    in_tool_call(place).kill()
    kill(place)
    resumed = place.resume()

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    interrupted = place.journal("job").the(TurnInterrupted, "one")
    assert interrupted.reason == "crash"
    assert evidence in interrupted.evidence
    assert "calls without outcome: command" in interrupted.evidence
    assert_goes_on_in_its_thread(place)


def test_the_shim_dies_in_a_tool_call(place: CodexPlace) -> None:
    """Its guard ends codex and the command; the living runtime tells it as a crash."""
    runtime = in_tool_call(place)
    place.kill_shim()
    ended = runtime.wait()

    assert ended.status == 1, ended
    assert place.journal("job").the(TurnFailed, "one").receipt.error.code == "crashed"
    assert_goes_on_in_its_thread(place)


def assert_goes_on_in_its_thread(place: CodexPlace) -> None:
    """The command has begun once and never ended; the next prompt was answered in the same thread, by a
    model that was told of the call."""
    place.go()
    journal = place.journal("job")
    assert journal.the(TurnDone, "two").stop_reason == "end_turn"
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_thread()
    assert (place.lines("begun"), place.lines("ended")) == (1, 0)
    assert [item.text for item in place.told().of_kind("user")] == [WAIT, "what happened?"]
    assert len(place.told().of_kind("call")) == len(place.told().of_kind("result")) == 1


# --- in a call of the model -----------------------------------------------------------------------


def in_model_call(place: CodexPlace) -> Child:
    """A runtime whose turn `one` waits for the model, and one more input in the queue."""
    runtime = place.run(THINK)
    place.until_model_is_asked(THINK)
    place.until_recorded("job", "InputReserved")
    place.send("job", "what happened?", key="two", agent="codex")
    return runtime


def test_the_runtime_dies_while_the_model_thinks(place: CodexPlace) -> None:
    in_model_call(place).kill()
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.model.go_on()
    resumed = owner.wait()

    assert (resumed.status, resumed.outcomes) == (0, ["done", "done"]), resumed
    assert_same_turn(place)
    assert [request.items[-1].text for request in place.model.requests] == [THINK, "what happened?"]


def test_codex_dies_while_the_model_thinks(place: CodexPlace) -> None:
    runtime = in_model_call(place)
    place.kill_codex()
    assert runtime.wait().status == 1
    assert place.journal("job").the(TurnFailed, "one").receipt.error.code == "crashed"
    assert_asked_once(place)


@pytest.mark.parametrize("kill", [kill_codex_alone, kill_shim_alone, kill_the_lot])
def test_runtime_and_agent_die_while_the_model_thinks(
    place: CodexPlace, kill: Callable[[CodexPlace], None]
) -> None:
    in_model_call(place).kill()
    kill(place)
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    assert_asked_once(place)


def assert_asked_once(place: CodexPlace) -> None:
    """The model was asked the first prompt once, and the next one in the same thread."""
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_thread()
    asked = [[item.text for item in request.of_kind("user")] for request in place.model.requests]
    assert asked == [[THINK], [THINK, "what happened?"]]


# --- before the first output ----------------------------------------------------------------------

BEFORE_THE_PROMPT = ("turn.start.after", "turn.input.after@3", "turn.input.before@4")
"""Codex was started and told nothing; its thread was asked for; the prompt was reserved and not written."""
PROMPT_WRITTEN = "turn.input.after@4"


@pytest.mark.parametrize("point", [*BEFORE_THE_PROMPT, PROMPT_WRITTEN])
def test_the_runtime_dies_before_the_first_output(place: CodexPlace, point: str) -> None:
    """The next one attaches, says what is still to be said, and the turn is the same."""
    assert place.run(ONCE, faults=f"{point}=kill").wait().status == -signal.SIGKILL
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    assert_same_turn(place)
    assert place.lines("begun") == 1


@pytest.mark.parametrize("point", BEFORE_THE_PROMPT)
def test_all_die_before_the_prompt(place: CodexPlace, point: str) -> None:
    """What codex was never given is back in its place and runs once, in a thread that codex can find."""
    assert place.run(ONCE, faults=f"{point}=kill").wait().status == -signal.SIGKILL
    place.kill_all()
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    journal = place.journal("job")
    assert journal.the(InputReturned).request_id == "one"
    journal.assert_every_input_ends_once()
    assert place.lines("begun") == 1
    assert [place.threads[-1] in path.name for path in place.rollouts] == [True]


def test_all_die_right_after_the_prompt(place: CodexPlace) -> None:
    """Whether codex had stored it is not known: it is not given again, unless codex's own transcript proves
    that it was not stored. The next one is answered."""
    assert place.run(ONCE, faults=f"{PROMPT_WRITTEN}=kill").wait().status == -signal.SIGKILL
    place.kill_all()
    place.send("job", "hello", key="two", agent="codex")
    resumed = place.resume()
    assert resumed.outcomes[1:] == ["done"], resumed
    journal = place.journal("job")
    assert len(journal.bodies(InputReserved, "one")) == 1 + len(journal.bodies(InputReturned))
    journal.assert_every_input_ends_once()
    assert place.lines("begun") <= 1


def test_a_prompt_that_codex_has_not_stored_is_given_again(place: CodexPlace) -> None:
    """Its transcript is there and lacks it: no model was told of it, so it is back in its place."""
    dead = place.run("hello", faults="turn.terminal.after_append=kill").wait()
    assert dead.status == -signal.SIGKILL
    os.kill(place.codex, signal.SIGSTOP)  # What is written to it now is never read.
    dead = place.run(ONCE, key="two", faults="turn.input.after=kill").wait()
    assert dead.status == -signal.SIGKILL
    place.kill_all()
    assert b"does not hold it" in place.call("plan", "job").stdout
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    journal = place.journal("job")
    assert journal.the(InputReturned).request_id == "two"
    journal.assert_every_input_ends_once()
    assert place.lines("begun") == 1
    place.assert_one_thread()


# --- between turns --------------------------------------------------------------------------------


def test_the_runtime_dies_between_turns(place: CodexPlace) -> None:
    """Codex lives on; the next owner adopts it and its turn runs in the same process."""
    dead = place.run("hello", faults="turn.terminal.after_append=kill").wait()
    assert dead.status == -signal.SIGKILL
    codex = place.codex
    place.send("job", WAIT, key="two", agent="codex")
    owner = place.start("resume", "job", "--json")
    place.until_there("begun")
    assert place.codex == codex
    place.go()

    assert owner.wait().outcomes == ["done"]
    journal = place.journal("job")
    assert len({attempt.generation for attempt in journal.bodies(TurnAttemptStarted)}) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_thread()


@pytest.mark.parametrize("kill", [kill_codex_alone, kill_shim_alone, kill_the_lot])
def test_codex_dies_between_turns(place: CodexPlace, kill: Callable[[CodexPlace], None]) -> None:
    """Nothing was lost with it: the next turn resumes its thread in a new process."""
    dead = place.run("hello", faults="turn.terminal.after_append=kill").wait()
    assert dead.status == -signal.SIGKILL
    kill(place)
    again = place.run("and again", key="two").wait()

    assert again.status == 0, again
    journal = place.journal("job")
    assert len({attempt.generation for attempt in journal.bodies(TurnAttemptStarted)}) == 2
    assert not journal.bodies(TurnInterrupted)
    journal.assert_every_input_ends_once()
    place.assert_one_thread()
    assert [item.text for item in place.told().of_kind("user")] == ["hello", "and again"]


SLEEPER = """
import asyncio
from pathlib import Path
import outlast
from outlast.agents import Codex
async def main():
    agent = Codex(sandbox="danger-full-access", approval="never", idle_park=0.2)
    async with outlast.Runtime(agents={"codex": agent}) as runtime:
        live = await runtime.restore("job")
        while not Path("leave").exists():
            await asyncio.sleep(0.01)
        await live.quiet()
        await live.finish()
asyncio.run(main())
"""
"""An embedding program that soon puts a codex to bed that has nothing to do."""


def test_hibernated_ghost(place: CodexPlace) -> None:
    """A codex that had nothing to do was ended; the next prompt wakes the session in the same thread."""
    place.send("job", "hello", key="one", agent="codex")
    owner = place.start_program(sys.executable, "-c", SLEEPER, env=place.environ())
    place.until_recorded("job", "TurnDone", turn="one")
    until(lambda: set(place.leftovers) == {owner.pid}, f"codex is parked: {place.leftovers}")
    place.send("job", "and again", key="two", agent="codex")
    place.until_recorded("job", "TurnDone", turn="two")
    place.go("leave")

    assert owner.wait().status == 0, owner.told()
    assert len({attempt.generation for attempt in place.journal("job").bodies(TurnAttemptStarted)}) == 2
    place.assert_one_thread()
    assert [item.text for item in place.told().of_kind("user")] == ["hello", "and again"]


# --- approvals ------------------------------------------------------------------------------------

ESCALATE = "escalate echo approved >> approved"


def test_second_approve_an_open_approval_outlives_its_runtime(place: CodexPlace) -> None:
    """Asked under one runtime, answered by another process under the next one: the command runs once."""
    with place.at_terminal("run", "-a", "careful", "--session", "job", "--key", "one", ESCALATE) as terminal:
        terminal.until_shown("echo approved >> approved")
        place.until_recorded("job", "GateOpened")
        terminal.kill()
    gate = place.journal("job").the(GateOpened).gate
    with place.at_terminal("resume", "job") as owner:
        place.until_recorded("job", "RestoreDone")
        assert place.lines("approved") == 0
        answered = place.call("answer", "job", gate, "allow_once")
        assert answered.status == 0, answered
        assert owner.wait() == 0, owner.shown

    journal = place.journal("job")
    assert (journal.the(GateResolved).reason, journal.the(GateResolved).answer) == ("answered", "allow_once")
    assert_same_turn(place)
    assert place.lines("approved") == 1


def test_an_approval_without_anybody_there_waits_for_its_answer(place: CodexPlace) -> None:
    """Without a terminal `run` leaves; the answer is kept, and the next owner gives it to codex."""
    left = place.run(ESCALATE, agent="careful").wait()
    assert left.status == WAITING, left
    gate = place.journal("job").the(GateOpened).gate
    assert place.call("answer", "job", gate, "reject_once").status == 0
    resumed = place.resume()

    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    assert_same_turn(place)
    assert place.lines("approved") == 0
    assert "rejected" in place.told().of_kind("result")[-1].text


def test_gate_dead_an_approval_whose_codex_died_is_closed(place: CodexPlace) -> None:
    """Codex never asks it again: the gate is abandoned with its turn, and the session goes on."""
    assert place.run(ESCALATE, agent="careful").wait().status == WAITING
    place.kill_codex()
    place.send("job", "what happened?", key="two", agent="careful")
    resumed = place.resume()

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    journal = place.journal("job")
    assert journal.the(GateResolved).reason == "abandoned"
    journal.assert_every_input_ends_once()
    place.assert_one_thread()
    assert place.lines("approved") == 0


# --- settings and threads -------------------------------------------------------------------------


def test_sandbox_lost(place: CodexPlace, tmp_path: Path) -> None:
    """The session's limits and folder hold in every turn, whatever codex's own configuration says and
    wherever the session is resumed from."""
    place.write_codex_config(approval="never", sandbox="danger-full-access")
    assert place.run("first", agent="careful").wait().status == 0
    place.run(THINK, key="two", agent="careful")
    place.until_model_is_asked(THINK)
    place.kill_all()
    place.send("job", "third", key="three", agent="careful")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    resumed = place.start_at(elsewhere, "resume", "job", "--json").wait()

    assert resumed.outcomes == ["interrupted", "done"], resumed
    place.assert_one_thread()
    assert len(place.limits) == 3
    for limits in place.limits:
        assert (limits.cwd, limits.approval_policy) == (str(place.workspace), "on-request")
        assert limits.sandbox_policy["type"] == "read-only"


# --- cancelling -----------------------------------------------------------------------------------


def test_cancel_then_run_cancelling_stops_the_command_too(place: CodexPlace) -> None:
    """Told as cancelled, the turn has stopped working, codex itself lives on, and the queue is held."""
    runtime = place.run(TICK, faults="turn.terminal.after_append=kill")
    place.until_there("ticks")
    place.send("job", "hello", key="two", agent="codex")
    cancelled = place.call("cancel", "job")
    runtime.wait()

    assert cancelled.status == 0, cancelled
    assert place.commands == []
    journal = place.journal("job")
    assert journal.the(TurnInterrupted, "one").reason == "cancelled"
    assert not journal.bodies(TurnStarted, "two")
    ticks = place.lines("ticks")
    resumed = place.resume()
    assert resumed.outcomes == ["done"], resumed
    assert place.lines("ticks") == ticks
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_thread()
    assert [item.text for item in place.told().of_kind("user")] == [TICK, "hello"]


def test_ctrl_c_cancels_the_turn_and_the_next_one_goes_on(place: CodexPlace) -> None:
    with place.at_terminal("run", "-a", "codex", "--session", "job", TICK) as terminal:
        place.until_there("ticks")
        place.until_recorded("job", "CallObserved")
        terminal.type(CTRL_C)
        assert terminal.wait() == INTERRUPTED
        assert "cancelled" in terminal.shown
    again = place.run("hello", key="two").wait()

    assert again.status == 0, again
    journal = place.journal("job")
    assert journal.the(TurnInterrupted).reason == "cancelled"
    journal.assert_every_input_ends_once()
    place.assert_one_thread()
    assert len(place.told().of_kind("call")) == len(place.told().of_kind("result")) == 1


def test_ctrl_c_while_the_model_thinks(place: CodexPlace) -> None:
    with place.at_terminal("run", "-a", "codex", "--session", "job", THINK) as terminal:
        place.until_model_is_asked(THINK)
        place.until_recorded("job", "InputReserved")
        terminal.type(CTRL_C)
        assert terminal.wait() == INTERRUPTED
    again = place.run("hello", key="two").wait()
    assert again.status == 0, again
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_thread()


# --- as a new user --------------------------------------------------------------------------------


def test_a_new_user_at_a_terminal(place: CodexPlace) -> None:
    """Nothing configured but codex itself: the words come as the model writes them, and `-c` goes on."""
    place.variables["OUTLAST_CONFIG"] = ""
    with place.at_terminal("run", "-a", "codex", "[[slow:4]] write me a long poem, please") as terminal:
        terminal.until_shown("ECHO 1: ")
        assert "please" not in terminal.shown
        assert terminal.wait() == 0
        assert "ECHO 1: [[slow:4]] write me a long poem, please\n" in terminal.shown
        assert "to come back: outlast resume " in terminal.shown
    with place.at_terminal("run", "-c", "another one") as terminal:
        assert terminal.wait() == 0
        assert "ECHO 2: another one\n" in terminal.shown
    assert len(place.told().of_kind("user")) == 2
    assert len(place.rollouts) == 1


# --- the page -------------------------------------------------------------------------------------


def test_the_configuration_of_the_page_leads_codex_to_the_scripted_model(place: CodexPlace) -> None:
    page = Path(__file__).parents[3] / "docs" / "testing.md"
    section = page.read_text("utf-8").partition("## Codex against it")[2]
    (config,) = re.findall(r"```toml\n(.*?)```", section, re.DOTALL)
    config = config.replace("http://127.0.0.1:40123/v1", place.model.base_url)
    (place.home / "config.toml").write_text(config, "utf-8")
    ran = place.run("[[tool:touch there]]").wait()
    assert ran.status == 0, ran
    assert (place.workspace / "there").exists()
