"""An agent's folder is damaged while nobody owns its session: the doctor names it with what mends it, and the
session comes back. Inputs that may have been given to the agent are not given again."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.place import Place
from tests.support.processes import until

from outlast.records.types import TurnFailed

pytestmark = pytest.mark.slow

MID_TURN = "[[effect:{turn}]][[touch:started]][[hang]]"
SAYS = "[[effect:{turn}]][[say:finished {turn}]]"


def garbage(path: Path) -> None:
    path.write_bytes(b"?" * path.stat().st_size)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


HARMS = (garbage, emptied, zeroed)
SEEN = ("floor", "spool.00000000000000000000")
"""Files of which nothing is left: that is seen, and told."""
SILENT = ("exit", "guard", "given", "lock")
"""Files that say nothing after it, as if they never had."""
IN_SHORT = {("floor", garbage), ("spool.00000000000000000000", emptied), ("exit", garbage)}


def rows() -> list[object]:
    found = [(name, harm) for name in (*SEEN, *SILENT) for harm in HARMS]
    return [pytest.param(*row, marks=() if row in IN_SHORT else pytest.mark.slow) for row in found]


def damaged(place: Place, name: str, harm: Callable[[Path], None]) -> None:
    """A session whose owner, agent, shim and guard were killed in mid turn, an input behind it."""
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", MID_TURN)
    place.until_there("started")
    place.until_recorded("job", "InputReserved")
    place.send("job", SAYS, key="two")
    until(lambda: len(place.journal("job").of("InputAccepted")) == 2, "the second input is accepted")
    owner.kill()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in place.leftovers:
            os.kill(pid, number)
    until(lambda: not place.leftovers, "they are dead")
    (folder,) = place.state.glob("outlast.d/agents/*")
    (path,) = [*folder.glob(f"gen-*/{name}"), *folder.glob(name)]
    harm(path)


def told(place: Place) -> list[dict[str, Any]]:
    """What the doctor finds of agents that needs something done."""
    findings = place.call("doctor", "--json").lines[-1]["findings"]
    return [found for found in findings if found["check"] == "shims" and found["level"] != "ok"]


@pytest.mark.parametrize(("name", "harm"), rows())
def test_a_session_comes_back_whatever_is_damaged_in_its_agents_folder(
    place: Place, name: str, harm: Callable[[Path], None]
) -> None:
    damaged(place, name, harm)
    if name in SEEN:
        (found,) = told(place)
        assert (found["session"], found["remedy"]) == ("job", "outlast resume job"), found
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["interrupted", "done"], resumed
    journal = place.journal("job")
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")
    assert told(place) == []


@pytest.mark.slow
@pytest.mark.parametrize("harm", [garbage, emptied])
def test_an_agent_that_nobody_can_tell_dead_has_no_second_beside_it_until_a_person_says_so(
    place: Place, harm: Callable[[Path], None]
) -> None:
    """Who its processes were is lost, with all of the file that said it."""
    damaged(place, "id", harm)
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["interrupted", "failed"], resumed
    receipt = place.journal("job").the(TurnFailed).receipt
    assert (receipt.failed_phase, receipt.error.code) == ("host_launch", "unknown")
    assert "not proven dead" in receipt.error.message
    assert "outlast doctor" in receipt.error.message
    place.assert_effects_once("one")

    fault = next(found for found in told(place) if found["level"] == "fault")
    remedy = fault["remedy"].partition(": ")[2]
    subprocess.run(shlex.split(remedy), check=True)
    assert place.call("retry", "job", "two").status == 0
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.assert_effects_once("one", "two")
    assert told(place) == []
