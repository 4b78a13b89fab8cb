"""A thread that the real codex keeps in another file than the one in its home: a verdict that names both, and
nothing is sent before they are one again. Its index knows each rollout by its absolute path."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, WAIT, CodexPlace, codex_place
from tests.agents.codex.test_real_lost import killed_after_a_call
from tests.support.processes import until

from outlast.records.types import GateOpened, InputReserved, TurnDone, TurnFailed, TurnParked

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def moves_to(place: CodexPlace, home: Path) -> None:
    """From now on that is codex's home."""
    place.home = home
    place.variables["CODEX_HOME"] = str(home)


def copied(place: CodexPlace) -> Path:
    """Its home is a copy of the one that it had, which is still there; that one."""
    old = place.home
    moves_to(place, place.root / "codex2")
    shutil.copytree(old, place.home, symlinks=True)
    return old


def assert_refused(place: CodexPlace, key: str, *named: Path) -> None:
    """A verdict that names the paths; nothing was sent, and nothing is offered that cannot help."""
    journal = place.journal("job")
    error = journal.the(TurnFailed, key).receipt.error
    assert error.code == "session_missing"
    for path in named:
        assert str(path) in error.message
    assert not journal.bodies(InputReserved, key)
    assert journal.bodies(TurnParked, key)
    gate = journal.bodies(GateOpened)[-1]
    assert [choice.id for choice in gate.choices] == ["reseed", "fresh", "refuse"]


@pytest.mark.slow
def test_a_copied_home_runs_no_turn_on_the_thread_of_the_old_one(place: CodexPlace) -> None:
    """Also for a person who wants it as it is: what codex itself says is what counts. With the old home set
    again the turn runs, once."""
    assert place.run("first").wait().status == 0
    (old_rollout,) = place.rollouts
    asked = len(place.model.requests)
    place.kill_all()
    old = copied(place)
    (rollout,) = place.rollouts
    failed = place.run(ONCE, key="two").wait()
    assert failed.status == 6, failed
    assert "--put-back" not in failed.stderr
    assert_refused(place, "two", old_rollout, rollout)
    planned = place.call("plan", "job").stdout.decode()
    assert str(old_rollout) in planned
    assert "--put-back" not in planned

    assert place.call("retry", "job", "--as-is").status == 0
    assert place.resume().status != 0
    assert place.lines("begun") == 0
    assert len(place.model.requests) == asked
    phases = [failed.receipt.failed_phase for failed in place.journal("job").bodies(TurnFailed)]
    assert phases == ["host_launch"] * 2

    moves_to(place, old)
    assert place.call("retry", "job").status == 0
    assert place.resume().outcomes == ["done"]
    assert place.lines("begun") == 1
    place.assert_one_thread()


@pytest.mark.slow
def test_a_living_codex_is_given_nothing_once_its_home_is_another_one(place: CodexPlace) -> None:
    """It has said where its thread is; its index, which the copy has too, was not asked."""
    owner = place.run(WAIT)
    until(lambda: place.lines("begun"), "the command has begun")
    owner.kill()
    (old_rollout,) = place.rollouts
    copied(place)
    second = place.run(ONCE, key="two")
    place.file("go").touch()
    assert second.wait().status == 6
    assert place.journal("job").the(TurnDone, "one").stop_reason == "end_turn"
    assert_refused(place, "two", old_rollout, *place.rollouts)
    assert place.lines("begun") == 1


@pytest.mark.slow
def test_a_killed_turn_is_not_given_again_because_a_stale_copy_lacks_its_prompt(place: CodexPlace) -> None:
    assert place.run("first").wait().status == 0
    place.kill_all()
    (rollout,) = place.rollouts
    elsewhere = place.root / "elsewhere" / rollout.name
    elsewhere.parent.mkdir()
    rollout.rename(elsewhere)
    rollout.symlink_to(elsewhere)
    stale = rollout.read_bytes()
    killed_after_a_call(place, "work", key="two")
    rollout.unlink()
    rollout.write_bytes(stale)
    place.resume()
    assert place.run("third", key="three").wait().status == 6
    assert_refused(place, "three", rollout, elsewhere)
    assert place.lines("begun") == 1
    assert len(place.journal("job").bodies(InputReserved, "two")) == 1

    rollout.unlink()
    rollout.symlink_to(elsewhere)
    assert place.call("retry", "job").status == 0
    assert place.resume().outcomes == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize("mended", ["put back", "linked"])
def test_a_home_that_was_moved_is_named_and_what_is_told_to_do_helps(place: CodexPlace, mended: str) -> None:
    assert place.run("first").wait().status == 0
    (old_rollout,) = place.rollouts
    place.kill_all()
    old = place.home
    moves_to(place, place.root / "codex2")
    old.rename(place.home)
    assert place.run(ONCE, key="two").wait().status == 6
    assert_refused(place, "two", old_rollout, *place.rollouts)
    assert (
        f"put {place.home} back to {old}, or a link to it there"
        in place.journal("job").the(TurnFailed).receipt.error.message
    )

    if mended == "linked":
        old.symlink_to(place.home)
    else:
        place.home.rename(old)
        moves_to(place, old)
    assert place.call("retry", "job").status == 0
    assert place.resume().outcomes == ["done"]
    assert place.lines("begun") == 1
    place.assert_one_thread()


@pytest.mark.slow
def test_a_home_that_is_reached_by_a_link_is_the_same_one(place: CodexPlace) -> None:
    assert place.run("first").wait().status == 0
    place.kill_all()
    link = place.root / "link"
    link.symlink_to(place.home)
    moves_to(place, link)
    assert place.run("second", key="two").wait().status == 0
    assert place.run("third", key="three").wait().status == 0
    assert len(place.journal("job").bodies(TurnDone)) == 3
