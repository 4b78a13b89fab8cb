"""The real Claude Code and real kill -9: what lives goes on, what dies is told, nothing happens twice.

The model is a script on loopback that refuses a history whose calls and results don't pair up."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import ONCE, THINK, TICK, WAIT, ClaudePlace, claude_place
from tests.agents.codex.terminal import CTRL_C
from tests.agents.codex.test_real_images import png, seen
from tests.support.processes import Child, until

from outlast.records.agent_state import AgentSessionDecided, AgentStateRestored
from outlast.records.types import (
    AgentSessionChanged,
    CallObserved,
    GateOpened,
    GateResolved,
    InputReserved,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnStarted,
)

PRINT_THEN_WAIT = (
    "[[tools:2:if test {i} = 0; then echo printed | tee -a first; else echo begun >> begun;"
    " until test -e go; do sleep 0.05; done; fi]]"
)
WAITING, INTERRUPTED = 6, 130
"""Exit codes of `outlast run`."""
BY_THE_PROGRAM, BY_US = "the session ended before this call's result was recorded", "[outlast: for your"
"""How the model is told of a call that was cut off: by Claude Code, or by outlast."""

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        yield made


# --- in a tool call -------------------------------------------------------------------------------


def in_tool_call(place: ClaudePlace) -> Child:
    """A runtime whose turn `one` runs a command that the transcript has, and one more input in the queue."""
    runtime = place.run(WAIT)
    place.until_there("begun")
    place.until_recorded("job", "CallObserved")
    place.until_stored('"tool_use"')
    place.send("job", "what happened?", key="two", agent="claude")
    return runtime


def test_the_runtime_dies_in_a_tool_call(place: ClaudePlace) -> None:
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


def assert_same_turn(place: ClaudePlace) -> None:
    """Turn `one` was given to Claude Code once, and attached to by its second owner."""
    journal = place.journal("job")
    assert journal.the(TurnAttached, "one").attempt == 1
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    assert len(journal.bodies(TurnStarted, "one")) == 1
    assert len(journal.bodies(InputReserved, "one")) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_session()


def kill_claude(place: ClaudePlace) -> None:
    place.kill_claude()


def kill_claude_alone(place: ClaudePlace) -> None:
    place.kill_claude_alone()


def kill_shim_alone(place: ClaudePlace) -> None:
    place.kill_shim()


def kill_the_lot(place: ClaudePlace) -> None:
    place.kill_all()


@pytest.mark.parametrize("kill", [kill_claude, kill_claude_alone, kill_shim_alone])
def test_dangling_call(place: ClaudePlace, kill: Callable[[ClaudePlace], None]) -> None:
    """Claude Code, or its shim, dies in a tool call and its runtime lives: the turn has failed, nothing runs
    again, and the queue goes on in the same session with a history that the strict model takes."""
    runtime = in_tool_call(place)
    kill(place)
    ended = runtime.wait()

    assert ended.status == 1, ended
    receipt = place.journal("job").the(TurnFailed, "one").receipt
    assert (receipt.failed_phase, receipt.error.code, receipt.error.signal) == ("host_execute", "crashed", 9)
    assert receipt.host_recovery is not None
    assert_goes_on_in_its_session(place)


@pytest.mark.parametrize(
    ("kill", "evidence"),
    [
        (kill_claude, "signal 9"),
        (kill_claude_alone, "signal 9"),
        (kill_shim_alone, "signal 9"),
        (kill_the_lot, "the input was written"),
    ],
)
def test_runtime_and_agent_die_in_a_tool_call(
    place: ClaudePlace, kill: Callable[[ClaudePlace], None], evidence: str
) -> None:
    """Claude Code, its shim or all of them with the runtime: the turn is interrupted, and not executed
    again."""
    in_tool_call(place).kill()
    kill(place)
    resumed = place.resume()

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    interrupted = place.journal("job").the(TurnInterrupted, "one")
    assert interrupted.reason == "crash"
    assert evidence in interrupted.evidence
    assert "calls without outcome: Bash" in interrupted.evidence
    assert_goes_on_in_its_session(place)


def assert_goes_on_in_its_session(place: ClaudePlace) -> None:
    """The command has begun once and never ended; the next prompt was answered in the same session, by a
    model that the program itself had told of the call, once."""
    place.go()
    journal = place.journal("job")
    assert journal.the(TurnDone, "two").stop_reason == "end_turn"
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_session()
    assert (place.lines("begun"), place.lines("ended")) == (1, 0)
    assert [item.text for item in place.told().of_kind("user")] == [WAIT, "what happened?"]
    [result] = place.told().of_kind("result")
    assert BY_THE_PROGRAM in result.text
    assert not any(BY_US in item.text for item in place.told().items)


@pytest.mark.parametrize("lost", ["the call", "the whole turn"])
def test_no_trace_call_what_the_program_has_lost_is_told_by_us_once(place: ClaudePlace, lost: str) -> None:
    """Claude Code writes its transcript some hundredths of a second after the fact. What a crash a little
    earlier would have left is made by cutting the transcript."""
    first = place.run("hello")
    assert first.wait().status == 0
    runtime = place.run(WAIT, key="cut")
    place.until_there("begun")
    place.until_recorded("job", "CallObserved")
    runtime.kill()
    place.kill_all()
    (transcript,) = place.transcripts
    lines = transcript.read_bytes().splitlines(keepends=True)
    mark = b'"tool_use"' if lost == "the call" else b"echo begun"
    kept = next((at for at, line in enumerate(lines) if mark in line), len(lines))
    transcript.write_bytes(b"".join(lines[:kept]))

    for key in ("two", "three"):
        place.send("job", f"what happened? {key}", key=key, agent="claude")
    resumed = place.resume()
    assert resumed.outcomes == ["interrupted", "done", "done"], resumed
    place.assert_one_session()
    second, third = place.model.requests[-2:]
    call = place.journal("job").bodies(CallObserved, "cut")[0].call
    for request in (second, third):
        told = [item.text for item in request.of_kind("user") if BY_US in item.text]
        assert len(told) == 1
        assert f"- Bash ({call}): " in told[0]
        assert "echo begun >> begun" in told[0]
        assert not any(BY_THE_PROGRAM in item.text for item in request.items)
    assert (place.lines("begun"), place.lines("ended")) == (1, 0)


def test_no_trace_call_one_that_had_ended_and_is_lost_is_told_with_its_outcome(place: ClaudePlace) -> None:
    """An agent that dies right after a call has ended may not have written it yet: the model would do it
    again. Made by cutting the transcript, too."""
    assert place.run("hello").wait().status == 0
    runtime = place.run(PRINT_THEN_WAIT, key="cut")
    place.until_there("begun")
    until(lambda: len(place.journal("job").bodies(CallObserved, "cut")) == 3, "both calls are recorded")
    runtime.kill()
    place.kill_all()
    (transcript,) = place.transcripts
    lines = transcript.read_bytes().splitlines(keepends=True)
    kept = next((at for at, line in enumerate(lines) if b'"tool_use"' in line), len(lines))
    transcript.write_bytes(b"".join(lines[:kept]))

    place.send("job", "what happened?", key="two", agent="claude")
    resumed = place.resume()
    assert resumed.status == 1, resumed
    (told,) = [item.text for item in place.told().of_kind("user") if BY_US in item.text]
    first, second = dict.fromkeys(body.call for body in place.journal("job").bodies(CallObserved, "cut"))
    assert told.index(f"- Bash ({second}): ") < told.index(f"- Bash ({first}): ")
    assert "\n  completed: printed" in told
    assert (place.lines("first"), place.lines("begun")) == (1, 1)
    place.assert_model_took_all()


# --- in a call of the model -----------------------------------------------------------------------


def in_model_call(place: ClaudePlace) -> Child:
    """A runtime whose turn `one` waits for the model, and one more input in the queue."""
    runtime = place.run(THINK)
    place.until_model_is_asked(THINK)
    place.until_recorded("job", "InputReserved")
    place.until_stored(THINK)
    place.send("job", "what happened?", key="two", agent="claude")
    return runtime


def test_the_runtime_dies_while_the_model_thinks(place: ClaudePlace) -> None:
    in_model_call(place).kill()
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.model.go_on()
    resumed = owner.wait()

    assert (resumed.status, resumed.outcomes) == (0, ["done", "done"]), resumed
    assert_same_turn(place)
    assert place.asked() == [[THINK], [THINK, "what happened?"]]


def test_claude_dies_while_the_model_thinks(place: ClaudePlace) -> None:
    runtime = in_model_call(place)
    place.kill_claude()
    place.model.go_on()
    assert runtime.wait().status == 1
    assert place.journal("job").the(TurnFailed, "one").receipt.error.code == "crashed"
    assert_asked_once(place)


@pytest.mark.parametrize("kill", [kill_claude, kill_shim_alone, kill_the_lot])
def test_runtime_and_agent_die_while_the_model_thinks(
    place: ClaudePlace, kill: Callable[[ClaudePlace], None]
) -> None:
    in_model_call(place).kill()
    kill(place)
    place.model.go_on()
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    assert_asked_once(place)


def assert_asked_once(place: ClaudePlace) -> None:
    """The model was asked the first prompt once, and the next one in the same session."""
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_session()
    assert [texts for texts in place.asked() if texts == [THINK]] == [[THINK]]
    assert place.asked()[-1] == [THINK, "what happened?"]


# --- before the first output ----------------------------------------------------------------------

BEFORE_THE_PROMPT = (
    "turn.session_chosen.after_append",
    "turn.start.after",
    "turn.input.after@1",
    "turn.input.before@2",
)
"""Its id was chosen; it was started and told nothing; the handshake was written; the prompt was reserved and
not written."""
PROMPT_WRITTEN = "turn.input.after@2"


@pytest.mark.parametrize("point", [*BEFORE_THE_PROMPT[1:], PROMPT_WRITTEN])
def test_the_runtime_dies_before_the_first_output(place: ClaudePlace, point: str) -> None:
    """The next one attaches, says what is still to be said, and the turn is the same."""
    assert place.run(ONCE, faults=f"{point}=kill").wait().status == -signal.SIGKILL
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    assert_same_turn(place)
    assert place.lines("begun") == 1


@pytest.mark.parametrize("point", BEFORE_THE_PROMPT)
def test_early_id_all_die_before_the_prompt(place: ClaudePlace, point: str) -> None:
    """What Claude Code was never given is back in its place and runs once, under the id that was chosen."""
    assert place.run(ONCE, faults=f"{point}=kill").wait().status == -signal.SIGKILL
    place.kill_all()
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    place.journal("job").assert_every_input_ends_once()
    assert place.lines("begun") == 1
    place.assert_one_session()
    chosen = place.journal("job").bodies(AgentSessionChanged)[0]
    assert (chosen.state, chosen.source) == ("bound", "chosen")


def killed_right_after_the_prompt(place: ClaudePlace) -> None:
    """The runtime is dead; Claude Code lives, and can't end its turn before the model goes on."""
    runtime = place.run(f"{THINK} {ONCE}", faults=f"{PROMPT_WRITTEN}=kill")
    assert runtime.wait().status == -signal.SIGKILL


