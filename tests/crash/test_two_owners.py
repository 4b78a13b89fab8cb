"""Many processes at one session at once: one of them owns it, every input runs once."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.support.place import Place, place_at
from tests.support.processes import Child, Finished, until

from outlast.records.types import Fence, InputAccepted, TurnStarted

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
HELD = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"

BARRIER = """
import sys, time
from pathlib import Path
from outlast.cli import main
import outlast.cli.resume, outlast.cli.run, outlast.runtime.runtime
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.0005)
sys.argv = ["outlast", *sys.argv[3:]]
sys.exit(main())
"""
"""A process that has imported all it needs and waits for the barrier to fall."""


def at_a_barrier(place: Place, count: int, *arguments: str) -> list[Child]:
    """`count` processes that run `outlast ARGUMENTS` at the same moment: now."""
    fallen = place.root / "fallen"
    ready = [place.root / f"ready-{number}" for number in range(count)]
    children = [
        place.start_program(
            sys.executable, "-c", BARRIER, str(file), str(fallen), *arguments, env=place.environ()
        )
        for file in ready
    ]
    for file, child in zip(ready, children, strict=True):
        until(lambda f=file, c=child: f.exists() or not c.running, "it is at the barrier")  # type: ignore[misc]
        assert child.running, child.told()
    fallen.touch()
    return children


def resume_twice(place: Place) -> None:
    """The scenario of `test_double_writer`."""
    place.send("job", HELD, key="one")
    place.send("job", QUICK, key="two")
    place.send("job", QUICK, key="three")
    both = at_a_barrier(place, 2, "resume", "job", "--json")
    place.until_there("started")
    until(lambda: not all(child.running for child in both), "one gives way")
    loser, owner = sorted(both, key=lambda child: child.running)
    refused = loser.wait()
    assert owner.running
    place.go()
    drained = owner.wait()

    assert refused.status == 4, refused
    assert f"pid {owner.pid}" in refused.errors[-1]["message"], refused
    assert drained.outcomes == ["done", "done", "done"], drained
    journal = place.journal("job")
    assert len(journal.bodies(Fence)) == 1
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two", "three")
    place.assert_nothing_left()


@pytest.mark.parametrize(
    "times",
    [pytest.param(3, id="3"), pytest.param(50, id="50", marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_double_writer(tmp_path: Path, times: int) -> None:
    """Two processes resume one session with three queued inputs at the same moment: one owns it, the other
    exits 4 and names the holder, every input runs once."""
    for time in range(times):
        with place_at(tmp_path / f"{time}") as place:
            resume_twice(place)


def test_duplicate_submit(place: Place) -> None:
    """Eight processes run one key at the same moment, without a session: they meet in one session, there is
    one turn, and all of them end with it."""
    eight = at_a_barrier(place, 8, "run", "-a", "plain", "--key", "K", "--json", HELD)
    place.until_there("started")
    place.go()
    ended = [child.wait() for child in eight]

    assert [one.status for one in ended] == [0] * 8, ended
    (session,) = {one.lines[0]["session"] for one in ended}
    assert {one.lines[0]["turn"] for one in ended} == {"K"}
    assert {tuple(one.outcomes) for one in ended} == {("done",)}
    journal = place.journal(session)
    assert len(journal.bodies(InputAccepted)) == 1
    assert len(journal.bodies(TurnStarted)) == 1
    journal.assert_every_input_ends_once()
    place.assert_effects_once("K")
    assert len(json.loads(place.call("ls", "--json").stdout)) == 1


def test_dedupe_hang(place: Place) -> None:
    """The same key again is the same turn, also after it has ended: whoever asks is told the outcome, nothing
    runs and nobody waits."""
    first = place.call("run", "-a", "plain", "--key", "K", "--json", QUICK)
    again = place.call("run", "-a", "plain", "--key", "K", "--json", QUICK)

    assert again.lines[0] == first.lines[0]
    assert (again.status, again.outcomes) == (0, ["done"])
    assert again.lines[-1]["text"] == "finished K"
    place.assert_effects_once("K")


def test_same_key_with_another_text_collides(place: Place) -> None:
    place.call("run", "-a", "plain", "--key", "K", QUICK)
    other = place.call("run", "-a", "plain", "--key", "K", "--json", "something else")

    assert other.status == 4
    assert other.errors[-1]["error"] == "request_collision"
    place.assert_effects_once("K")


@pytest.mark.slow
def test_run_in_a_session_owned_elsewhere_sends_and_follows(place: Place) -> None:
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", HELD)
    place.until_there("started")
    guest = place.start("run", "--session", "job", "--key", "two", "--json", QUICK)
    until(lambda: b'"turn":"two"' in guest.out.read_bytes(), "the guest's input is durable")
    place.go()

    assert guest.wait().outcomes[-1:] == ["done"]
    assert owner.wait().outcomes == ["done"]
    assert len(place.journal("job").bodies(Fence)) in (1, 2)
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_status_stale(place: Place) -> None:
    """`ls` derives the status from the living lease: what a dead owner left running is not shown as
    running."""
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", HELD)
    place.until_there("started")
    assert listed(place)["status"] == "running"
    assert re.search(rf"\bpid {owner.pid}\b", str(listed(place)["owner"]))
    owner.kill()
    dead = listed(place)
    assert (dead["status"], dead["owner"]) == ("detached", None)
    place.go()

    assert drained(place).outcomes == ["done"]
    assert listed(place)["status"] == "idle"


def test_lock_long(place: Place) -> None:
    """While an owner is at work everybody may look, and send."""
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", HELD)
    place.until_there("started")
    (turn,) = place.show("job")["turns"]
    assert (turn["outcome"], turn["ended_at"]) == ("running", None)
    told = place.call("tail", "job", "--json")
    assert told.lines[0]["type"] == "Fence"
    assert place.call("send", "job", "--key", "two", QUICK).status == 0
    assert owner.running
    place.go()
    assert owner.wait().status == 0
    place.assert_effects_once("one", "two")


def test_early_id(place: Place) -> None:
    """The id that is shown is durable by then: killed right after, its input is there and runs."""
    shown = place.start("run", "-a", "plain", "--json", HELD)
    line = until(lambda: shown.out.read_bytes().partition(b"\n")[0], "the first line is printed")
    shown.kill()
    told = json.loads(line)
    place.go()
    resumed = place.call("resume", told["session"], "--json")

    assert resumed.outcomes == ["done"], resumed
    place.assert_effects_once(told["turn"])


def listed(place: Place) -> dict[str, object]:
    (row,) = json.loads(place.call("ls", "--json").stdout)
    assert isinstance(row, dict)
    return row


def drained(place: Place) -> Finished:
    return place.call("resume", "job", "--json")
