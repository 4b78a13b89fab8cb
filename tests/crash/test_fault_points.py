"""kill -9 at every fault point of the owner, and at every append: nothing is lost or happens twice."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from tests.support.place import Place
from tests.support.processes import until

from outlast.records.types import InputReturned, RestoreDone, TurnAttached, TurnAttemptStarted, TurnDone

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"

BEFORE_THE_AGENT = (
    "restore.probe.before",
    "restore.probe.after",
    "restore.begin.before_append",
    "restore.begin.after_append",
    "actor.accept.before_append",
    "actor.accept.after_append",
    "actor.turn.before_append",
    "actor.turn.after_append",
    "turn.attempt.before_append",
    "turn.start.before",
    "keep.attach.before",
    "keep.attach.after",
    "keep.start.send",
)
BEFORE_THE_INPUT = (
    "turn.start.after",
    "turn.reserve.before_append",
    "turn.input.before",
    "keep.input.send",
)
AFTER_THE_RESERVATION = ("turn.input.before", "keep.input.send")
AFTER_THE_INPUT = (
    "turn.input.after",
    "turn.events.before_append",
    "turn.events.after_append",
    "turn.terminal.before_append",
    "turn.terminal.after_append",
    "actor.finish.before",
    "actor.finish.after",
)
IN_A_RESTORE = (
    "restore.probe.before",
    "restore.probe.after",
    "restore.begin.before_append",
    "restore.begin.after_append",
    "restore.done.before_append",
    "restore.done.after_append",
)
WHILE_ATTACHING = "turn.attach.before_append"
TO_A_LIVING_AGENT = ("keep.attach.before", "keep.attach.after")
WHILE_SWEEPING = "turn.sweep.renamed"
OVER_A_DEAD_AGENT = ("keep.raise_floor.before", "keep.raise_floor.after")

IN_SHORT = {"turn.events.after_append", WHILE_ATTACHING}
"""The ones that every `make test` runs; `make test-all` runs them all."""


def rows(*points: str) -> list[object]:
    """One parameter a point; all but a few are for `make test-all`."""
    return [pytest.param(p, marks=() if p in IN_SHORT else pytest.mark.slow) for p in points]


def two_inputs(place: Place) -> None:
    place.send("job", QUICK, key="one")
    place.send("job", QUICK, key="two")


def killed_at(place: Place, point: str) -> None:
    """An owner that is killed at `point`, and not one that ends otherwise."""
    killed = place.call("resume", "job", "--json", faults=f"{point}=kill")
    assert killed.status == -signal.SIGKILL, killed


def kill_tree(place: Place) -> None:
    """kill -9 of agent, shim and guard."""
    place.kill_leftovers()


@pytest.mark.parametrize("point", rows(*BEFORE_THE_AGENT, *BEFORE_THE_INPUT, *AFTER_THE_INPUT))
def test_owner_dies(place: Place, point: str) -> None:
    """The owner alone dies: its agent, if it has one, goes on, and each input runs once."""
    owner_dies(place, point)


def test_uncapped_log_of_an_owner_that_dies_while_it_removes_old_lives(place: Place) -> None:
    """Each turn of such an agent is a life with a spool of its own: the newest two are kept, and no part of
    another."""
    keys = [f"turn-{n}" for n in range(5)]
    for key in keys:
        place.send("job", QUICK, key=key)
    killed_at(place, WHILE_SWEEPING)
    (agent,) = place.state.glob("outlast.d/agents/*")
    assert sorted(path.name for path in agent.glob("old-*")) == ["old-gen-000001"]
    assert place.call("resume", "job", "--json").status == 0

    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once(*keys)
    assert sorted(path.name for path in agent.glob("*gen-*")) == ["gen-000004", "gen-000005"]


def test_reconnect_loss(place: Place) -> None:
    """The agent is started and the input not yet written to it: it is neither lost nor forgotten."""
    owner_dies(place, "turn.input.before")


def test_reconnect_dup(place: Place) -> None:
    """The input has landed and nothing that came of it is recorded: it is not sent again."""
    owner_dies(place, "turn.input.after")


def test_effect_before_checkpoint(place: Place) -> None:
    """The agent has acted and no record says so: it is not done again."""
    owner_dies(place, "turn.events.before_append")


def test_stranded_turn(place: Place) -> None:
    """The agent has said that it is done, its end is not recorded: the turn ends as done all the same."""
    owner_dies(place, "turn.terminal.before_append")


def owner_dies(place: Place, point: str) -> None:
    two_inputs(place)
    killed_at(place, point)
    resumed = place.call("resume", "job", "--json")

    assert resumed.status == 0, resumed
    journal = place.journal("job")
    assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


@pytest.mark.slow
@pytest.mark.parametrize("point", [*BEFORE_THE_INPUT, *AFTER_THE_INPUT])
def test_owner_and_agent_die(place: Place, point: str) -> None:
    """What was never given to the agent runs once; what was given is not given again."""
    two_inputs(place)
    killed_at(place, point)
    kill_tree(place)
    resumed = place.call("resume", "job", "--json")

    assert resumed.status in (0, 1), resumed
    journal = place.journal("job")
    journal.assert_every_input_ends_once()
    done = {record.turn for record in journal.of("TurnDone")}
    assert "two" in done
    assert set(place.effects) >= done
    assert len(place.effects) == len(set(place.effects))
    if point in BEFORE_THE_INPUT:
        reserved = point in AFTER_THE_RESERVATION
        why = "the input was never written" if reserved else "no input was reserved"
        assert why in journal.the(InputReturned).evidence
        assert done == {"one", "two"}
    else:
        assert not journal.bodies(InputReturned)
        assert len(journal.bodies(TurnAttemptStarted, "one")) == 1


@pytest.mark.parametrize("point", rows(*IN_A_RESTORE, WHILE_ATTACHING, *TO_A_LIVING_AGENT))
def test_restore_dies_and_the_next_one_too(place: Place, point: str) -> None:
    """A restore is cut, and the next one at the same place: the third finishes the same turn."""
    runtime = place.start("run", "-a", "plain", "--session", "job", "--key", "one", MID_TURN)
    place.until_there("started")
    place.send("job", QUICK, key="two")
    runtime.kill()
    killed_at(place, point)
    killed_at(place, point)
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "RestoreDone")
    place.go()
    resumed = owner.wait()

    assert resumed.status == 0, resumed
    journal = place.journal("job")
    assert journal.bodies(TurnAttached, "one")
    assert journal.bodies(RestoreDone)
    assert len(journal.bodies(TurnAttemptStarted, "one")) == 1
    assert len(journal.bodies(TurnDone)) == 2
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


@pytest.mark.slow
@pytest.mark.parametrize("point", [*IN_A_RESTORE, *OVER_A_DEAD_AGENT])
def test_restore_of_a_dead_agent_dies_and_the_next_one_too(place: Place, point: str) -> None:
    """The repairs of a cut restore are written once."""
    runtime = place.start("run", "-a", "plain", "--session", "job", "--key", "one", MID_TURN)
    place.until_there("started")
    place.send("job", QUICK, key="two")
    runtime.kill()
    kill_tree(place)
    killed_at(place, point)
    killed_at(place, point)
    resumed = place.call("resume", "job", "--json")

    assert resumed.status in (0, 1), resumed
    journal = place.journal("job")
    assert len(journal.of("TurnInterrupted")) == 1
    assert [record.turn for record in journal.of("TurnDone")] == ["two"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["before", "after"])
def test_every_append_is_cut(tmp_path: Path, side: str) -> None:
    """The owner dies right before, or right after, its N-th append, for every N until none kills it."""
    from tests.support.place import place_at

    for nth in range(1, 40):
        with place_at(tmp_path / f"cut-{nth}") as place:
            two_inputs(place)
            cut = place.call("resume", "job", "--json", faults=f"journal.append.{side}@{nth}=kill")
            if cut.status == 0:
                assert nth > 10
                return
            assert cut.status == -signal.SIGKILL, cut
            resumed = place.call("resume", "job", "--json")
            assert resumed.status == 0, (nth, resumed)
            journal = place.journal("job")
            journal.assert_every_input_ends_once()
            assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
            place.assert_effects_once("one", "two")
    raise AssertionError("it never came to an end")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["owner", "owner and agent"])
def test_kills_at_any_record(place: Place, victim: str) -> None:
    """One owner after the other is killed when its journal has grown by some records: each input ends once,
    no effect is doubled, and where agents live nothing is even interrupted."""
    chance = random.Random(victim)  # noqa: S311 - where to kill, the same in each run
    inputs = [f"i{number}" for number in range(10)]
    for name in inputs:
        place.send("job", "[[steps:4]]", key=name)
    kills = 0
    while True:
        goal = place.journal("job").state.seq + chance.randrange(3, 25)
        owner = place.start("resume", "job", "--json")
        until(lambda o=owner, g=goal: not o.running or place.journal("job").state.seq >= g, "it goes on")  # type: ignore[misc]
        if not owner.running:
            assert owner.wait().status in (0, 1)
            break
        owner.kill()
        kills += 1
        if victim == "owner and agent":
            kill_tree(place)
    assert kills >= 4
    journal = place.journal("job")
    journal.assert_every_input_ends_once()
    done = [record.turn for record in journal.of("TurnDone")]
    assert len(place.effects) == len(set(place.effects))
    assert {f"{turn} {step}" for turn in done for step in range(4)} <= set(place.effects)
    if victim == "owner":
        assert done == inputs
