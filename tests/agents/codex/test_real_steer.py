"""An input joins the running turn of the real codex, and dies with it: once, or told as unknown."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import WAIT, CodexPlace, codex_place
from tests.support.processes import Child, until

from outlast.keep import AgentFolder, probe
from outlast.records.types import (
    InputJoined,
    InputReturned,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnStarted,
)

MORE = "and this"
OFFERED = "turn.reserve.before_append@2"
"""The second input waits to be reserved; the first one was the turn's own."""
STEER_SEQ = 5
"""The fifth line to codex is the steer, after three of the handshake and the prompt."""
RESERVED, WRITTEN = f"turn.input.before@{STEER_SEQ}", f"turn.input.after@{STEER_SEQ}"

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def steered(place: CodexPlace, *, faults: str | None = None) -> Child:
    """A runtime whose turn `one` is in a tool call, and an input `two` that is to join it."""
    runtime = place.run(WAIT, faults=faults)
    steer(place)
    return runtime


def steer(place: CodexPlace) -> None:
    place.until_there("begun")
    place.until_recorded("job", "CallObserved")
    place.send("job", MORE, key="two", agent="codex", when_busy="steer")


def until_given(place: CodexPlace) -> None:
    """Until the shim has the steer for codex."""
    (folder,) = (place.state / "outlast.d" / "agents").iterdir()

    def given() -> bool:
        latest = probe(AgentFolder(folder)).latest
        return latest is not None and latest.last_input >= STEER_SEQ

    until(given, "the steer is given to codex")


def user_texts(place: CodexPlace) -> list[str]:
    """What the model was told by people, as of its last call."""
    return [item.text for item in place.told().of_kind("user")]


def assert_joined(place: CodexPlace) -> None:
    """The model has seen both texts in one turn, each once, and the journal says so."""
    journal = place.journal("job")
    assert user_texts(place) == [WAIT, MORE]
    (joined,) = journal.of("InputJoined")
    assert (joined.turn, journal.the(InputJoined).request_id) == ("one", "two")
    assert journal.bodies(TurnStarted, "two") == []
    journal.the(TurnDone, "one")
    journal.assert_every_input_ends_once()
    place.assert_one_thread()
    assert place.lines("ended") == 1


def test_an_input_joins_the_running_turn(place: CodexPlace) -> None:
    """The model is told of it with the tool's result, and the waiting sender gets the turn's result."""
    runtime = steered(place)
    until_given(place)
    place.go()
    assert runtime.wait().status == 0
    assert_joined(place)
    shown = place.show("job")
    assert [message["text"] for message in shown["messages"] if message["kind"] == "user"] == [WAIT, MORE]
    outcome = place.ask(lambda client: client.session("job").outcome("two"))
    assert (outcome.turn, outcome.outcome) == ("one", "done")


@pytest.mark.parametrize("point", [OFFERED, RESERVED, WRITTEN])
@pytest.mark.parametrize("alone", [False, True])
def test_the_runtime_dies_around_the_steer(place: CodexPlace, point: str, *, alone: bool) -> None:
    """The next one attaches. What codex was not given yet, it is given while the turn runs, and else has a
    turn of its own; what it was given is never given again."""
    assert steered(place, faults=f"{point}=kill").wait().status == -signal.SIGKILL
    calls = len(place.model.requests)
    if alone:
        place.go()
        place.model.wait_for(lambda _: len(place.model.requests) > calls)
        place.until_there("ended")
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    if not alone:
        until_given(place)
        place.go()
    resumed = owner.wait()
    assert resumed.status == 0, resumed
    assert user_texts(place) == [WAIT, MORE]
    if not alone or point == WRITTEN:
        assert_joined(place)
    else:
        place.journal("job").assert_every_input_ends_once()
        assert place.journal("job").bodies(InputJoined) == []


def test_all_die_before_the_steer_is_written(place: CodexPlace) -> None:
    """It was provably not given: it has a turn of its own."""
    assert steered(place, faults=f"{RESERVED}=kill").wait().status == -signal.SIGKILL
    place.kill_all()
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    journal = place.journal("job")
    assert "never written" in journal.the(InputReturned).evidence
    journal.assert_every_input_ends_once()
    assert user_texts(place) == [WAIT, MORE]


@pytest.mark.parametrize("dead", ["codex", "all"])
def test_codex_dies_with_the_steer(place: CodexPlace, dead: str) -> None:
    """Whether codex had taken it is not known: it waits, and only a person lets it be sent again."""
    if dead == "all":
        assert steered(place, faults=f"{WRITTEN}=kill").wait().status == -signal.SIGKILL
        place.kill_all()
        assert place.resume().status == 1
        place.journal("job").the(TurnInterrupted, "one")
    else:
        place.send("job", WAIT, key="one", agent="codex")
        owner = place.start("resume", "job", "--json")
        steer(place)
        until_given(place)
        place.kill_codex()
        assert owner.wait().outcomes == ["failed", "parked"]  # what ends within another turn is told after it
        place.journal("job").the(TurnFailed, "one")
    journal = place.journal("job")
    assert "steered into turn one, landing unknown" in journal.the(TurnInterrupted, "two").evidence
    assert journal.the(TurnParked, "two").reason == "held"
    assert [MORE in request.items[-1].text for request in place.model.requests].count(True) == 0

    assert place.call("retry", "job", "two").status == 0
    assert place.resume().status in (0, 1)
    journal = place.journal("job")
    journal.the(TurnDone, "two")
    journal.assert_every_input_ends_once()
    assert user_texts(place) == [WAIT, MORE]


def test_a_cancelled_turn_gives_back_what_it_had_not_taken(place: CodexPlace) -> None:
    """Codex had accepted it and drops it with the turn; it is still there when the work goes on."""
    runtime = steered(place)
    until_given(place)
    assert place.call("cancel", "job").status == 0
    runtime.wait()
    journal = place.journal("job")
    assert journal.the(InputReturned).request_id == "two"
    assert list(journal.state.queue) == ["two"]

    assert place.resume().outcomes == ["done"]
    assert user_texts(place) == [WAIT, MORE]
    place.journal("job").assert_every_input_ends_once()


def test_who_steers_from_a_shell_is_told_which_turn_it_joins(place: CodexPlace) -> None:
    runtime = place.run(WAIT)
    place.until_there("begun")
    place.until_recorded("job", "CallObserved")
    sent = place.call("send", "job", "--key", "two", "--when-busy", "steer", MORE)
    assert sent.stdout == b"given to turn one; if that ends first, queued as turn two of session job\n"
    until_given(place)
    place.go()
    assert runtime.wait().status == 0
    assert_joined(place)
    assert f"joined by: {MORE}".encode() in place.call("show", "job").stdout
    for command in ("cancel", "retry", "skip"):
        refused = place.call(command, "job", "two")
        told = "input two of session job is no turn of its own: it joined turn one"
        assert (refused.status, told in refused.stderr) == (3, True), refused
