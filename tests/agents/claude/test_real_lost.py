"""A session that Claude Code does not have any more, although it was given an input: no empty conversation is
begun under its id, and a program that knows none that it began is not started for ever."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import WAIT, ClaudePlace, claude_place

from outlast.records.agent_state import AgentSessionDecided
from outlast.records.types import AgentSessionChanged, GateOpened, TurnFailed, TurnParked

pytestmark = pytest.mark.real_agent

FORGETFUL = """#!/bin/sh
echo begun >> launches
read hello
echo '{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"x",\
"errors":["No conversation found with session ID: x"]}'
exit 1
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        yield made


def test_silent_fresh_a_session_that_was_given_an_input_and_is_gone_is_begun_anew_visibly(
    place: ClaudePlace,
) -> None:
    """Its first turn was cut off, so that nothing of it is confirmed; the model is told what happened."""
    place.run(f"the number is 42 {WAIT}")
    place.until_there("begun")
    place.until_recorded("job", "CallObserved")
    place.until_stored('"tool_use"')
    place.kill_all()
    shutil.rmtree(place.home / "projects")
    place.go()
    assert place.run("which number?", key="two").wait().status == 0

    journal = place.journal("job")
    assert journal.the(AgentSessionDecided).choice == "reseed"
    states = [body.state for body in journal.bodies(AgentSessionChanged)]
    assert states == ["bound", "lost", "reseeded", "confirmed"]
    (said,) = place.asked()[-1]
    assert "User: the number is 42" in said
    assert "Your call of Bash (started; how it ended is not known" in said
    assert len(place.sessions) == 2


def test_endless_launches_a_program_that_knows_no_session_is_a_verdict(place: ClaudePlace) -> None:
    """Begun once, once more by itself, and then a person is asked."""
    program = place.root / "forgetful"
    program.write_text(FORGETFUL)
    program.chmod(0o755)
    with place.config.open("a", encoding="utf-8") as config:
        config.write(f'\n[agents.forgetful]\nkind = "claude"\ncommand = ["{program}"]\n')
    ended = place.start("run", "-a", "forgetful", "--session", "job", "--key", "one", "hello").wait()

    assert ended.status == 6, ended
    assert "session_missing" in ended.stderr
    assert place.lines("launches") == 2
    journal = place.journal("job")
    assert journal.bodies(TurnParked, "one")
    assert len(journal.bodies(GateOpened)) == len(journal.bodies(AgentSessionDecided)) == 1


def test_queue_lost_a_home_that_cannot_be_used_holds_what_waits(place: ClaudePlace) -> None:
    """Every input would fail of it: none is used up, and one `retry` lets all go on once it is mended."""
    assert place.run("hello").wait().status == 0
    place.kill_all()
    (folder,) = {path.parent for path in place.transcripts}
    shutil.rmtree(folder)
    folder.write_text("a file in the folder's place")
    for key in ("two", "three", "four"):
        place.send("job", f"then {key}", key=key, agent="claude")
    held = place.resume()

    assert (held.status, held.outcomes) == (1, ["parked"]), held
    error = place.journal("job").the(TurnFailed, "two").receipt.error
    assert error.code == "home_unusable"
    assert "again" not in error.message  # That would only queue another input: `retry` is told beside it.
    assert list(place.journal("job").state.queue) == ["three", "four"]
    folder.unlink()
    assert place.call("retry", "job").status == 0
    assert place.resume().outcomes == ["done", "done", "done"]
    assert place.asked()[-1] == ["hello", "then two", "then three", "then four"]
