"""kill -9 around a snapshot: it is there whole or not at all, and the session goes on as if it had none."""

from __future__ import annotations

import signal

import pytest
from tests.support.place import Place
from tests.support.processes import until

from outlast.journal import Loaded, load
from outlast.records.types import Fence, RestoreStarted
from outlast.state.fold import apply, digest
from outlast.state.model import State
from outlast.state.snapshot import state_of
from outlast.store.contract import Snapshot

pytestmark = pytest.mark.slow

TALKS = "[[effect:{turn}]][[text:1]][[say:finished {turn}]]"
"""More than a snapshot is due for."""

AROUND = (
    "journal.snapshot.before",
    "store.snapshot.before_commit",
    "store.snapshot.after_commit",
    "journal.snapshot.after",
)


def snapshots(place: Place) -> list[Snapshot]:
    return place.ask(lambda client: client.store.snapshots("job"))


def loaded(place: Place) -> Loaded:
    return place.ask(lambda client: load(client.store, "job"))


def assert_true_of_the_journal(place: Place) -> None:
    """Each snapshot holds the state that the records up to it fold to, and reading begins at the newest."""
    journal = place.journal("job")
    kept = {each.seq: each for each in snapshots(place)}
    state = State("job")
    for record in journal.records:
        apply(state, record)
        if record.seq in kept:
            assert digest(state_of(kept.pop(record.seq))) == digest(state)
    assert not kept, "a snapshot is ahead of the journal"
    found = loaded(place)
    assert digest(found.state) == digest(journal.state)
    assert found.unfit == ()
    assert found.verified_from == max((each.seq for each in snapshots(place)), default=0)


def assert_ran_once(place: Place, *turns: str) -> None:
    journal = place.journal("job")
    assert [record.turn for record in journal.of("TurnDone")] == list(turns)
    journal.assert_every_input_ends_once()
    place.assert_effects_once(*turns)


@pytest.mark.parametrize("nth", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("point", AROUND)
def test_owner_dies_around_a_snapshot(place: Place, point: str, nth: int) -> None:
    """Its first one, and one that would replace it."""
    for key in ("one", "two"):
        place.send("job", TALKS, key=key)
    killed = place.call("resume", "job", "--json", faults=f"{point}@{nth}=kill")
    assert killed.status == -signal.SIGKILL, killed
    written = nth if point in AROUND[2:] else nth - 1
    kept = snapshots(place)
    assert len(kept) == written
    assert_true_of_the_journal(place)
    resumed = place.call("resume", "job", "--json")

    assert resumed.status == 0, resumed
    assert_ran_once(place, "one", "two")
    assert_true_of_the_journal(place)
    # The next owner began where the snapshot is, and says so.
    [restore] = place.journal("job").bodies(RestoreStarted)
    assert restore.verified_from == (kept[0].seq if kept else 0)
    assert place.show("job")["restores"][0]["verified_from"] == restore.verified_from


def test_snapshot_of_an_owner_that_was_replaced_is_refused(place: Place) -> None:
    """It sleeps right before its first snapshot, another one takes over, and the kill is left out: when
    it wakes it writes none, and ends."""
    place.send("job", TALKS, key="one")
    sleeper = place.start("resume", "job", "--json", faults="journal.snapshot.before=stop")
    sleeper.wait_stopped()
    assert snapshots(place) == []
    owner = place.call("resume", "job", "--take-over", "--json", faults="takeover.kill=skip")
    assert owner.outcomes == ["done"], owner
    kept = snapshots(place)
    sleeper.go_on()
    woken = sleeper.wait()

    assert woken.status == 4, woken
    assert woken.errors[-1]["error"] == "lease_lost", woken
    assert [fence.epoch for fence in place.journal("job").bodies(Fence)] == [1, 2]
    assert snapshots(place) == kept
    assert {state_of(each).epoch for each in kept} <= {2}
    assert_true_of_the_journal(place)
    assert_ran_once(place, "one")


def test_a_long_session_that_ends_in_the_normal_way_leaves_a_short_tail(place: Place) -> None:
    for key in ("one", "two"):
        place.send("job", TALKS, key=key)
    assert place.call("resume", "job", "--json").status == 0
    assert len(snapshots(place)) == 2
    assert_true_of_the_journal(place)
    assert loaded(place).tail < 400_000
    plan = place.call("plan", "job", "--json")
    assert plan.lines[-1]["verified_from"] == snapshots(place)[0].seq
    until(lambda: not place.leftovers, "all has ended")


def test_no_snapshot_can_be_written_and_nobody_is_kept_by_that(place: Place) -> None:
    """One line on standard error, and the work goes on."""
    for key in ("one", "two"):
        place.send("job", TALKS, key=key)
    resumed = place.call("resume", "job", "--json", faults="journal.snapshot.before=raise:ENOSPC")
    assert resumed.status == 0, resumed
    assert resumed.stderr.count("its snapshot was not written") == 1
    assert snapshots(place) == []
    assert_ran_once(place, "one", "two")
