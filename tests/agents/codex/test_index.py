"""Codex's index of its threads is a hint: whatever is wrong with it, it says nothing, and stays as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlast.agents import Codex
from outlast.agents.codex.index import indexed_rollout
from outlast.agents.provider_state import StatePlace
from outlast.agents.registry import sessions_home

THREAD = "0199aaaa-0000-7000-8000-000000000001"
NAME = f"sessions/2026/01/31/rollout-2026-01-31T12-00-00-{THREAD}.jsonl"


def index(home: Path, path: object, *, number: int = 5, schema: str = "id TEXT, rollout_path TEXT") -> Path:
    home.mkdir(exist_ok=True)
    file = home / f"state_{number}.sqlite"
    with closing(sqlite3.connect(file)) as made, made:
        made.execute(f"CREATE TABLE threads ({schema})")
        if path is not None:
            made.execute("INSERT INTO threads VALUES (?, ?)", (THREAD, path))
    return file


def rollout(home: Path) -> Path:
    path = home / NAME
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    return path


def test_the_newest_index_counts_and_nothing_is_written_beside_it(tmp_path: Path) -> None:
    home = tmp_path / "home with a ? and a #"
    index(home, "/old/one", number=9)
    index(home, "/the/one", number=10)
    before = sorted(home.iterdir())
    assert indexed_rollout(home, THREAD) == Path("/the/one")
    assert indexed_rollout(home, "another") is None
    assert sorted(home.iterdir()) == before


@pytest.mark.parametrize("path", [None, 7, b"\xff", "", "not/absolute"])
def test_an_index_that_names_no_path_says_nothing(tmp_path: Path, path: object) -> None:
    index(tmp_path / "home", path)
    assert indexed_rollout(tmp_path / "home", THREAD) is None


def test_an_index_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert indexed_rollout(home, THREAD) is None
    file = index(home, None, schema="thread TEXT")
    assert indexed_rollout(home, THREAD) is None
    file.write_bytes(b"no database" * 100)
    assert indexed_rollout(home, THREAD) is None
    file.unlink()
    file.mkdir()
    assert indexed_rollout(home, THREAD) is None


def test_a_thread_that_is_kept_elsewhere_is_named_with_what_helps(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    here, there = rollout(new), rollout(old)
    place = StatePlace(THREAD, "/workspace", {"CODEX_HOME": str(new)})
    assert Codex().kept_elsewhere(place) == ""
    index(new, str(there))
    told = Codex().kept_elsewhere(place)
    assert told == (
        f"codex keeps this session elsewhere: in {there}, and not in {here}, where outlast looks;"
        f" set CODEX_HOME to {old} again, or put a link to {new} in the place of that folder"
    )
    assert Codex().read_transcript(THREAD, place.environ) is None
    there.unlink()
    gone = Codex().kept_elsewhere(place, str(there))
    assert f"{there}, which is not there" in gone
    assert gone.endswith(f"put {new} back to {old}, or a link to it there")
    there.symlink_to(here)
    assert Codex().kept_elsewhere(place, str(there)) == ""
    assert Codex().read_transcript(THREAD, place.environ) is not None


def test_a_thread_without_a_file_is_where_its_home_is(tmp_path: Path) -> None:
    """Codex names the file before it makes it."""
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    place = StatePlace(THREAD, "/workspace", {"CODEX_HOME": str(link)})
    assert Codex().kept_elsewhere(place, str(home / NAME)) == ""
    assert "nowhere in" in Codex().kept_elsewhere(place, str(tmp_path / "other" / NAME))


def test_homes_that_link_to_the_same_sessions_are_one_for_whoever_drives_one(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    rollout(homes[0])
    homes[1].mkdir()
    (homes[1] / "sessions").symlink_to(homes[0] / "sessions")
    for home in homes:
        environ = {"CODEX_HOME": str(home)}
        assert Codex().state_home(environ) == sessions_home("codex", environ) == homes[0]
