"""The agent's own session is lost: what is sent meanwhile waits until a person has chosen."""

from __future__ import annotations

import os
import pty

import pytest
from tests.cli.support import Shell, on_terminal, reader, until

LOST = "[[1?error:session_missing:no such thread]][[2?say:gone on with]]"
QUEUED = "[[effect:{turn}]]"

pytestmark = pytest.mark.slow


def lost(shell: Shell, on_lost: str = "ask") -> None:
    """A session whose second turn found the agent's own session gone; `q1` and `q2` wait behind it."""
    text = shell.config.read_text("utf-8")
    shell.config.write_text(
        text.replace("[agents.scripted]\n", f'[agents.scripted]\non_lost = "{on_lost}"\n')
    )
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[session:]]").code == 0
    assert shell.run("run", "--session", "s", LOST).code == (6 if on_lost == "ask" else 1)
    for key in ("q1", "q2"):
        assert shell.run("send", "s", "--key", key, QUEUED).code == 0


def waits(shell: Shell) -> bool:
    return [turn["outcome"] for turn in shell.show("s")["turns"]][2:] == ["queued", "queued"]


def test_what_waits_for_a_choice_is_used_up_by_no_resume(shell: Shell) -> None:
    """It runs when the person has chosen, as turns of its own, once."""
    lost(shell)
    for _ in range(2):
        resumed = shell.run("resume", "s")
        assert resumed.code == 6, resumed
        assert "no such thread" in resumed.err
        assert waits(shell)
    assert shell.run("run", "--session", "s", "--key", "q3", "[[say:third]]").code == 6
    (gate,) = shell.show("s")["gates"]
    assert shell.run("answer", "s", gate["id"], "fresh").code == 0
    resumed = shell.run("resume", "s")
    assert resumed.code == 0, resumed
    assert "gone on with" in resumed.out
    assert shell.effects.read_text().splitlines() == ["q1", "q2"]
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["done"] * 5


@pytest.mark.parametrize("on_lost", ["refuse", "ask"])
def test_what_waits_behind_a_refused_loss_waits_for_a_retry(shell: Shell, on_lost: str) -> None:
    lost(shell, on_lost)
    if on_lost == "ask":
        (gate,) = shell.show("s")["gates"]
        assert shell.run("answer", "s", gate["id"], "refuse").code == 0
    for _ in range(2):
        resumed = shell.run("resume", "s")
        assert resumed.code == 1, resumed
        assert "outlast retry s" in resumed.err
        assert waits(shell)
    held = shell.run("run", "--session", "s", "--key", "q3", "[[say:third]]")
    assert held.code == 1
    assert "the agent's session is lost" in held.err
    assert "`outlast retry s` with --put-back" in held.err
    assert shell.run("cancel", "s", "q3").code == 0
    turn = shell.show("s")["turns"][1]["turn"]
    assert shell.run("retry", "s", turn, "--fresh").code == 0
    assert shell.run("resume", "s").code == 0
    assert shell.effects.read_text().splitlines() == ["q1", "q2"]


def test_of_a_lost_session_one_thing_is_advised_and_run_exits_as_resume_does(shell: Shell) -> None:
    """Nothing of it can be repeated: no agent was given it. None runs that could wait for the answer."""
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[session:]]").code == 0
    ran = shell.run("run", "--session", "s", "--key", "t", LOST)
    assert ran.code == shell.run("resume", "s").code == 6
    assert "the session waits for an answer: The agent's own session is lost" in ran.err
    (advice,) = (line for line in ran.err.splitlines() if "outlast " in line and "to come back" not in line)
    assert "answer with `outlast answer s" in advice
    again = shell.run("run", "--session", "s", "--key", "t", LOST)
    assert again.code == 6
    assert "outlast retry s t with --put-back, --as-is, --reseed or --fresh goes on with it" in again.err
    assert "outlast skip s t leaves it" in again.err
    for said in (ran.err, again.err):
        assert "may repeat" not in said


def test_where_a_lost_session_is_refused_it_is_said_how_to_choose(shell: Shell) -> None:
    lost(shell, "refuse")
    shown = shell.run("run", "--session", "s", "--key", "q4", LOST)
    assert shown.code == 1
    assert shown.err.count("`outlast retry s` with --put-back") == 1


@pytest.mark.parametrize("command", ["run", "resume"])
def test_where_a_person_is_asked_about_a_lost_session_nothing_is_said_after_the_prompt(
    shell: Shell, command: str
) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[session:]]").code == 0
    for key, prompt in (("t", LOST), ("q1", QUEUED)):
        assert shell.run("send", "s", "--key", key, prompt).code == 0
    words = ("run", "--session", "s", "--key", "t", LOST) if command == "run" else ("resume", "s")
    master, slave = pty.openpty()
    asked = shell.start(*words, **on_terminal(slave))
    os.close(slave)
    seen = reader(master)
    until(lambda: "answer: " in seen(), "the question on the terminal")
    assert "the queue is held" in seen()
    os.write(master, b"fresh\n")
    asked.communicate(timeout=30)
    assert "answer: fresh" in seen(), seen()
    assert "what to do" not in seen()
    assert asked.returncode == 0
    os.close(master)
