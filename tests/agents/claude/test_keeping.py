"""What a transcript is looked at for: damage that Claude Code itself passes over, and what it tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from outlast.agents.claude import Claude, transcript
from outlast.agents.provider_state import KeepsState, Said, StatePlace
from outlast.agents.transcript import open_regular
from outlast.errors import AgentError
from outlast.keep.proc import start_ticks

SESSION = "01a227de-0000-7000-8000-000000000001"


def entry(uuid: str, parent: str | None, kind: str = "user", content: Any = "hi", **fields: Any) -> str:
    line = {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": SESSION,
        "cwd": "/some/space",
        "message": {"content": content},
        **fields,
    }
    return json.dumps(line)


WHOLE = (
    '{"type": "queue-operation", "operation": "enqueue"}',
    entry("a", None, content="first words"),
    entry("b", "a", "attachment"),
    entry("c", "b", "assistant", [{"type": "text", "text": "an answer"}]),
    entry("d", "c", "assistant", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]),
    entry("e", "d", content=[{"type": "tool_result", "tool_use_id": "t", "content": "out"}]),
    entry("f", "e", content=[{"type": "text", "text": "second words"}]),
    entry("g", "f", "assistant", [{"type": "text", "text": "another"}]),
)


def written(tmp_path: Path, lines: Sequence[str]) -> Path:
    path = tmp_path / "claude" / "projects" / "-some-space" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def place(tmp_path: Path, workspace: str = "/some/space") -> StatePlace:
    return StatePlace(SESSION, workspace, {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude")})


def damage(tmp_path: Path, lines: Sequence[str]) -> str:
    return Claude().state_damage(written(tmp_path, lines), SESSION)


def test_a_whole_transcript_has_no_damage(tmp_path: Path) -> None:
    agent: KeepsState = Claude()
    path = written(tmp_path, WHOLE)
    assert agent.state_damage(path, SESSION) == ""
    found = agent.find_state(place(tmp_path))
    assert found is not None
    assert (found.path, found.name) == (path, f"{SESSION}.jsonl")


def test_provider_corrupt_a_lost_entry_is_named_by_what_hung_on_it(tmp_path: Path) -> None:
    assert damage(tmp_path, [*WHOLE[:3], "{}", *WHOLE[4:]]) == (
        "line 5 goes on from an entry that is not there"
    )
    assert damage(tmp_path, [*WHOLE[:3], *WHOLE[4:]]) == "line 4 goes on from an entry that is not there"


def test_torn_tail_an_end_that_was_torn_and_gone_on_after_is_no_damage(tmp_path: Path) -> None:
    """Claude Code begins a new line after it, from the last entry that was whole."""
    assert damage(tmp_path, [*WHOLE[:-1], WHOLE[-1][:30]]) == ""
    assert damage(tmp_path, [*WHOLE[:-1], WHOLE[-1][:30], entry("h", "f", "assistant")]) == ""


def test_nul_block_a_transcript_without_a_line_that_can_be_read_is_damaged(tmp_path: Path) -> None:
    assert damage(tmp_path, ["\0" * 100]) == "no line of it can be read"
    assert damage(tmp_path, []) == "no line of it can be read"


def test_wrong_adopt_another_sessions_transcript_is_not_taken_for_this_one(tmp_path: Path) -> None:
    other = [line.replace(SESSION, "01a227de-0000-7000-8000-000000000002") for line in WHOLE[1:]]
    assert damage(tmp_path, other) == "it is the transcript of another session"


def test_a_transcript_is_put_where_the_program_looks_for_it(tmp_path: Path) -> None:
    agent, name = Claude(), f"{SESSION}.jsonl"
    projects = tmp_path / "claude" / "projects"
    assert agent.state_path(place(tmp_path, "/other/a.b"), name) == projects / "-other-a-b" / name
    with pytest.raises(AgentError, match="is not the transcript"):
        agent.state_path(place(tmp_path), "../settings.json")
    long = "/" + "x" * 300
    with pytest.raises(AgentError, match="known to itself alone"):
        agent.state_path(place(tmp_path, long), name)
    (projects / f"-{'x' * 199}-1k2j3h").mkdir(parents=True)
    assert agent.state_path(place(tmp_path, long), name).parent.name == f"-{'x' * 199}-1k2j3h"


def test_a_summary_tells_folder_turns_and_words(tmp_path: Path) -> None:
    meta = entry("z", "g", content="a note of the program's own", isMeta=True)
    summary = Claude().summary(written(tmp_path, [*WHOLE, meta, "torn"]), SESSION)
    assert (summary.workspace, summary.turns) == ("/some/space", 2)
    assert summary.said == (
        Said("user", "first words"),
        Said("assistant", "an answer"),
        Said("user", "second words"),
        Said("assistant", "another"),
    )


def test_who_is_in_a_session_is_told_by_the_files_of_living_programs_alone(tmp_path: Path) -> None:
    """One that was killed leaves its file behind, and its number may be another's by now."""
    place = StatePlace(SESSION, "/some/space", {"CLAUDE_CONFIG_DIR": str(tmp_path)})
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        ticks = int(Path(f"/proc/{other.pid}/stat").read_text("ascii").rpartition(")")[2].split()[19])

        def told(session: str, start: object) -> list[int]:
            said = {"pid": other.pid, "sessionId": session, "procStart": str(start)}
            (sessions / f"{other.pid}.json").write_text(json.dumps(said))
            return Claude().named_writers(place)

        assert told(SESSION, ticks) == [other.pid]
        assert told("another", ticks) == []
        assert told(SESSION, ticks + 1) == []
        assert told(SESSION, "soon") == []
        (sessions / "1.json").write_text("no JSON")
        assert told(SESSION, ticks) == [other.pid]
        other.communicate(b"\n")
    assert Claude().named_writers(place) == []


