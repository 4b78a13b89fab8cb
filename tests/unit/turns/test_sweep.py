"""Old agent lives are removed: never the newest, one that the journal names, or one that may still live."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlast.keep import AgentFolder, layout, proc
from outlast.turns.launch import SWEPT, sweep


def folder_with(path: Path, lives: int) -> AgentFolder:
    """An agent folder with lives whose shims never took their place, and so had no agent."""
    folder = AgentFolder.create(path / "agent")
    for number in range(1, lives + 1):
        life = folder.generation(number).path
        life.mkdir()
        (life / "spool.00000000000000000000").write_bytes(b"x" * 100)
    return folder


def lives(folder: AgentFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_the_newest_two_lives_and_the_named_ones_are_kept(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, 6)
    sweep(folder, frozenset({"gen-000002"}))
    assert lives(folder) == ["gen-000002", "gen-000005", "gen-000006"]
    assert folder.latest() == folder.generation(6)


def test_a_life_of_which_something_lives_is_kept(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, 3)
    with folder.generation(1).opened() as fd:
        me = os.getpid()
        identity: dict[str, int | str | bytes | list[bytes] | None] = {
            "boot": proc.boot_id(),
            "pid_ns": proc.pid_namespace(),
            "marker": "none has this marker",
            "shim_pid": me,
            "shim_ticks": proc.start_ticks(me) or 0,
        }
        layout.Record.create(layout.ID, dir_fd=fd).write(identity)
    sweep(folder, frozenset())
    assert "gen-000001" in lives(folder)


def test_a_sweep_that_was_cut_off_leaves_no_life_in_part_and_the_next_one_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_with(tmp_path, 4)

    def killed(name: str) -> None:
        if name == "turn.sweep.renamed":
            raise KeyboardInterrupt(name)

    with monkeypatch.context() as patch:
        patch.setattr("outlast.turns.launch.point", killed)
        with pytest.raises(KeyboardInterrupt, match="renamed"):
            sweep(folder, frozenset())
    assert lives(folder) == ["gen-000002", "gen-000003", "gen-000004", "old-gen-000001"]
    sweep(folder, frozenset())
    assert lives(folder) == ["gen-000003", "gen-000004"]


def test_very_many_lives_go_over_several_sweeps(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, SWEPT + 10)
    sweep(folder, frozenset())
    assert len(lives(folder)) == 10
    sweep(folder, frozenset())
    assert len(lives(folder)) == 2
