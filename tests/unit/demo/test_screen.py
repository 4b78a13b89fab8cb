"""The demo's lines are the same on a terminal, in a pipe and in a log; only a terminal sees colours."""

import io
import os
from collections.abc import Mapping

import pytest

from outlast.demo.screen import Screen, bar

TERMINAL = {"TERM": "xterm-256color"}


def said_to_terminal(environ: Mapping[str, str]) -> str:
    ours, theirs = os.openpty()
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as stream:
            speak(Screen(stream, environ))
            return os.read(ours, 65536).decode()
    finally:
        os.close(ours)


def said_to_pipe(encoding: str) -> str:
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding=encoding)
    speak(Screen(stream, TERMINAL))
    return data.getvalue().decode(encoding)


def speak(screen: Screen) -> None:
    screen.title("a title")
    screen.command("kill -9 1", "the agent", kind="kill")
    screen.line("good", "it came back", bar=bar(2, 3))


def test_a_terminal_sees_colours_and_no_cursor_ever_moves() -> None:
    said = said_to_terminal(TERMINAL)
    assert "\x1b[1m" in said
    assert all(code.split("m")[0].isdigit() for code in said.split("\x1b[")[1:])


@pytest.mark.parametrize("environ", [{**TERMINAL, "NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_a_terminal_that_wants_no_colours_gets_none(environ: Mapping[str, str]) -> None:
    assert "\x1b" not in said_to_terminal(environ)


def test_a_pipe_gets_plain_text() -> None:
    said = said_to_pipe("utf-8")
    assert "\x1b" not in said
    assert "✗ kill -9 1   the agent" in said
    assert said.rstrip().endswith("■■□")


def test_a_stream_that_cannot_say_the_signs_gets_others() -> None:
    said = said_to_pipe("ascii")
    assert "x kill -9 1   the agent" in said
    assert said.rstrip().endswith("##.")


def test_a_long_line_is_wrapped_under_its_text() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    Screen(stream, {}).line("fact", "word " * 40)
    stream.seek(0)
    first, *rest = stream.read().splitlines()
    assert len(first) <= 80
    assert rest
    assert all(line.startswith(" " * 10 + "word") for line in rest)
