"""The real codex and real kill -9: what lives goes on, what dies is told, nothing happens twice.

The model is a script on loopback that refuses a history whose calls and results don't pair up."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast.records.types import (
    AgentSessionChanged,
    CallObserved,
    GateResolved,
    InputReserved,
    LoopChanged,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnStarted,
)
from tests.agents.codex.real import TICK, WAIT, CodexPlace, codex_place
from tests.support.processes import Child, Finished, until

pytestmark = pytest.mark.real_agent

HANG = "[[hang:60]] think about it"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def in_tool_call(place: CodexPlace) -> Child:
    """A runtime whose turn `one` runs a command, and one more input in the queue."""
    runtime = place.run(WAIT)
    place.until_there("begun")
    place.until_recorded("job", "CallObserved")
    place.send("job", "what happened?", key="two", agent="codex")
    return runtime


def in_model_call(place: CodexPlace) -> Child:
    """A runtime whose turn `one` waits for the model, and one more input in the queue."""
    runtime = place.run(HANG)
    place.until_model_is_asked("think about it")
    place.send("job", "what happened?", key="two", agent="codex")
    return runtime


def resume(place: CodexPlace) -> Finished:
    return place.call("resume", "job", "--json")


# --- in a tool call -------------------------------------------------------------------------------


def test_the_runtime_dies_in_a_tool_call(place: CodexPlace) -> None:
    """The next runtime attaches, the same turn ends, the command has run once."""
    in_tool_call(place).kill()
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    place.go()
    resumed = owner.wait()

    assert (resumed.status, resumed.outcomes) == (0, ["done", "done"]), resumed
    journal = place.journal("job")
    assert journal.the(TurnAttached, "one").attempt == 1
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    assert len(journal.bodies(TurnStarted, "one")) == 1
    assert len(journal.bodies(InputReserved, "one")) == 1
    assert [call.status for call in journal.bodies(CallObserved, "one")] == ["started", "completed"]
    assert (place.lines("begun"), place.lines("ended")) == (1, 1)
    journal.assert_every_input_ends_once()
    place.assert_one_thread()


def test_codex_dies_in_a_tool_call(place: CodexPlace) -> None:
    """Its runtime lives: the turn has failed, the queue goes on in the same thread, nothing runs again."""
    runtime = in_tool_call(place)
    place.kill_codex()
    ended = runtime.wait()

    assert ended.status == 1, ended
    journal = place.journal("job")
    receipt = journal.the(TurnFailed, "one").receipt
    assert (receipt.failed_phase, receipt.error.code, receipt.error.signal) == ("host_execute", "crashed", 9)
    assert receipt.host_recovery is not None
    assert_goes_on_in_its_thread(place)


def test_both_die_in_a_tool_call(place: CodexPlace) -> None:
    in_tool_call(place).kill()
    place.kill_codex()
    resumed = resume(place)

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    interrupted = place.journal("job").the(TurnInterrupted, "one")
    assert interrupted.reason == "crash"
    assert "signal 9" in interrupted.evidence
    assert "calls without outcome: command" in interrupted.evidence
    assert_goes_on_in_its_thread(place)


def test_all_die_in_a_tool_call(place: CodexPlace) -> None:
    """Shim and guard, too: nobody is left to say how codex ended."""
    in_tool_call(place)
    place.kill_all()
    resumed = resume(place)

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    assert "the input was written" in place.journal("job").the(TurnInterrupted, "one").evidence
    assert_goes_on_in_its_thread(place)


def test_the_shim_dies_in_a_tool_call(place: CodexPlace) -> None:
    """Its guard ends codex and the command; a living runtime tells it as a failure."""
    runtime = in_tool_call(place)
    place.kill_shim()
    ended = runtime.wait()

    assert ended.status == 1, ended
    assert place.journal("job").the(TurnFailed, "one").receipt.error.code == "transport_lost"
    assert_goes_on_in_its_thread(place)


def test_shim_and_runtime_die_in_a_tool_call(place: CodexPlace) -> None:
    in_tool_call(place).kill()
    place.kill_shim()
    resumed = resume(place)

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    assert_goes_on_in_its_thread(place)


def assert_goes_on_in_its_thread(place: CodexPlace) -> None:
    """The command has begun once and never ended; the next prompt was answered in the same thread, by a
    model that was told of the call."""
    place.go()
    journal = place.journal("job")
    assert journal.the(TurnDone, "two").stop_reason == "end_turn"
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    assert (
        "resumed" in [body.source for body in journal.bodies(AgentSessionChanged)] or len(place.threads) == 1
    )
    journal.assert_every_input_ends_once()
    place.assert_one_thread()
    assert (place.lines("begun"), place.lines("ended")) == (1, 0)
    told = place.model.requests[-1]
    assert [item.text for item in told.of_kind("user")] == [WAIT, "what happened?"]
    assert len(told.of_kind("call")) == len(told.of_kind("result")) == 1
