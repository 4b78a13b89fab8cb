"""A full or failing disk at every step that writes: nothing is lost or doubled, and nobody waits in silence.

`ENOSPC` is met until the story says that there is space, `EIO` at one passage. Points are those of
`outlast.faults`; owner, shim and guard all follow the plan.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.story import Story, assert_nothing_lost_or_doubled
from tests.support.place import Place
from tests.support.processes import until

pytestmark = pytest.mark.slow

OWNER = (
    "home.secret.before_link",
    "keep.idle.before",
    "store.acquire.before_commit",
    "store.admit.before_commit",
    "store.append.before_commit",
    "store.bell.before",
    "store.memory.before",
    "store.node.before_end",
    "store.node.before_write",
    "store.node.written",
    "store.release.before_commit",
    "store.schema.before_commit",
    "store.witness.before",
    "store.witness.emptied",
)
SHIM = (
    "keep.door.before_fsync",
    "keep.exec",
    "keep.exit.before",
    "keep.floor.before",
    "keep.given.before",
    "keep.id.before",
    "keep.input.sync.before",
    "keep.lock.before",
    "keep.place.before",
    "keep.place.made",
    "keep.record.before_rename",
    "keep.segment.before_fsync",
    "keep.spool.append",
    "keep.spool.before_sync",
)
GUARD = ("keep.guard.before", "keep.guard.placed")
WRITES = (*OWNER, *SHIM, *GUARD)
"""Points right before, or in the middle of, a system call that a disk can refuse."""

ELSEWHERE = ("actor.", "journal.", "restore.", "turn.")
"""Begins of the names of points around what the others do in the end."""
NO_DISK = (
    "keep.attach.before",
    "keep.attached.before",
    "keep.close_stdin.send",
    "keep.detach.send",
    "keep.fence.before",
    "keep.fenced.before",
    "keep.grace.send",
    "keep.guard.kill",
    "keep.idle.begun",
    "keep.idle.settled",
    "keep.input.answered",
    "keep.detach.answered",
    "keep.spool.appended",
    "keep.start.answered",
    "keep.input.send",
    "keep.kill.before",
    "keep.kill.send",
    "keep.pipe.before",
    "keep.released.before",
    "keep.report.before",
    "keep.start.before",
    "keep.start.send",
)
"""Points around messages and signals between processes, and behind a step that is done: no disk is asked."""

IN_SHORT = {
    ("store.append.before_commit", "ENOSPC"),
    ("keep.guard.placed", "ENOSPC"),
    ("keep.spool.append", "EIO"),
}
"""What every `make test` runs."""
COUNTED = {"store.append.before_commit": 12, "keep.spool.append": 16, "keep.input.sync.before": 4}
"""Points that the story passes often, and how many of their passages are looked at."""


def rows() -> list[object]:
    found: list[object] = []
    for point in WRITES:
        for error in ("ENOSPC", "EIO"):
            short = (point, error) in IN_SHORT
            found.append(pytest.param(point, error, marks=() if short else pytest.mark.slow))
    return found


@pytest.mark.parametrize(("point", "error"), rows())
def test_a_disk_that_refuses_costs_no_input_and_is_named(
    place: Place, tmp_path: Path, point: str, error: str
) -> None:
    space = tmp_path / "space"
    once = f"@1=raise:{error},passages={folder(tmp_path)}" if error == "EIO" else f"=raise:{error}"
    story = Story(place, f"{point}{once},until={space}", space)
    journal = story.tell()
    assert_nothing_lost_or_doubled(story, journal)
    if error == "ENOSPC" and point != "keep.exec":  # that is its program's own trouble
        # It waits for space, and no turn is given up for want of it.
        assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
        assert not journal.of("TurnFailed", "TurnInterrupted"), journal.types


@pytest.mark.slow
@pytest.mark.parametrize(("point", "most"), COUNTED.items())
def test_a_disk_that_fails_once_at_any_passage_costs_no_input(tmp_path: Path, point: str, most: int) -> None:
    from tests.support.place import place_at

    for nth in range(2, most + 1):
        root = tmp_path / f"passage-{nth}"
        with place_at(root) as place:
            plan = f"{point}@{nth}=raise:EIO,passages={folder(root)}"
            story = Story(place, plan, root / "space")
            assert_nothing_lost_or_doubled(story, story.tell())


def test_an_agent_that_a_full_disk_holds_back_is_not_idle(place: Place, tmp_path: Path) -> None:
    """Its idle time is one second, and the disk takes nothing for longer than that."""
    space, passages = tmp_path / "space", folder(tmp_path)
    plan = f"keep.spool.append=raise:ENOSPC,passages={passages},until={space}"
    run = ("run", "-a", "impatient", "--session", "job", "--key", "one", "--json", "[[effect:{turn}]]")
    owner = place.start(*run, faults=plan)
    # The pauses between two tries of the shim grow to a second.
    tries = passages / "keep.spool.append"
    until(lambda: tries.exists() and tries.stat().st_size > 14, "its shim has tried for some seconds")
    assert owner.running, owner.told()
    assert "there is space" in owner.err.read_text("utf-8")
    space.touch()
    assert owner.wait().outcomes == ["done"], owner.told()
    place.assert_effects_once("one")


def test_a_turn_that_waits_for_space_can_be_cancelled(place: Place, tmp_path: Path) -> None:
    space = tmp_path / "space"
    plan = f"keep.place.before=raise:ENOSPC,until={space}"
    run = ("run", "-a", "plain", "--session", "job", "--key", "one", "--json", "[[effect:{turn}]]")
    owner = place.start(*run, faults=plan)
    until(lambda: "waits" in owner.err.read_text("utf-8"), "it says that it waits")
    assert place.call("cancel", "job").status == 0
    assert owner.wait().outcomes == ["cancelled"], owner.told()
    space.touch()
    assert place.effects == []
    assert place.call("run", "--session", "job", "--key", "two", "[[effect:{turn}]]").status == 0
    place.assert_effects_once("two")


def test_the_sweep_knows_every_point_that_its_story_passes(place: Place, tmp_path: Path) -> None:
    passages = folder(tmp_path)
    story = Story(place, f"passages={passages}", tmp_path / "space")
    assert_nothing_lost_or_doubled(story, story.tell())
    passed = {path.name: path.stat().st_size for path in passages.iterdir()}
    assert set(WRITES) <= set(passed)
    assert {point for point in COUNTED if passed[point] < 2} == set()
    unplaced = set(passed) - set(WRITES) - set(NO_DISK)
    assert [point for point in unplaced if not (".after" in point or point.startswith(ELSEWHERE))] == []


def folder(path: Path) -> Path:
    made = path / "passages"
    made.mkdir()
    return made
