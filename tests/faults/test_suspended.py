"""Processes that are stopped at odd moments and go on later: owner, shim, guard, agent. Nothing is lost,
doubled, or ended for it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.place import Place, place_at
from tests.support.processes import Child, until

pytestmark = pytest.mark.slow

SAYS = "[[effect:{turn}]][[say:finished {turn}]]"
MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"

OWNER = (
    "actor.accept.before_append",
    "journal.append.before",
    "journal.append.after",
    "keep.attach.before",
    "keep.attach.after",
    "keep.idle.begun",
    "keep.idle.settled",
    "keep.input.send",
    "keep.input.answered",
    "keep.start.send",
    "restore.probe.fenced",
    "store.append.before_commit",
    "store.append.after_commit",
    "store.release.before_commit",
    "store.witness.before",
    "turn.events.after_append",
    "turn.terminal.before_append",
)
KEEP = (
    "keep.attached.before",
    "keep.exit.before",
    "keep.exit.after",
    "keep.guard.before",
    "keep.guard.placed",
    "keep.id.after",
    "keep.input.sync.after",
    "keep.kill.before",
    "keep.lock.after",
    "keep.pipe.before",
    "keep.pipe.after",
    "keep.place.made",
    "keep.spool.appended",
)
AT_THE_END = {
    "keep.exit.before",
    "keep.exit.after",
    "keep.guard.before",
    "keep.guard.placed",
    "keep.kill.before",
}
IN_SHORT = {"keep.input.answered", "keep.pipe.after", "keep.place.made"}


def rows(points: tuple[str, ...]) -> list[object]:
    return [pytest.param(p, marks=() if p in IN_SHORT else pytest.mark.slow) for p in points]


def stopped(place: Place) -> list[int]:
    """Processes of this place that a signal has stopped."""
    found = []
    for pid in place.leftovers:
        try:
            state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state == "T":
            found.append(pid)
    return found


def let_go_on(place: Place) -> bool:
    """Whether anybody had to be continued."""
    found = stopped(place)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return bool(found)


def until_stopped(place: Place, owner: Child) -> int:
    found = until(lambda: stopped(place) or not owner.running, f"somebody stops; {owner.told()}")
    assert isinstance(found, list), f"nobody was stopped: {owner.told()}"
    return found[0]


@pytest.mark.parametrize("point", rows(OWNER))
def test_an_owner_that_is_stopped_and_goes_on_finishes_its_turns(place: Place, point: str) -> None:
    """Meanwhile it is the owner: whoever comes is told who it is, and that it stands still."""
    place.send("job", SAYS, key="one")
    place.send("job", SAYS, key="two")
    owner = place.start("resume", "job", "--json", faults=f"{point}=stop")
    assert until_stopped(place, owner) == owner.pid
    other = place.start("resume", "job", "--json")
    if point not in ("store.release.before_commit", "actor.accept.before_append"):
        refused = other.wait()
        assert refused.status == 4, refused
        assert f"{owner.pid}" in refused.errors[-1]["message"], refused
    owner.go_on()
    assert owner.wait().status == 0, owner.told()
    assert other.wait().status in (0, 4), other.told()
    assert place.call("resume", "job").status == 0
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


@pytest.mark.parametrize("point", rows(KEEP))
def test_a_shim_or_guard_that_is_stopped_and_goes_on_loses_nothing(place: Place, point: str) -> None:
    place.send("job", SAYS, key="one")
    place.send("job", SAYS, key="two")
    owner = place.start("resume", "job", "--json", faults=f"{point}=stop")
    if point in AT_THE_END:
        # The owner that ends the agent lets its shim go on by itself, perhaps before anybody looks.
        until(lambda: stopped(place) or not owner.running, "somebody stops")
    else:
        assert until_stopped(place, owner) != owner.pid
    let_go_on(place)
    while owner.running:  # the next life meets the point too
        until(lambda: stopped(place) or not owner.running, "it goes on")
        let_go_on(place)
    assert owner.wait().status == 0, owner.told()
    until(lambda: not let_go_on(place), "nobody is stopped")
    journal = place.journal("job")
    assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_an_agent_that_is_stopped_in_mid_turn_goes_on_with_it(place: Place) -> None:
    """Beside its owner, and beside the next one."""
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    (agent,) = [pid for pid, line in place.leftovers.items() if "scripted.py" in line]
    os.kill(agent, signal.SIGSTOP)
    place.go()
    owner.kill()
    later = place.start("resume", "job", "--json")
    place.until_recorded("job", "TurnAttached")
    assert later.running
    os.kill(agent, signal.SIGCONT)
    assert later.wait().outcomes == ["done"], later.told()
    place.assert_effects_once("one")


def test_five_first_runs_beside_one_that_stands_still(tmp_path: Path) -> None:
    """The first of them is stopped as it makes the store; the others wait for it, or say who it is; in the
    end there is one store, and all five are done."""
    with place_at(tmp_path / "place") as place:
        runs = [
            ("run", "-a", "plain", "--session", f"s{n}", "--key", f"k{n}", "--json", SAYS) for n in range(5)
        ]
        first = place.start(*runs[0], faults="store.schema.before_commit=stop")
        first.wait_stopped()
        others = [place.start(*run) for run in runs[1:]]
        gate = place.state / "outlast.d" / "gate"
        until(lambda: all(holds(child.pid, gate) for child in others), "they stand in line")
        first.go_on()
        for child in (first, *others):
            assert child.wait().outcomes == ["done"], child.told()
        place.assert_effects_once(*(f"k{n}" for n in range(5)))
        for n in range(5):
            place.journal(f"s{n}").assert_every_input_ends_once()


def test_five_first_runs_at_once(place: Place) -> None:
    runs = [("run", "-a", "plain", "--session", f"s{n}", "--key", f"k{n}", "--json", SAYS) for n in range(5)]
    children = [place.start(*run) for run in runs]
    for child in children:
        assert child.wait().outcomes == ["done"], child.told()
    place.assert_effects_once(*(f"k{n}" for n in range(5)))
    assert len(list(place.state.glob("**/outlast.db"))) == 1


def holds(pid: int, path: Path) -> bool:
    """Whether the process has the file open."""
    try:
        return any(link.readlink() == path for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
