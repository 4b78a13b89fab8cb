"""The end of what an agent wrote to its standard error: bounded, without secrets, for people here only."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.cli.last_words import LINES, TAIL, WIDTH, last_words
from outlast.records.types import TurnAttemptStarted


def attempt(folder: Path, generation: str = "gen-000001") -> TurnAttemptStarted:
    return TurnAttemptStarted(
        attempt=1, folder=str(folder), generation=generation, machine="m", boot_id="b", processes=[]
    )


def said(folder: Path, text: str) -> list[str]:
    life = folder / "gen-000001"
    life.mkdir(exist_ok=True)
    (life / "stderr.log").write_text(text, "utf-8")
    return last_words(attempt(folder))


def test_only_the_last_lines_that_say_something(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}\n" for number in range(100))
    assert said(tmp_path, text) == [f"line {number}" for number in range(100 - LINES, 100)]


def test_long_lines_are_cut(tmp_path: Path) -> None:
    (line,) = said(tmp_path, "x" * (TAIL // 2))
    assert len(line) == WIDTH
    assert said(tmp_path, "x" * (TAIL * 2)) == []  # only the rest of a line that began before


def test_credential_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a secret, and what is one of ours whatever it looks like."""
    monkeypatch.setenv("ODD_API_KEY", "plain words that nobody would know")
    monkeypatch.setenv("ODD_NAME", "not a secret at all")
    words = said(
        tmp_path,
        "Authorization: Bearer abcdef123456\n"
        "used plain words that nobody would know here\n"
        "this is not a secret at all\n",
    )
    assert words == [
        "Authorization: Bearer [redacted]",
        "used [redacted] here",
        "this is not a secret at all",
    ]


def test_what_is_said_to_a_terminal_is_left_out_and_hides_no_credential(tmp_path: Path) -> None:
    coloured = (
        "\x1b[2m2026-11-30T11:00:00Z\x1b[0m \x1b[31mERROR\x1b[0m codex: \x1b]0;title\x07no login\n"
        "\x1b[2m\x1b[0m\n"
        "Authorization: Bearer \x1b[1mabcdef123456\x1b[0m\x1b(B\n"
    )
    assert said(tmp_path, coloured) == [
        "2026-11-30T11:00:00Z ERROR codex: no login",
        "Authorization: Bearer [redacted]",
    ]


def test_a_life_that_left_nothing_has_no_words(tmp_path: Path) -> None:
    assert last_words(attempt(tmp_path)) == []
    assert last_words(attempt(tmp_path, "../../etc")) == []
