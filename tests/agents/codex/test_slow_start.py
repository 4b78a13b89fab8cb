"""A codex that is long in coming up: its MCP servers may take their time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.place import Place, place_at

from outlast.records.types import InputReserved, TurnAttemptStarted, TurnInterrupted

SILENT = "#!/bin/sh\nwhile read -r line; do :; done\n"
"""Reads what it is told and answers nothing, not even the handshake."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_at(tmp_path / "place") as made:
        program = made.root / "codex"
        program.write_text(SILENT, "utf-8")
        program.chmod(0o755)
        with made.config.open("a", encoding="utf-8") as config:
            config.write(f'[agents.codex]\ncommand = ["{program}"]\n')
        yield made


def test_a_turn_is_cancelled_before_codex_is_ready(place: Place) -> None:
    """Nothing was asked of it, so nothing is waited for."""
    runtime = place.start("run", "-a", "codex", "--session", "job", "hello")
    place.until_recorded("job", "TurnAttemptStarted")
    runtime.signal(signal.SIGINT)
    ended = runtime.wait()

    assert ended.status == 130, ended
    journal = place.journal("job")
    interrupted = journal.the(TurnInterrupted)
    assert (interrupted.reason, interrupted.evidence) == (
        "cancelled",
        "the agent had not been given the input",
    )
    assert not journal.bodies(InputReserved)
    assert len(journal.bodies(TurnAttemptStarted)) == 1
    journal.assert_every_input_ends_once()
