"""What signals and a terminal that goes away do to `outlast run`."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.support import Shell, interrupt, on_terminal, reader, until

from outlast.cli.owners import process_state

WAITS = "[[say:at work]][[touch:here]][[wait:go]][[effect:{turn}]]"


def working(shell: Shell, *more: str, prompt: str = WAITS) -> "subprocess.Popen[str]":
    """A run whose agent is in the middle of its turn, in a session of the label `s`."""
    process = shell.start("run", "-a", "scripted", "--session", "s", *more, prompt)
    until((shell.folder / "here").exists, "the agent to be at work")
    return process


def status(shell: Shell) -> str:
    (row,) = shell.sessions()
    text: str = row["status"]
    return text


def test_cancel_then_run(shell: Shell) -> None:
    """Ctrl-C cancels the turn, and what is queued behind it waits until a person says so."""
    process = working(shell)
    shell.run("send", "s", "[[effect:queued]]")
    interrupt(process)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the queue is held; the next input or `outlast resume s` lets it go on" in err
    shown = shell.show("s")
    assert [turn["outcome"] for turn in shown["turns"]] == ["cancelled", "queued"]
    assert status(shell) == "parked"
    waited = shell.run("wait", "s")
    assert waited.code == 1
    assert "holds its queue (1 waiting)" in waited.err
    assert "outlast resume s" in waited.err
    assert not shell.effects.exists()
    assert shell.run("resume", "s").code == 0
    assert shell.effects.read_text() == "queued\n"


def test_json_ends_with_the_outcome_cancelled(shell: Shell) -> None:
    process = working(shell, "--json")
    interrupt(process)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.splitlines()[-1].startswith('{"outcome":"cancelled"')


def test_a_second_ctrl_c_leaves_at_once_and_the_cancel_stays_asked_for(shell: Shell) -> None:
    """The agent hears of the cancel as soon as it is asked for: nobody is told that it goes on."""
    process = working(shell, prompt="[[ignore-term]]" + WAITS)
    interrupt(process)
    assert process.stderr is not None
    assert "Ctrl-C again" in process.stderr.readline()
    interrupt(process)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "left before the cancel was carried out; it stays asked for" in err
    assert err.splitlines()[-1] == "to come back: outlast resume s"
    assert "goes on" not in err
    assert shell.run("resume", "s").code == 130
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["cancelled"]


def test_sigterm_leaves_the_agent_at_work_and_resume_finishes_the_same_turn(shell: Shell) -> None:
    process = working(shell)
    interrupt(process, signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[-2:] == [
        "outlast: left before the end; the agent goes on under its shim",
        "to come back: outlast resume s",
    ]
    assert status(shell) == "detached"
    (shell.folder / "go").touch()
    ran = shell.run("resume", "--json", "s")
    assert ran.code == 0, ran
    assert ran.lines[-1]["outcome"] == "done"
    assert len(shell.effects.read_text().splitlines()) == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_who_leaves_while_a_retry_is_waited_for_is_told_that_nothing_goes_on(
    shell: Shell, as_json: bool
) -> None:
    process = shell.start(
        "run", "-a", "scripted", "--session", "s", *(["--json"] if as_json else []),
        "[[fail:rate_limited:600:slow down]]",
    )  # fmt: skip
    until(lambda: bool(shell.sessions()) and "waits" in str(shell.show("s")["turns"]), "the wait")
    interrupt(process, signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    *_, left, way_back = err.splitlines()
    assert "outlast resume s" in way_back
    assert "left before the end; turn " in left
    assert "waits until " in left
    assert "nothing goes on before `outlast resume s`" in left
    assert "shim" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_right_after_the_input_is_stored_leaves_with_the_way_back(shell: Shell, number: int) -> None:
    """The process stands still between the commit and everything else, and is told to leave there."""
    shell.environ |= {"OUTLAST_FAULTS_TESTING": "1", "OUTLAST_FAULTS": "store.admit.after_commit=stop"}
    process = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until(lambda: process_state(process.pid) == "T", "the input to be stored")
    for each in (number, signal.SIGCONT):
        interrupt(process, each)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "to come back: outlast resume s" in err) == (130, True), err
    shown = shell.show("s")
    left = [turn["outcome"] for turn in shown["turns"] if turn["outcome"] != "cancelled"] or shown["queue"]
    assert bool(left) == (number == signal.SIGTERM), "Ctrl-C cancels what it was sent for"


def test_a_hung_up_terminal_does_not_end_the_work(shell: Shell, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = shell.start(
        "run", "-a", "scripted", "--session", "s", WAITS,
        stdout=slave, **on_terminal(slave),
    )  # fmt: skip
    os.close(slave)
    until((shell.folder / "here").exists, "the agent to be at work")
    shell.run("send", "s", "[[effect:queued]]")
    os.close(master)  # the kernel sends SIGHUP; from now on writing to the terminal fails
    (shell.folder / "go").touch()
    assert process.wait(30) == 0
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["done", "done"]
    assert len(shell.effects.read_text().splitlines()) == 2
    assert status(shell) == "idle"


def test_a_terminal_that_closes_at_a_question_leaves_the_agent_waiting_for_the_answer(shell: Shell) -> None:
    master, slave = pty.openpty()
    process = shell.start(
        "run", "-a", "scripted", "--session", "s", "[[gate:g:Which one?:left,right]]",
        stdout=slave, **on_terminal(slave),
    )  # fmt: skip
    os.close(slave)
    seen = reader(master)
    until(lambda: "answer:" in seen(), "the question")
    os.close(master)
    assert process.wait(30) == 6
    (gate,) = shell.show("s")["gates"]
    assert shell.json("answer", "s", gate["id"], "left")["result"] == "queued"
    assert shell.run("resume", "s").out == "g=left\n"


def test_nohup_is_respected(shell: Shell) -> None:
    process = shell.start("run", "-a", "scripted", "--session", "s", WAITS, preexec_fn=_ignore_hangup)
    until((shell.folder / "here").exists, "the agent to be at work")
    interrupt(process, signal.SIGHUP)
    (shell.folder / "go").touch()
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "at work\n")


def _ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
