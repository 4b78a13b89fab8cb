"""`outlast attach`, on a terminal and on a pipe."""

import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from tests.cli.support import Shell, hears, on_terminal, reader, until

from outlast.cli.conversation import Typed, Verb, understand

WAITS = "[[say:at work]][[touch:here]][[wait:go]][[gate:g:Which one?:left,right]]"


class Terminal:
    """A pseudo terminal with `outlast attach` on it."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.process = shell.start("attach", *arguments, stdout=slave, **on_terminal(slave))
        os.close(slave)
        self.text: Callable[[], str] = reader(self.master)

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def sees(self, text: str) -> None:
        until(lambda: text in self.text(), f"{text!r} on the terminal")

    def close(self) -> None:
        os.close(self.master)


@pytest.fixture
def owner(shell: Shell) -> "Iterator[subprocess.Popen[str]]":
    """A run of session `s` whose agent is in the middle of its turn; its terminal asks nobody."""
    master, slave = pty.openpty()
    process = shell.start("run", "-a", "scripted", "--session", "s", WAITS, **on_terminal(slave))
    os.close(slave)
    until((shell.folder / "here").exists, "the agent to be at work")
    yield process
    os.close(master)


def test_a_person_sees_the_running_turn_answers_sends_and_leaves(
    shell: Shell, owner: "subprocess.Popen[str]"
) -> None:
    terminal = Terminal(shell)
    terminal.sees("at work")
    (shell.folder / "go").touch()
    terminal.sees("asks (question")
    terminal.type(b"/send [[say:mine]]\n")
    terminal.type(b"2\n")
    terminal.sees("g=right")
    terminal.sees("queued: [[say:mine]]")
    terminal.sees("\n> [[say:mine]]")
    terminal.sees("mine")
    assert owner.wait(30) == 0
    terminal.type(b"/detach\n")
    terminal.sees("the session goes on")
    assert terminal.process.wait(30) == 0
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["done", "done"]
    terminal.close()


def test_ctrl_c_cancels_and_ctrl_d_leaves(shell: Shell, owner: "subprocess.Popen[str]") -> None:
    terminal = Terminal(shell, "s")
    terminal.sees("at work")
    os.kill(terminal.process.pid, 2)
    terminal.sees("cancelling")
    assert owner.wait(30) == 130
    terminal.sees(" cancelled: ")
    terminal.type(b"\x04")
    assert terminal.process.wait(30) == 0
    terminal.sees("to come back: outlast resume s")
    terminal.close()


def test_ctrl_c_leaves_a_session_in_which_nothing_runs(shell: Shell) -> None:
    """There is nothing to cancel, and nobody would be there to do it."""
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[say:hello]]").code == 0
    terminal = Terminal(shell, "s")
    terminal.sees("(/help lists what you can type)")
    terminal.type(b"/cancel\n")
    terminal.sees("no turn is running")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.process.wait(30) == 0
    terminal.sees("nothing runs that could be cancelled")
    assert "cancelling" not in terminal.text()
    assert shell.show("s")["commands"] == []
    terminal.close()


def test_ctrl_c_leaves_inputs_that_wait_for_an_owner_alone(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[say:hello]]").code == 0
    assert shell.run("send", "s", "[[say:more]]").code == 0
    terminal = Terminal(shell, "s")
    terminal.sees("(/help lists what you can type)")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.process.wait(30) == 0
    assert shell.show("s")["commands"] == []
    terminal.close()


def test_a_cancel_that_is_kept_for_the_next_owner_is_asked_for_once_and_then_ctrl_c_leaves(
    shell: Shell, owner: "subprocess.Popen[str]"
) -> None:
    owner.kill()
    owner.wait()
    terminal = Terminal(shell, "s")
    terminal.sees("at work")
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.sees("kept for the session's next owner")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.process.wait(30) == 0
    assert [command["command"] for command in shell.show("s")["commands"]] == ["cancel"]
    terminal.close()


def test_who_leaves_a_session_that_somebody_runs_comes_back_by_attach(
    shell: Shell, owner: "subprocess.Popen[str]"
) -> None:
    terminal = Terminal(shell, "s")
    terminal.sees("at work")
    terminal.type(b"/detach\n")
    assert terminal.process.wait(30) == 0
    terminal.sees("to come back: outlast attach s")
    terminal.close()
    second = shell.start("run", "--session", "s", "[[say:mine]]")
    until(lambda: shell.sessions()[0]["queued"] == 1, "the second input to be queued")
    until(lambda: hears(second.pid, signal.SIGTERM), "it to follow its turn")
    os.kill(second.pid, signal.SIGTERM)
    _, err = second.communicate(timeout=30)
    assert "to come back: outlast attach s" in err
    (shell.folder / "go").touch()
    until(lambda: shell.sessions()[0]["open_gates"] == 1, "the question")
    third = shell.run("run", "--session", "s", "[[say:more]]")
    assert third.code == 6
    assert "answer with `outlast answer s" in third.err
    assert "resume" not in third.err
    waited = shell.run("wait", "s")
    assert waited.code == 6
    assert "resume" not in waited.err


def test_ctrl_c_says_that_the_owner_is_stopped_and_a_second_one_leaves(
    shell: Shell, owner: "subprocess.Popen[str]"
) -> None:
    os.kill(owner.pid, signal.SIGSTOP)
    terminal = Terminal(shell, "s")
    terminal.sees("at work")
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.sees(f"is stopped: kill -CONT {owner.pid}, or outlast resume s --take-over")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.process.wait(30) == 0
    terminal.close()


def test_leaving_does_nothing_to_the_session(shell: Shell, owner: "subprocess.Popen[str]") -> None:
    terminal = Terminal(shell, "s")
    terminal.sees("at work")
    terminal.close()
    assert terminal.process.wait(30) == 0
    assert owner.poll() is None
    assert shell.sessions()[0]["status"] == "running"


def test_lines_from_a_pipe_are_sent_and_its_end_leaves(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "first")
    ran = shell.process("attach", "s", stdin=b"one line\nand another\n")
    assert ran.code == 0
    assert "nobody runs this session now: outlast resume s" in ran.err
    assert shell.run("resume", "s").out == "one line\nand another\n"


@pytest.mark.parametrize(
    ("line", "asked", "typed"),
    [
        ("hello /cancel", False, Typed(Verb.SEND, "hello /cancel")),
        ("  spaces  ", False, Typed(Verb.SEND, "  spaces  ")),
        ("2", True, Typed(Verb.ANSWER, "2")),
        ("/send 2", True, Typed(Verb.SEND, "2")),
        ("/send /etc/hosts is wrong", False, Typed(Verb.SEND, "/etc/hosts is wrong")),
        ("/cancel", True, Typed(Verb.CANCEL)),
        ("/detach", False, Typed(Verb.DETACH)),
        ("/etc/hosts", False, Typed(Verb.UNKNOWN, "/etc/hosts")),
        ("   ", False, Typed(Verb.NOTHING)),
    ],
)
def test_a_typed_line_means_one_thing(line: str, asked: bool, typed: Typed) -> None:
    assert understand(line, asked=asked) == typed
