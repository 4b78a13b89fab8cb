"""A thread of codex goes on in another folder than it began in, with all that was said in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, CodexPlace, codex_place
from tests.support.processes import PATIENCE

from outlast.records.agent_state import AgentStateRestored

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]
WHERE = "[[tool:pwd -P > where]]"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def begun_in(place: CodexPlace, folder: Path) -> str:
    """A thread with one turn that a person began there, with codex by itself."""
    argv = [place.program, "exec", "--json", "--skip-git-repo-check", "-C", str(folder), ONCE]
    done = subprocess.run(
        argv,
        check=False,
        env=place.environ(),
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        capture_output=True,
    )
    assert done.returncode == 0, done
    (rollout,) = place.rollouts
    return rollout.stem[-36:]


def users(place: CodexPlace) -> list[str]:
    return [item.text for item in place.told().of_kind("user")]


def test_a_thread_that_began_in_another_folder_goes_on_in_this_one(place: CodexPlace) -> None:
    """Also where nothing of it is left but what was captured: in a second state folder, with another home."""
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    thread = begun_in(place, elsewhere)
    said = ("--session", "job", "--workspace", str(place.workspace), "--yes")
    adopted = place.call("adopt", "-a", "codex", *said, thread)
    assert adopted.status == 0, adopted
    assert place.run(WHERE, key="two").wait().status == 0
    assert users(place) == [ONCE, WHERE]
    assert place.file("where").read_text("utf-8").strip() == str(place.workspace)

    shutil.rmtree(elsewhere)
    place.state.rename(place.root / "brought")
    place.state = place.root / "brought"
    place.home = place.root / "other" / "codex"
    place.home.mkdir(parents=True)
    place.write_codex_config(approval="on-request", sandbox="workspace-write")
    place.variables["CODEX_HOME"] = str(place.home)
    assert place.run("third", key="three").wait().status == 0

    assert users(place) == [ONCE, WHERE, "third"]
    assert place.journal("job").the(AgentStateRestored).reason == "its file was gone"
    assert place.limits[-1].cwd == str(place.workspace)
    place.assert_one_thread()


@pytest.mark.parametrize("gone", [False, True])
def test_a_folder_that_was_moved_behind_its_old_path_goes_on_there(place: CodexPlace, *, gone: bool) -> None:
    """A link stands in its place."""
    assert place.run("first").wait().status == 0
    moved = place.root / "moved"
    place.workspace.rename(moved)
    place.workspace.symlink_to(moved)
    if gone:
        shutil.rmtree(place.home / "sessions")
    assert place.run(WHERE, key="two").wait().status == 0
    assert place.run("third", key="three").wait().status == 0
    assert (moved / "where").read_text("utf-8").strip() == str(moved)
    assert users(place) == ["first", WHERE, "third"]
    place.assert_one_thread()
