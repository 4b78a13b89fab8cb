"""A session of Claude Code that two stores know: one drives it, however they were found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import ClaudePlace, claude_place

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        yield made


def test_double_writer_of_two_state_homes(place: ClaudePlace) -> None:
    """`XDG_STATE_HOME` keeps stores apart, and not what they may drive."""
    assert place.run("first").wait().status == 0
    (transcript,) = place.transcripts
    place.state = place.root / "state2"
    place.variables["XDG_STATE_HOME"] = str(place.root / "xdg2")
    refused = place.call("adopt", "-a", "claude", "--session", "other", "--yes", transcript.stem)
    assert refused.status != 0
    assert "it is session job's" in refused.stderr, refused
