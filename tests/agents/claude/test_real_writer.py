"""A session of Claude Code that two stores know: one drives it, however they were found."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import MODEL, WAIT, ClaudePlace, claude_place
from tests.support.processes import until

from outlast.agents.claude.binary import find_claude

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


def test_a_session_that_a_claude_of_its_own_is_in_is_not_adopted(place: ClaudePlace) -> None:
    """Its id is no argument of that process, and its transcript is open only while it is written."""
    options = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    argv = [str(find_claude(None, os.environ)), "-p", *options, "--model", MODEL]
    said = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": WAIT}]}}
    with subprocess.Popen(
        argv,
        cwd=place.workspace,
        env=place.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as outside:
        assert outside.stdin is not None
        try:
            outside.stdin.write(json.dumps(said).encode() + b"\n")
            outside.stdin.flush()
            until((place.workspace / "begun").exists, "its command has begun")
            (transcript,) = place.transcripts
            refused = place.call("adopt", "-a", "claude", "--session", "other", "--yes", transcript.stem)
            assert refused.status == 4, refused
            assert str(outside.pid) in refused.stderr
            (place.workspace / "go").touch()
            outside.stdin.close()
            outside.wait(60)
        finally:
            (place.workspace / "go").touch()
            outside.kill()
    adopted = place.call("adopt", "-a", "claude", "--session", "other", "--yes", transcript.stem)
    assert adopted.status == 0, adopted
