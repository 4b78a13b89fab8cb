"""A session of Claude Code goes on in another folder than it began in, with all that was said in it. It files
its sessions by the folder that they run in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import MODEL, ONCE, ClaudePlace, claude_place
from tests.support.processes import PATIENCE

from outlast.agents.claude.binary import find_claude
from outlast.agents.claude.transcript import is_folder_of
from outlast.records.agent_state import AgentStateRestored

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        yield made


def begun_in(place: ClaudePlace, folder: Path) -> str:
    """A session with one turn that a person began there, with Claude Code by itself."""
    argv = [str(find_claude(None, os.environ)), "-p", "--model", MODEL, ONCE]
    done = subprocess.run(
        argv,
        check=False,
        env=place.environ(),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE,
        capture_output=True,
    )
    assert done.returncode == 0, done
    (transcript,) = place.transcripts
    return transcript.stem


def test_a_session_that_began_in_another_folder_goes_on_in_this_one(place: ClaudePlace) -> None:
    """Also where nothing of it is left but what was captured: in a second state folder, with another home."""
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    session = begun_in(place, elsewhere)
    said = ("--session", "job", "--workspace", str(place.workspace), "--yes")
    adopted = place.call("adopt", "-a", "claude", *said, session)
    assert adopted.status == 0, adopted
    assert place.run("[[tool:pwd > where]]", key="two").wait().status == 0
    assert place.asked()[-1] == [ONCE, "[[tool:pwd > where]]"]
    assert place.file("where").read_text("utf-8").strip() == str(place.workspace)

    shutil.rmtree(elsewhere)
    place.state.rename(place.root / "brought")
    place.state = place.root / "brought"
    place.home = place.root / "other" / "claude"
    place.home.mkdir(parents=True)
    place.write_settings({})
    place.variables["CLAUDE_CONFIG_DIR"] = str(place.home)
    assert place.run("third", key="three").wait().status == 0

    assert place.asked()[-1] == [ONCE, "[[tool:pwd > where]]", "third"]
    assert place.journal("job").the(AgentStateRestored).reason == "its file was gone"
    (transcript,) = place.transcripts
    assert is_folder_of(transcript.parent.name, str(place.workspace))
    place.assert_one_session()


@pytest.mark.parametrize("gone", [False, True])
def test_a_folder_that_was_moved_behind_its_old_path_goes_on_there(place: ClaudePlace, *, gone: bool) -> None:
    """A link stands in its place: Claude Code files its sessions under the folder that the link leads to."""
    assert place.run("first").wait().status == 0
    moved = place.root / "moved"
    place.workspace.rename(moved)
    place.workspace.symlink_to(moved)
    if gone:
        shutil.rmtree(place.home / "projects")
    for number, key in enumerate(("two", "three"), 2):
        assert place.run(f"turn {number} [[tool:pwd -P > where]]", key=key).wait().status == 0
    assert (moved / "where").read_text("utf-8").strip() == str(moved)
    assert [text.partition(" [[")[0] for text in place.asked()[-1]] == ["first", "turn 2", "turn 3"]
    place.assert_one_session()