def test_all_die_right_after_the_prompt(place: ClaudePlace) -> None:
    """Whether Claude Code had stored it is not known: it is not given again, and the next one is answered.
    Where it was not stored there is no session yet, and a new one is told what happened."""
    killed_right_after_the_prompt(place)
    place.kill_all()
    place.model.go_on()
    place.send("job", "hello", key="two", agent="claude")
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes[1:]) == (1, ["done"]), resumed
    journal = place.journal("job")
    assert len(journal.bodies(InputReserved, "one")) == 1
    journal.assert_every_input_ends_once()
    assert len(place.sessions) == 1 + len(journal.bodies(AgentSessionDecided))
    assert place.lines("begun") <= 1 + len(journal.bodies(AgentSessionDecided))


# --- between turns --------------------------------------------------------------------------------


def test_the_runtime_dies_between_turns(place: ClaudePlace) -> None:
    """Claude Code lives on; the next owner adopts it and its turn runs in the same process."""
    dead = place.run("hello", faults="turn.terminal.after_append=kill").wait()
    assert dead.status == -signal.SIGKILL
    claude = place.claude
    place.send("job", WAIT, key="two", agent="claude")
    owner = place.start("resume", "job", "--json")
    place.until_there("begun")
    assert place.claude == claude
    place.go()

    assert owner.wait().outcomes == ["done"]
    journal = place.journal("job")
    assert len({attempt.generation for attempt in journal.bodies(TurnAttemptStarted)}) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_session()


