"""The real programs as a person has them: at a terminal, interrupted, hung up, looked at again, answered."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import WAIT
from tests.agents.codex.terminal import CTRL_C
from tests.agents.matrix.programs import AgentPlace, Program
from tests.support.journals import Journal
from tests.support.processes import until

from outlast.records.types import GateResolved, TurnDone, TurnInterrupted

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]

INTERRUPTED = 130
WAITING = 6
ASKED = "echo approved >> approved"


@pytest.fixture
def asking(program: Program, tmp_path: Path) -> Iterator[AgentPlace]:
    """Where it asks first."""
    with program.place(tmp_path / "place", True) as made:
        yield made
        assert not [request for request in made.model.requests if request.refused]


def run(program: Program, prompt: str) -> tuple[str, ...]:
    return ("run", "-a", program.agent, "--session", "job", "--key", "one", prompt)


def asks(program: Program) -> tuple[str, ...]:
    return ("run", "-a", program.asks, "--session", "job", "--key", "one", program.asking(ASKED))


def until_at_work(place: AgentPlace) -> None:
    """Its command has begun, and the journal knows."""
    place.until_there("begun")
    place.until_recorded("job", "CallObserved", turn="one")


def assert_it_ended_once(place: AgentPlace) -> None:
    """The turn was one turn, and its command has run once, to its end."""
    journal = place.journal("job")
    assert len(journal.bodies(TurnDone, "one")) == 1
    assert (place.lines("begun"), place.lines("ended")) == (1, 1)
    assert_nothing_is_sent_twice(journal)


def assert_nothing_is_sent_twice(journal: Journal) -> None:
    journal.assert_every_input_ends_once()
    assert len(journal.of("InputReserved", turn="one")) == 1


def said_by_people(place: AgentPlace) -> list[str]:
    return [item.text for item in place.told().of_kind("user")]


# --- run, -c, Ctrl-C ------------------------------------------------------------------------------


def test_a_person_runs_something_and_goes_on(program: Program, place: AgentPlace) -> None:
    with place.at_terminal(*run(program, WAIT)) as terminal:
        until_at_work(place)
        place.go()
        assert terminal.wait() == 0
        assert "DONE 1" in terminal.shown
        assert "to come back: outlast resume job" in terminal.shown
    with place.at_terminal("run", "-c", "and now?") as terminal:
        assert terminal.wait() == 0
        assert "ECHO 2: and now?\n" in terminal.shown
    assert said_by_people(place) == [WAIT, "and now?"]
    assert_it_ended_once(place)


def test_ctrl_c_ends_the_turn_and_its_command_and_the_next_prompt_goes_on(
    program: Program, place: AgentPlace
) -> None:
    with place.at_terminal(*run(program, WAIT)) as terminal:
        until_at_work(place)
        terminal.type(CTRL_C)
        assert terminal.wait() == INTERRUPTED
        assert "cancelled" in terminal.shown
    place.go()
    with place.at_terminal("run", "-c", "and now?") as terminal:
        assert terminal.wait() == 0, terminal.shown
    journal = place.journal("job")
    assert journal.the(TurnInterrupted, "one").reason == "cancelled"
    assert_nothing_is_sent_twice(journal)
    assert (place.lines("begun"), place.lines("ended")) == (1, 0)
    assert said_by_people(place)[-1] == "and now?"


def test_a_second_ctrl_c_leaves_and_whoever_resumes_finishes_the_cancel(
    program: Program, place: AgentPlace
) -> None:
    """The program stands still, so that it obeys the first one only later."""
    with place.at_terminal(*run(program, WAIT)) as terminal:
        until_at_work(place)
        stopped = program.pid(place)
        os.kill(stopped, signal.SIGSTOP)
        terminal.type(CTRL_C)
        terminal.until_shown("cancelling")
        terminal.type(CTRL_C)
        assert terminal.wait() == INTERRUPTED
        assert "to come back: outlast resume job" in terminal.shown
    os.kill(stopped, signal.SIGCONT)
    assert place.resume().outcomes == ["cancelled"]
    place.go()
    assert place.call("run", "-c", "--key", "two", "and now?").status == 0
    assert_nothing_is_sent_twice(place.journal("job"))
    assert (place.lines("begun"), place.lines("ended")) == (1, 0)


# --- the window is closed -------------------------------------------------------------------------


def test_a_closed_window_ends_nothing_and_attach_shows_the_turn_to_its_end(
    program: Program, place: AgentPlace
) -> None:
    with place.at_terminal(*run(program, WAIT)) as window:
        until_at_work(place)
        window.hang_up()
        with place.at_terminal("attach") as terminal:
            terminal.until_shown("echo begun >> begun")
            place.go()
            terminal.until_shown("DONE 1")
            assert window.wait() == 0
            terminal.type(b"/detach\n")
            assert terminal.wait() == 0
    assert_it_ended_once(place)


def test_what_is_killed_with_its_window_is_resumed_in_the_same_turn(
    program: Program, place: AgentPlace
) -> None:
    with place.at_terminal(*run(program, WAIT)) as window:
        until_at_work(place)
        agent = program.pid(place)
        window.hang_up()
        window.kill()
    with place.at_terminal("resume", "job") as terminal:
        place.until_recorded("job", "RestoreDone")
        assert program.pid(place) == agent
        place.go()
        assert terminal.wait() == 0, terminal.shown
        assert "DONE 1" in terminal.shown
    assert_it_ended_once(place)


def test_a_window_that_is_closed_at_an_approval_leaves_it_for_the_next_one(
    program: Program, asking: AgentPlace
) -> None:
    with asking.at_terminal(*asks(program)) as window:
        window.until_shown("answer:")
        asking.until_recorded("job", "GateOpened")
        window.hang_up()
        assert window.wait() == WAITING
    with asking.at_terminal("resume", "job") as terminal:
        terminal.until_shown("answer:")
        assert asking.lines("approved") == 0
        terminal.type(b"allow_once\n")
        assert terminal.wait() == 0, terminal.shown
    journal = asking.journal("job")
    assert journal.the(GateResolved).answer == "allow_once"
    assert len(journal.bodies(TurnDone, "one")) == 1
    assert_nothing_is_sent_twice(journal)
    assert asking.lines("approved") == 1


# --- attach ---------------------------------------------------------------------------------------


def test_who_attaches_sees_the_running_turn_and_answers_its_approval(
    program: Program, asking: AgentPlace
) -> None:
    with asking.at_terminal(*asks(program)) as owner:
        owner.until_shown("answer:")
        with asking.at_terminal("attach", "job") as terminal:
            terminal.until_shown(ASKED)
            terminal.until_shown("asks (permission")
            terminal.type(b"allow_once\n")
            assert owner.wait() == 0, owner.shown
            until(lambda: any(said in terminal.shown for said in ("DONE 1", "ECHO 1")), "it is told the end")
            terminal.type(b"/detach\n")
            assert terminal.wait() == 0
    journal = asking.journal("job")
    assert (journal.the(GateResolved).reason, journal.the(GateResolved).answer) == ("answered", "allow_once")
    assert len(journal.bodies(TurnDone, "one")) == 1
    assert_nothing_is_sent_twice(journal)
    assert asking.lines("approved") == 1
