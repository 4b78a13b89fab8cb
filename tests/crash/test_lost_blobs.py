"""An input whose blob is gone: its turn fails and says so, everything else of the session goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.place import Place, place_at
from tests.support.processes import until

from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.records.types import (
    Body,
    InputAccepted,
    TurnAttached,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
)
from outlast.runtime.client import Client

pytestmark = pytest.mark.slow

B = TypeVar("B", bound=Body)

LARGE = "x" * 400_000
"""More than a record holds: it is kept as a blob."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_at(tmp_path) as made:
        yield made


def lose_blobs(place: Place) -> None:
    blobs = [path for path in place.state.glob("outlast.d/blobs/*/*") if path.is_file()]
    assert blobs
    for blob in blobs:
        blob.unlink()


def left_at_work(place: Place, text: str) -> None:
    """A session whose owner is dead, whose agent works on a turn, and whose blobs are gone."""
    place.send("job", text + LARGE, key="large")
    owner = place.start("resume", "job", "--json")
    place.until_there("started")
    owner.kill()
    lose_blobs(place)


def outlines(place: Place) -> list[Record]:
    """The journal, read as a session is opened: without the text of large bodies."""

    async def read(client: Client) -> list[Record]:
        return [record async for record in read_records(client.store, "job", large="outline")]

    return place.ask(read)


def told(place: Place, kind: type[B]) -> list[tuple[str | None, B]]:
    return [(r.turn, r.body) for r in outlines(place) if isinstance(r.body, kind)]


AT_WORK = "[[touch:started]][[wait:go]][[effect:{turn}]][[done]]"


@pytest.mark.parametrize("command", [("cancel",), ("kill",), ("kill", "--force"), ("close",)])
def test_an_agent_is_ended_whose_input_cannot_be_read_any_more(
    place: Place, command: tuple[str, ...]
) -> None:
    left_at_work(place, AT_WORK)
    ended = place.call(command[0], "job", *command[1:])
    assert ended.status == 0, ended
    until(lambda: not place.leftovers, "the agent is gone")
    assert [turn for turn, _ in told(place, TurnInterrupted)] == ["large"]
    place.go()
    place.assert_effects_once()


def test_a_turn_whose_agent_has_its_input_goes_on_without_the_blob(place: Place) -> None:
    left_at_work(place, AT_WORK)
    resumed = place.start("resume", "job", "--json")
    until(lambda: told(place, TurnAttached), "the next owner has its agent")
    place.go()
    ended = resumed.wait()
    assert ended.status == 0, ended
    place.assert_effects_once("large")
    assert [turn for turn, _ in told(place, TurnDone)] == ["large"]


@pytest.mark.slow
def test_an_agent_that_was_not_given_its_input_yet_is_ended_when_that_is_lost(place: Place) -> None:
    place.send("job", AT_WORK + LARGE, key="large")
    place.call("resume", "job", "--json", faults="turn.start.after=kill")
    lose_blobs(place)
    place.send("job", "[[effect:{turn}]]", key="small")
    place.call("resume", "job", "--json")
    ((turn, failed),) = told(place, TurnFailed)
    assert (turn, failed.receipt.error.code) == ("large", "input_lost")
    place.assert_effects_once("small")


def test_an_input_that_waits_and_is_lost_fails_and_the_next_one_runs(place: Place) -> None:
    place.send("job", "[[touch:started]][[wait:go]]", key="first")
    owner = place.start("resume", "job", "--json")
    place.until_there("started")
    place.send("job", "[[effect:{turn}]]" + LARGE, key="large")
    place.send("job", "[[effect:{turn}]]", key="small")
    until(lambda: len(told(place, InputAccepted)) == 3, "all are accepted")
    owner.kill()
    lose_blobs(place)
    place.go()
    resumed = place.call("resume", "job")
    assert resumed.status == 1, resumed  # a turn has failed
    assert "input_lost" in resumed.stderr
    place.assert_effects_once("small")
    assert [turn for turn, _ in told(place, TurnDone)] == ["first", "small"]
    again = place.call("retry", "job", "large")
    assert again.status == 0, again
    place.call("resume", "job")
    assert [turn for turn, _ in told(place, TurnFailed)] == ["large", "large"]
    assert place.call("close", "job").status == 0


def test_a_session_is_shown_to_its_end_though_a_text_of_it_is_lost(place: Place) -> None:
    left_at_work(place, AT_WORK)
    assert place.call("cancel", "job").status == 0
    place.send("job", "[[say:after it]]", key="small")
    assert place.call("resume", "job").status == 0
    shown = place.call("show", "job")
    assert shown.status == 5, shown
    assert b"after it" in shown.stdout
    assert b"cancelled" in shown.stdout
    assert "only its text is lost" in shown.stderr
    assert place.call("wait", "job").status == 0