@pytest.mark.parametrize("kill", [kill_claude, kill_shim_alone, kill_the_lot])
def test_claude_dies_between_turns(place: ClaudePlace, kill: Callable[[ClaudePlace], None]) -> None:
    """Nothing was lost with it: the next turn resumes its session in a new process."""
    dead = place.run("hello", faults="turn.terminal.after_append=kill").wait()
    assert dead.status == -signal.SIGKILL
    kill(place)
    again = place.run("and again", key="two").wait()

    assert again.status == 0, again
    journal = place.journal("job")
    assert len({attempt.generation for attempt in journal.bodies(TurnAttemptStarted)}) == 2
    assert not journal.bodies(TurnInterrupted)
    journal.assert_every_input_ends_once()
    place.assert_one_session()
    assert place.asked()[-1] == ["hello", "and again"]


# --- permissions ----------------------------------------------------------------------------------

ASKED = "[[tool:echo approved >> approved]]"


@pytest.fixture
def careful(place: ClaudePlace) -> ClaudePlace:
    """The user's settings allow nothing unasked."""
    place.write_settings({})
    return place


def test_second_approve_an_open_permission_outlives_its_runtime(careful: ClaudePlace) -> None:
    """Asked under one runtime, answered by another process under the next one: the command runs once."""
    place = careful
    with place.at_terminal("run", "-a", "claude", "--session", "job", "--key", "one", ASKED) as terminal:
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


