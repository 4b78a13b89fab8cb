"""An agent at work whose name no configuration knows any more: it can be ended, and is not run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.place import Place, place_at
from tests.support.processes import until

from outlast.records.types import TurnInterrupted

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_at(tmp_path) as made:
        yield made


def renamed(place: Place) -> None:
    known = place.config.read_text("utf-8")
    place.config.write_text(known.replace("[agents.plain]", "[agents.renamed]"), "utf-8")


def left_at_work(place: Place) -> None:
    place.send("job", "[[touch:started]][[wait:go]][[effect:{turn}]]", key="first")
    place.send("job", "[[effect:{turn}]]", key="second")
    owner = place.start("resume", "job", "--json")
    place.until_there("started")
    place.until_recorded("job", "InputReserved")
    owner.kill()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("cancel",), "cancelled"),
        (("kill",), "killed"),
        (("kill", "--force"), "killed"),
        (("close",), "closed"),
    ],
    ids=["cancel", "kill", "kill --force", "close"],
)
def test_what_is_to_end_an_agent_ends_it_without_its_adapter(
    place: Place, command: tuple[str, ...], reason: str
) -> None:
    left_at_work(place)
    renamed(place)
    refused = place.call("resume", "job")
    assert refused.status == 3, refused
    assert place.leftovers, "what only looks ends nothing"
    ended = place.call(command[0], "job", *command[1:])
    assert ended.status == 0, ended
    until(lambda: not place.leftovers, "the agent is gone")
    place.go()
    journal = place.journal("job")
    interrupted = journal.the(TurnInterrupted)
    assert (interrupted.reason, "its adapter is not here" in interrupted.evidence) == (reason, True)
    assert list(journal.state.queue) == ["second"]
    place.assert_effects_once()


def test_a_command_that_means_something_else_leaves_an_agent_at_work_without_its_adapter(
    place: Place,
) -> None:
    left_at_work(place)
    known = place.config.read_text("utf-8")
    renamed(place)
    cancelled = place.call("cancel", "job", "second")
    assert cancelled.status == 0, cancelled
    assert list(place.journal("job").state.open_turns) == ["first"]
    place.config.write_text(known, "utf-8")
    place.go()
    resumed = place.call("resume", "job", "--json")
    assert resumed.status == 0, resumed
    place.assert_effects_once("first")


@pytest.mark.parametrize("command", ["cancel", "kill", "close"])
def test_a_turn_whose_agent_has_died_is_closed_without_its_adapter(place: Place, command: str) -> None:
    left_at_work(place)
    renamed(place)
    place.go()
    until(lambda: not place.leftovers, "the agent has ended")
    closed = place.call(command, "job")
    assert closed.status == 0, closed
    evidence = place.journal("job").the(TurnInterrupted).evidence
    assert "its adapter is not here" in evidence
    place.assert_effects_once("first")
