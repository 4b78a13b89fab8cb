"""Every exit code of the contract (docs/cli.md), and the code that `--json` gives the error."""

import sqlite3

import pytest
from tests.cli.support import Shell, until

WAITS = "[[touch:here]][[wait:go]]"


def test_0_and_1_are_how_the_turn_ended(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[say:fine]]").code == 0
    assert shell.run("wait", "s").code == 0
    failed = shell.run("run", "--session", "s", "[[signal:9]]")
    assert failed.code == 1
    assert shell.run("wait", "s").code == 1


def test_a_failure_says_what_to_do_about_it(shell: Shell) -> None:
    ran = shell.run("run", "-a", "scripted", "[[signal:9]]")
    lines = ran.err.splitlines()
    failed = next(number for number, line in enumerate(lines) if "crashed by signal 9" in line)
    assert lines[failed + 1].startswith("what to do: Send the next message")


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


def test_4_names_the_owner_and_what_the_restore_failed_at(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    ran = shell.run("resume", "--json", "s")
    assert (ran.code, ran.error["error"], ran.error["kind"]) == (4, "lease_held", "lease")
    assert f"pid {owner.pid}" in ran.error["message"]
    (shell.folder / "go").touch()
    assert owner.wait(30) == 0


def test_4_is_a_key_that_was_used_for_another_text(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "--key", "K", "one")
    ran = shell.run("send", "--json", "--key", "K", "s", "two")
    assert (ran.code, ran.error["error"]) == (4, "request_collision")


@pytest.mark.parametrize("command", ["show", "tail", "plan", "resume"])
def test_5_is_a_journal_that_contradicts_itself(shell: Shell, command: str) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "one")
    with sqlite3.connect(shell.state / "outlast.db") as database:
        database.execute("UPDATE record SET at = at + 1 WHERE seq = 4")
    database.close()
    ran = shell.run(command, "--json", "s")
    assert (ran.code, ran.error["error"]) == (5, "integrity"), ran
    assert "record 4" in ran.error["message"]


def test_6_is_a_question_that_waits(shell: Shell) -> None:
    ran = shell.run("run", "--json", "-a", "scripted", "--session", "s", "[[gate:g:Which one?:left,right]]")
    assert (ran.code, ran.error["error"]) == (6, "waiting_for_answer")
    assert shell.run("wait", "s").code == 6
    assert shell.run("resume", "s").code == 6


def test_130_is_a_cancelled_turn(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    shell.run("cancel", "s")
    assert owner.wait(30) == 130
    assert shell.run("wait", "s").code == 130


def test_going_on_with_a_session_that_needed_no_mending_is_not_commented_on(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "[[say:one]]")
    ran = shell.run("run", "-c", "[[say:two]]")
    assert (ran.code, ran.out) == (0, "two\n")
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("to come back: ")