def test_a_permission_without_anybody_there_waits_for_its_answer(careful: ClaudePlace) -> None:
    """Without a terminal `run` leaves; the answer is kept, and the next owner gives it to Claude Code."""
    place = careful
    left = place.run(ASKED).wait()
    assert left.status == WAITING, left
    gate = place.journal("job").the(GateOpened).gate
    assert place.call("answer", "job", gate, "reject_once").status == 0
    resumed = place.resume()

    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    assert_same_turn(place)
    assert place.lines("approved") == 0
    assert "The user rejected this." in place.told().of_kind("result")[-1].text


def test_gate_dead_a_permission_whose_program_died_is_closed(careful: ClaudePlace) -> None:
    """Claude Code never asks it again: the gate is abandoned with its turn, and the session goes on."""
    place = careful
    assert place.run(ASKED).wait().status == WAITING
    place.until_stored('"tool_use"')
    place.kill_claude()
    place.send("job", "what happened?", key="two", agent="claude")
    resumed = place.resume()

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    journal = place.journal("job")
    assert journal.the(GateResolved).reason == "abandoned"
    journal.assert_every_input_ends_once()
    place.assert_one_session()
    assert place.lines("approved") == 0


# --- settings and sessions ------------------------------------------------------------------------


def test_settings_lost_the_users_hooks_and_permissions_are_in_force_after_a_resume(
    place: ClaudePlace,
) -> None:
    hook = {"type": "command", "command": f"echo called >> {place.workspace}/hooked"}
    place.write_settings(
        {
            "permissions": {"allow": ["Bash"], "deny": ["Bash(touch *)"]},
            "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]},
        }
    )
    assert place.run(ONCE).wait().status == 0
    assert place.lines("hooked") == 1
    assert place.run("[[tool:touch forbidden]]", key="two").wait().status == 0
    assert place.run("[[tool:echo more >> begun]]", key="three").wait().status == 0

    assert place.lines("hooked") == 3
    assert place.lines("begun") == 2
    assert not place.file("forbidden").exists()
    assert not place.journal("job").bodies(GateOpened)
    place.assert_one_session()


