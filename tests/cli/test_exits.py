"""The exit codes of the contract (docs/cli.md), and the code that `--json` gives the error. What needs a
living owner is beside its like: 4 in test_resume, 6 in test_gates, 130 in test_signals."""

import sqlite3

import pytest
from tests.cli.support import Shell


def test_0_and_1_are_how_the_turn_ended(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[say:fine]]").code == 0
    assert shell.run("wait", "s").code == 0
    failed = shell.run("run", "--session", "s", "[[signal:9]]")
    assert failed.code == 1
    assert shell.run("wait", "s").code == 1


def test_a_failure_says_what_to_do_about_it(shell: Shell) -> None:
    ran = shell.run("run", "-a", "scripted", "[[signal:9]]")
    assert "what to do: Send the next message" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [("run",), ("run", "--session", "s", "-c", "x"), ("show",), ("tail", "s", "--after", "-1"), ("nonsense",),
     ("run", "--nonsense", "x"), ("run", "-a", "scripted", "--workspace", "missing", "x")],
)  # fmt: skip
def test_2_is_a_wrong_call(shell: Shell, arguments: tuple[str, ...]) -> None:
    ran = shell.run(*arguments, "--json")
    assert (ran.code, ran.error["error"]) == (2, "usage"), ran


def test_3_is_what_is_not_there(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "fine")
    for arguments, code in (
        (("show", "x"), "session_not_found"),
        (("retry", "s", "x"), "turn_not_found"),
        (("answer", "s", "x", "yes"), "gate_not_found"),
        (("run", "-a", "x", "hello"), "agent_not_found"),
        (("run", "-c", "--workspace", "/", "hello"), "session_not_found"),
    ):
        ran = shell.run(*arguments, "--json")
        assert (ran.code, ran.error["error"]) == (3, code), ran


def test_4_is_a_key_that_was_used_for_another_text(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "--key", "K", "one")
    ran = shell.run("send", "--json", "--key", "K", "s", "two")
    assert (ran.code, ran.error["error"]) == (4, "request_collision")


def test_5_is_a_journal_that_contradicts_itself(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "one")
    with sqlite3.connect(shell.state / "outlast.db") as database:
        database.execute("UPDATE record SET at = at + 1 WHERE seq = 4")
    database.close()
    for command in ("show", "tail", "plan", "resume"):
        ran = shell.run(command, "--json", "s")
        assert (ran.code, ran.error["error"]) == (5, "integrity"), ran
        assert "record 4" in ran.error["message"]


def test_going_on_with_a_session_that_needed_no_mending_is_not_commented_on(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "[[say:one]]")
    ran = shell.run("run", "-c", "[[say:two]]")
    assert (ran.code, ran.out) == (0, "two\n")
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("to come back: ")