def test_a_pipe_in_the_place_of_a_transcript_is_found_and_never_opened(tmp_path: Path) -> None:
    place = StatePlace(SESSION, "/some/space", {"CLAUDE_CONFIG_DIR": str(tmp_path)})
    path = Claude().state_path(place, f"{SESSION}.jsonl")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    found = Claude().find_state(place)
    assert found is not None
    for read in (Claude().state_damage, Claude().summary):
        with pytest.raises(OSError, match="no regular file"):
            read(found.path, SESSION)


# --- files that go while they are looked at -----------------------------------------------------


def goes_once_seen(monkeypatch: pytest.MonkeyPatch, gone: Path) -> None:
    """The program removes the file right after somebody saw that it is there."""
    real = Path.is_file

    def seen(path: Path) -> bool:
        there = real(path)
        if path == gone:
            path.unlink(missing_ok=True)
        return there

    monkeypatch.setattr(Path, "is_file", seen)


def test_a_process_that_ends_while_it_is_looked_for_is_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is gone before it is read; the others still count."""
    folder = tmp_path / "claude" / "sessions"
    folder.mkdir(parents=True)
    me = {"pid": os.getpid(), "sessionId": SESSION, "procStart": str(start_ticks(os.getpid()))}
    for name in ("1.json", "2.json", "3.json"):
        (folder / name).write_text(json.dumps(me))
    goes_once_seen(monkeypatch, folder / "2.json")
    assert Claude().named_writers(place(tmp_path)) == [os.getpid()] * 2
    goes_once_seen(monkeypatch, folder / "1.json")
    goes_once_seen(monkeypatch, folder / "3.json")
    assert Claude().named_writers(place(tmp_path)) == []


def test_a_transcript_that_goes_while_it_is_looked_at_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, WHOLE)
    other = path.parent.parent / "-other" / path.name
    other.parent.mkdir()
    other.write_text("")
    goes_once_seen(monkeypatch, other)
    found = Claude().find_state(place(tmp_path, "/another/space"))
    assert found is not None
    assert found.path == path


def test_a_subagents_transcript_that_goes_mentions_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, WHOLE)
    agent = path.parent / SESSION / "subagents" / "agent-1.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_text('{"id": "gone"}\n')

    def opened(file: Path) -> BinaryIO:
        agent.unlink(missing_ok=True)
        return open_regular(file)

    monkeypatch.setattr(transcript, "open_regular", opened)
    assert transcript.unmentioned(path, ["t", "gone"]) == {"gone"}