def test_transcript_gone(place: ClaudePlace) -> None:
    """It is put back from what was captured: the same session, the whole history, nothing said twice."""
    assert place.run("first").wait().status == 0
    assert place.run(ONCE, key="two").wait().status == 0
    shutil.rmtree(place.home / "projects")
    assert place.run("third", key="three").wait().status == 0

    assert place.journal("job").the(AgentStateRestored).reason == "its file was gone"
    assert place.asked()[-1] == ["first", ONCE, "third"]
    assert len(place.told().of_kind("call")) == len(place.told().of_kind("result")) == 1
    place.assert_one_session()
    assert place.lines("begun") == 1


def test_provider_corrupt_a_lost_line_of_a_transcript_is_a_choice_and_no_silence(place: ClaudePlace) -> None:
    """Claude Code itself would go on without a word, and without all that came before the line."""
    assert place.run("first").wait().status == 0
    assert place.run("second", key="two").wait().status == 0
    (transcript,) = place.transcripts
    lines = transcript.read_bytes().splitlines(keepends=True)
    lost = next(at for at, line in enumerate(lines) if b'"assistant"' in line)
    transcript.write_bytes(b"".join([*lines[:lost], b"{}\n", *lines[lost + 1 :]]))
    failed = place.run("third", key="three").wait()

    assert failed.status != 0
    journal = place.journal("job")
    assert journal.the(TurnFailed, "three").receipt.error.code == "session_corrupt"
    assert not journal.bodies(InputReserved, "three")
    assert place.call("retry", "job", "three", "--reseed").status == 0
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    changes = place.journal("job").bodies(AgentSessionChanged)
    assert ("reseeded", "chosen") in [(body.state, body.source) for body in changes]
    assert len(place.sessions) == 2
    assert sum("User: first" in item.text for item in place.told().of_kind("user")) == 1


def test_a_session_goes_on_in_another_home(place: ClaudePlace) -> None:
    """Claude Code files its sessions by the folder that they run in: what was captured is put there."""
    assert place.run("first").wait().status == 0
    place.home = place.root / "other" / "claude"
    place.home.mkdir(parents=True)
    place.write_settings({})
    place.variables["CLAUDE_CONFIG_DIR"] = str(place.home)
    assert place.run("second", key="two").wait().status == 0
    assert place.asked()[-1] == ["first", "second"]
    place.assert_one_session()


def test_a_torn_beginning_of_a_transcript_costs_nothing_but_the_id(place: ClaudePlace) -> None:
    """A session that never finished a turn, and whose transcript has no whole line, can be neither resumed
    nor begun under its id: it gets another one by itself."""
    killed_right_after_the_prompt(place)
    place.until_stored('"user"')
    place.kill_all()
    place.model.go_on()
    (transcript,) = place.transcripts
    transcript.write_bytes(transcript.read_bytes()[:30])
    place.send("job", "hello", key="two", agent="claude")
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    assert len(place.sessions) == 2
    place.journal("job").assert_every_input_ends_once()


def test_a_conversation_that_the_user_clears_goes_on_visibly_in_another_session(place: ClaudePlace) -> None:
    assert place.run("hello").wait().status == 0
    assert place.run("/clear", key="two").wait().status == 0
    assert place.run("again", key="three").wait().status == 0
    assert place.asked()[-1] == ["again"]
    states = [body.state for body in place.journal("job").bodies(AgentSessionChanged)]
    assert states == ["bound", "confirmed", "reseeded", "confirmed"]
    assert len(place.sessions) == len(place.transcripts) == 2
    place.journal("job").assert_every_input_ends_once()


