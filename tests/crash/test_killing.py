"""`outlast kill` says what it came to, whatever the agent says while it is ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.place import Place, place_at
from tests.support.processes import until

pytestmark = pytest.mark.slow

GONE = b"the agent is gone, with everything that it had started"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_at(tmp_path) as made:
        yield made


@pytest.mark.parametrize("owner_lives", [True, False])
def test_an_agent_that_says_done_while_it_is_killed_is_told_to_be_gone(
    place: Place, owner_lives: bool
) -> None:
    """Its stdin ends first, and it may take that for a reason to be done."""
    for attempt in range(3):
        session, here = f"job-{attempt}", f"here-{attempt}"
        place.send(session, f"[[touch:{here}]][[eof]][[done]]", key=session, agent="asking")
        owner = place.start("resume", session, "--json")
        place.until_there(here)
        if not owner_lives:
            owner.kill()
        killed = place.call("kill", session)
        assert (killed.status, killed.stdout.startswith(GONE)) == (0, True), killed
        assert b"no agent" not in killed.stdout
        until(lambda: not place.leftovers, "nothing of it is left")


def test_a_kill_of_nothing_names_no_agent_that_it_ended(place: Place) -> None:
    place.send("job", "fine", key="one")
    place.call("resume", "job")
    killed = place.call("kill", "job")
    assert (killed.status, killed.stdout) == (0, b"no turn was running; no agent of the session is left\n")


def test_a_cancel_that_comes_after_the_turn_was_done_says_so(place: Place) -> None:
    """There was a turn, and it was not cancelled."""
    place.send("job", "[[touch:here]][[eof]][[done]]", key="one", agent="asking")
    place.start("resume", "job", "--json")
    place.until_there("here")
    cancelled = place.call("cancel", "job")
    assert cancelled.status == 0, cancelled
    assert cancelled.stdout in (
        b"nothing was cancelled: the turn was done first\n",
        b"cancelled\n",
    )
