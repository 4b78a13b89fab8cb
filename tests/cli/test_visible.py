"""What an agent, a session's name or a program's message holds is shown on a terminal, and never obeyed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import pytest
from tests.cli.support import Shell

from outlast.cli.failures import failure_of
from outlast.cli.following import waiting_error
from outlast.cli.gates import OpenQuestion
from outlast.cli.output import Channel, Screen, exact, visible
from outlast.cli.text import question_lines
from outlast.errors import UsageError
from outlast.records.types import Choice

OBEYED = "\x1b]0;mine\x07\x1b[2J\x9b2J"
TURNED = "\N{RIGHT-TO-LEFT OVERRIDE}fdp.exe\N{POP DIRECTIONAL FORMATTING}\N{RIGHT-TO-LEFT ISOLATE}"
UNSEEN = "\N{ZERO WIDTH SPACE}\N{ZERO WIDTH NO-BREAK SPACE}\N{LEFT-TO-RIGHT MARK}\N{WORD JOINER}\N{TAG SPACE}"
FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}"


@pytest.mark.parametrize("show", [visible, exact])
@pytest.mark.parametrize("text", [OBEYED, TURNED, UNSEEN, "\N{LINE SEPARATOR}", "\N{SOFT HYPHEN}"])
def test_what_moves_turns_or_hides_text_is_seen(show: Callable[[str], str], text: str) -> None:
    shown = show(f"a{text}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert show(shown) == shown


def test_letters_and_emoji_stay_joined_but_for_what_is_to_be_decided() -> None:
    assert visible(f"{FAMILY}\tdone\r\n") == f"{FAMILY}\tdone\n"
    assert exact(FAMILY) == "\N{MAN}\\u200d\N{WOMAN}"
    assert exact("one\rtwo\n") == "one\\x0dtwo\\x0a"
    assert exact("caf\u00e9 \u05d0 \N{ROCKET}") == "caf\u00e9 \u05d0 \N{ROCKET}"


def asked(*choices: Choice) -> OpenQuestion:
    return OpenQuestion("g; id", "permission", f"run rm{UNSEEN} x{OBEYED}\r\n  1  Refuse", choices)


def test_the_command_that_answers_holds_nothing_that_a_shell_or_a_terminal_obeys() -> None:
    """It is made to be pasted, and the agent chose the ids in it."""
    ids = ["allow", "reboot", "$(id)", "a;id", f"x{OBEYED}{TURNED}"]
    error = waiting_error("a b", asked(*(Choice(id=name, label=name) for name in ids)))
    assert error.hint is not None
    lines = failure_of(error).as_text().split("\n")
    assert len(lines) == 1 + len(ids), "a line for each choice, whatever is in it"
    assert all(line.isprintable() for line in lines), lines
    assert exact(error.message + error.hint) == error.message + error.hint
    command = error.hint.split("`")[1]
    words = shlex.split(command)
    assert words[:4] == ["outlast", "answer", "a b", "g; id"]
    assert words[4].split("|")[:4] == ids[:4]
    assert len(words) == 5
    one = waiting_error("s", asked(Choice(id="allow", label="allow")))
    assert one.hint is not None
    assert "outlast answer s 'g; id' allow`" in one.hint


def test_no_line_of_a_question_is_taken_for_a_choice() -> None:
    lines = question_lines(asked(Choice(id="y", label=f"Allow{TURNED}\n  2  Refuse")))
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines), lines
    assert [line[:4] for line in lines[1:]] == ["  | ", "  | ", "  1 "]


def test_every_line_that_is_printed_is_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever prints it: nobody has to think of that."""
    screen = Screen({})
    for say in (screen.out.line, screen.note):
        say(f"one{OBEYED}")
        say(screen.out.bold(f"two{TURNED}"))
    printed = capsys.readouterr()
    for line in [*printed.out.splitlines(), *printed.err.splitlines()]:
        assert line.isprintable(), line


def test_style_is_kept_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    channel = Channel(sys.stdout, {})
    channel.coloured = True
    channel.line(channel.dim(f"so{OBEYED}"))
    printed = capsys.readouterr().out
    assert printed == f"\x1b[2m{visible(f'so{OBEYED}')}\x1b[0m\n"


@pytest.mark.parametrize("name", [TURNED, OBEYED])
def test_an_error_is_told_without_obeying_what_it_names(shell: Shell, name: str) -> None:
    for command in (("show", name), ("run", "-a", name, "hi"), (name,), ("--debug", "show", name)):
        ran = shell.run(*command)
        assert ran.code in (2, 3)
        assert all(line.isprintable() for line in ran.err.splitlines()), ran
    told = failure_of(UsageError(f"no{name}", hint=f"give{name}")).as_text()
    assert told.isprintable()


def test_a_question_of_an_agent_is_told_without_being_obeyed(shell: Shell) -> None:
    prompt = f"[[gate:q:rm{UNSEEN}{TURNED}:reboot{TURNED},$(id)]]"
    ran = shell.run("run", "-a", "scripted", "--session", "s", prompt)
    assert (ran.code, "\\u200b" in ran.err, "\\u202e" in ran.err) == (6, True, True), ran
    for told in (ran.err, shell.run("show", "s").out, shell.run("wait", "s").err):
        assert all(line.isprintable() for line in told.splitlines()), told
        assert "$(id)" in told