def test_attachment_lost_images_are_given_as_they_are_and_stay(place: ClaudePlace) -> None:
    """One from the command line; one waits in the queue of a dead owner."""
    small, large = png(4), png(200)
    for name, data in (("small.png", small), ("large.png", large)):
        place.file(name).write_bytes(data)
    said = ("-a", "claude", "--session", "job")
    assert place.call("run", *said, "--key", "one", "--image", "small.png", "look").status == 0
    assert place.told().of_kind("image")[-1].text == seen(small)

    sent = place.call("send", "--image", "large.png", "job", "and this")
    assert sent.status == 0, sent
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    assert [item.text for item in place.told().of_kind("image")] == [seen(small), seen(large)]
    place.assert_one_session()


# --- cancelling -----------------------------------------------------------------------------------


def test_cancel_then_run_cancelling_stops_the_command_too(place: ClaudePlace) -> None:
    """Told as cancelled, the turn has stopped working, Claude Code itself lives on, and the queue is held."""
    runtime = place.run(TICK, faults="turn.terminal.after_append=kill")
    place.until_there("ticks")
    place.send("job", "hello", key="two", agent="claude")
    cancelled = place.call("cancel", "job")
    runtime.wait()

    assert cancelled.status == 0, cancelled
    until(lambda: place.commands == [], "its commands have ended")
    journal = place.journal("job")
    assert journal.the(TurnInterrupted, "one").reason == "cancelled"
    assert not journal.bodies(TurnStarted, "two")
    ticks = place.lines("ticks")
    resumed = place.resume()
    assert resumed.outcomes == ["done"], resumed
    assert place.lines("ticks") == ticks
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_session()
    assert place.asked()[-1] == [TICK, "hello"]


def test_ctrl_c_while_the_model_thinks(place: ClaudePlace) -> None:
    with place.at_terminal("run", "-a", "claude", "--session", "job", THINK) as terminal:
        place.until_model_is_asked(THINK)
        place.until_recorded("job", "InputReserved")
        terminal.type(CTRL_C)
        assert terminal.wait() == INTERRUPTED
    place.model.go_on()
    again = place.run("hello", key="two").wait()
    assert again.status == 0, again
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_session()


# --- failures of the provider ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code"), [("401", "auth_failed"), ("429", "rate_limited"), ("529", "provider_overloaded")]
)
def test_a_failure_of_the_provider_is_told_in_its_kind(place: ClaudePlace, status: str, code: str) -> None:
    with place.config.open("a", encoding="utf-8") as config:
        config.write("retry_attempts = 0\n")
    assert place.run(f"[[err:{status}]]").wait().status == 1
    assert place.journal("job").the(TurnFailed, "one").receipt.error.code == code
    assert place.run("hello", key="two").wait().status == 0
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_session()


def test_an_overloaded_provider_is_asked_again_without_the_prompt_a_second_time(place: ClaudePlace) -> None:
    """The transcript holds the prompt: the turn is gone on with, by itself."""
    assert place.run("[[err:529]]").wait().status == 0
    journal = place.journal("job")
    journal.the(TurnDone, "one")
    assert len(journal.bodies(TurnFailed, "one")) == 1
    assert [text for text in place.asked()[-1] if "[[err" in text] == ["[[err:529]]"]
    place.assert_one_session()


# --- as a new user --------------------------------------------------------------------------------


def test_a_new_user_at_a_terminal(place: ClaudePlace) -> None:
    """Nothing configured but Claude Code itself: the words come as the model writes them, and `-c` goes
    on."""
    place.variables["OUTLAST_CONFIG"] = ""
    with place.at_terminal("run", "-a", "claude", "[[slow:4]] write me a long poem, please") as terminal:
        terminal.until_shown("ECHO 1: ")
        assert "please" not in terminal.shown.partition("ECHO 1: ")[2]
        assert terminal.wait() == 0
        assert "ECHO 1: [[slow:4]] write me a long poem, please\n" in terminal.shown
        assert "to come back: outlast resume " in terminal.shown
    with place.at_terminal("run", "-c", "another one") as terminal:
        assert terminal.wait() == 0
        assert "ECHO 2: another one\n" in terminal.shown
    assert len(place.transcripts) == 1
