"""Codex's transcript read as evidence. The lines have the shapes that codex 0.163 writes; what codex itself
does with a damaged one was measured and is in docs/agents.md."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from outlast.agents import Codex
from outlast.agents.codex.rollout import find_rollout, read_rollout, taken_back
from outlast.agents.transcript import SentPrompt, Transcript
from outlast.errors import UsageError
from outlast.runtime.adopting import look_at

THREAD = "01a22a91-b5b5-77c1-a870-4335a64da083"


def line(ordinal: int, kind: str, **payload: Any) -> bytes:
    return json.dumps({"ordinal": ordinal, "type": kind, "payload": payload}).encode() + b"\n"


def asked(ordinal: int, kind: str = "user.text") -> bytes:
    passed = {"content_item_kinds": [kind]}
    return line(
        ordinal,
        "response_item",
        type="message",
        role="user",
        internal_chat_message_metadata_passthrough=passed,
    )


def stored(ordinal: int, key: str) -> bytes:
    return line(ordinal, "event_msg", type="item_completed", item={"type": "UserMessage", "client_id": key})


def written(tmp_path: Path, lines: list[bytes]) -> Path:
    folder = tmp_path / "sessions" / "2026" / "11" / "30"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollout-2026-11-30T03-48-42-{THREAD}.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def read(tmp_path: Path, lines: list[bytes]) -> Transcript:
    return read_rollout(written(tmp_path, lines), THREAD)


HEAD = line(0, "session_meta", id=THREAD)
CONTEXT = asked(1, "environments.environment_context")
WHOLE = [HEAD, CONTEXT, asked(2), stored(3, "one"), line(4, "turn_context"), asked(5), stored(6, "two")]


def test_a_whole_transcript_tells_which_prompts_it_holds_and_which_it_lacks(tmp_path: Path) -> None:
    transcript = read(tmp_path, WHOLE)
    assert transcript.keys == {"one", "two"}
    assert transcript.damage == ""
    assert transcript.lacks("three")
    assert not transcript.lacks("one")


@pytest.mark.parametrize("end", [asked(7), stored(7, "three")[:-9]])
def test_a_prompt_that_is_being_stored_is_not_told_as_lacking(tmp_path: Path, end: bytes) -> None:
    transcript = read(tmp_path, [*WHOLE, end])
    assert transcript.damage == ""
    assert not transcript.lacks("three")


def test_torn_tail_that_codex_went_on_after_is_no_damage(tmp_path: Path) -> None:
    torn = line(7, "event_msg", type="task_complete")[:-20] + b"\n"
    transcript = read(tmp_path, [*WHOLE, torn, asked(7), stored(8, "three")])
    assert (transcript.damage, transcript.loose) == ("", False)
    assert "three" in transcript.keys


@pytest.mark.parametrize(
    ("lines", "damage"),
    [
        ([*WHOLE[:3], *WHOLE[4:]], "before line 4 is number 3 missing: it has 4"),
        ([*WHOLE[:3], b"\0" * 512 + b"\n", *WHOLE[4:]], "before line 5 is number 3 missing: it has 4"),
        ([*WHOLE[:3], b"\xff\xfe{}\n", *WHOLE[4:]], "number 3 missing"),
        ([*WHOLE[:3], line(77, "event_msg"), *WHOLE[4:]], "number 3 missing: it has 77"),
        ([], "it is empty"),
        (WHOLE[1:], "its first line is not the head of a thread"),
        ([b"{broken\n", *WHOLE[1:]], "its first line is not the head of a thread"),
        ([line(0, "session_meta", id="another"), *WHOLE[1:]], "the transcript of another thread, another"),
        (
            [HEAD, *(line(n, "event_msg") for n in (2, 4, 6, 8, 10))],
            "it has 6 and 2 more places",
        ),
    ],
)
def test_provider_corrupt_damage_is_named_and_proves_nothing(
    tmp_path: Path, lines: list[bytes], damage: str
) -> None:
    transcript = read(tmp_path, lines)
    assert damage in transcript.damage
    assert not transcript.lacks("three")


def test_a_transcript_of_a_version_that_numbers_no_lines(tmp_path: Path) -> None:
    def plain(data: bytes) -> bytes:
        entry = json.loads(data)
        del entry["ordinal"]
        return json.dumps(entry).encode() + b"\n"

    lines = [plain(data) for data in WHOLE]
    assert read(tmp_path, lines).lacks("three")
    lines[2] = b"\0\0\n"
    assert read(tmp_path, lines).damage == "line 3 cannot be read"


def test_the_transcript_is_found_in_the_home_that_codex_has(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    assert find_rollout(tmp_path, THREAD) == path
    found = Codex().read_transcript(THREAD, {"CODEX_HOME": str(tmp_path)})
    assert found is not None
    assert found.path == path
    assert Codex().read_transcript("01a22a91-0000", {"CODEX_HOME": str(tmp_path)}) is None
    assert find_rollout(tmp_path, "../*") is None


def test_a_pipe_in_the_place_of_a_rollout_is_found_and_never_opened(tmp_path: Path) -> None:
    path = written(tmp_path, [])
    path.unlink()
    os.mkfifo(path)
    assert find_rollout(tmp_path, THREAD) == path
    with pytest.raises(OSError, match="no regular file"):
        read_rollout(path, THREAD)
    with pytest.raises(UsageError, match=r"no regular file$"):
        look_at(Codex(), THREAD, None, {"CODEX_HOME": str(tmp_path)})


# --- turns that were taken back -------------------------------------------------------------------

SEGMENT = "01a22a95-0000-77c1-a870-4335a64da083"


def goes_on(tmp_path: Path, lines: list[bytes], *, base: str = THREAD, keeps: int = 4) -> Path:
    """What codex writes after `thread/revert`: another file of the thread, that goes on from the first lines
    of the one before."""
    offset = sum(len(data) for data in WHOLE[:keeps])
    meta = {"thread_id": base, "end_ordinal_exclusive": keeps, "end_byte_offset": offset}
    path = written(tmp_path, WHOLE).with_name(f"rollout-2026-11-30T03-50-00-{THREAD}_{SEGMENT}.jsonl")
    head = line(keeps, "session_meta", id=THREAD, history_base=meta)
    path.write_bytes(b"".join([head, *lines]))
    return path


def test_a_thread_that_goes_on_in_another_file_is_found_there_with_what_it_goes_on_from(
    tmp_path: Path,
) -> None:
    """What was taken back had been stored all the same: it is never sent again as if it had not."""
    path = goes_on(tmp_path, [asked(5), stored(6, "three")])
    assert find_rollout(tmp_path, THREAD) == path
    transcript = read_rollout(path, THREAD)
    assert transcript.keys == {"one", "two", "three"}
    assert transcript.taken_back == {"two"}
    assert not transcript.damage
    assert not transcript.lacks("two")
    environ = {"CODEX_HOME": str(tmp_path)}
    held = [
        Codex().holds_prompt(SentPrompt(key, 1), THREAD, "/", environ)
        for key in ("one", "two", "three", "four")
    ]
    assert held == [True, False, True, False]
    assert "codex has taken turns back" in taken_back(path, 0)
    assert not taken_back(path, path.stat().st_size)


def test_a_thread_whose_earlier_file_is_gone_is_damaged(tmp_path: Path) -> None:
    path = goes_on(tmp_path, [], base="01a22a99-b5b5-77c1-a870-4335a64da083")
    assert "not there" in read_rollout(path, THREAD).damage


def test_turns_that_a_line_takes_back_count_no_more(tmp_path: Path) -> None:
    path = written(tmp_path, [*WHOLE, line(7, "event_msg", type="thread_rolled_back", num_turns=1)])
    transcript = read_rollout(path, THREAD)
    assert transcript.keys == {"one", "two"}
    assert transcript.taken_back == {"two"}
    before = sum(len(data) for data in WHOLE)
    assert taken_back(path, before) == "codex has taken the newest turn back"
    assert not taken_back(path, path.stat().st_size)
