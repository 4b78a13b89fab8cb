"""`outlast plan` of a session in which commands wait for an owner: what each leads to, and what runs then."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.cli.support import Shell, is_alive, until

import outlast
from outlast.store.contract import Admission
from outlast.turns.requests import AnswerRequest, encode

pytestmark = pytest.mark.slow

CUT_OFF = "[[1?effect:{pid}]][[1?touch:here]][[1?wait:never]][[say:one again]]"
USED_UP = "[[1?error:quota_exhausted:used up]][[say:one]]"
ASKS = "[[gate:g:May I write?:allow_once,reject_once]]"


def cut_off(shell: Shell, key: str = "h1") -> None:
    """Session `s`, whose turn a crash of owner and agent has cut off; it is closed."""
    owner = shell.start("run", "-a", "scripted", "--session", "s", "--key", key, CUT_OFF)
    until((shell.folder / "here").exists, "the agent to be at work")
    owner.kill()
    owner.communicate(timeout=30)
    agent = int(shell.effects.read_text())
    os.kill(agent, signal.SIGKILL)
    until(lambda: not is_alive(agent), "the agent's end")
    until(lambda: shell.json("plan", "s")["turns"][0]["action"] == "interrupt", "that it is known")
    shell.run("resume", "s")
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["interrupted"]


def planned(shell: Shell) -> str:
    ran = shell.run("plan", "s")
    assert ran.code == 0, ran
    return ran.out


def test_a_retry_that_waits_is_planned_and_is_no_input(shell: Shell) -> None:
    cut_off(shell)
    assert shell.run("retry", "s", "h1").code == 0
    text = planned(shell)
    assert "decided, and not yet carried out: retry h1 by cli: turn h1 runs again\n" in text, text
    assert "nothing is queued\nthen these turns run: h1\n" in text, text
    assert "inputs that wait" not in text
    plan = shell.json("plan", "s")
    (command,) = plan["commands"]
    assert (command["command"], command["turn"], command["result"]) == ("retry", "h1", "done")
    assert (plan["inputs"], plan["runs"], plan["inbox"], plan["queued"]) == (0, ["h1"], 1, 0)
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out) == (0, "one again\n"), resumed


def test_a_parked_turn_is_named_and_a_skip_that_waits_lets_only_inputs_run(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "--key", "fx", USED_UP).code == 1
    text = planned(shell)
    assert "turn fx: parked: " in text, text
    assert "`outlast retry s fx` runs it again" in text, text
    assert [parked["turn"] for parked in shell.json("plan", "s")["parked"]] == ["fx"]
    assert shell.run("resume", "s").code == 1
    assert shell.run("send", "s", "--key", "two", "[[say:two]]").code == 0
    assert shell.run("skip", "s", "fx").code == 0
    text = planned(shell)
    assert "skip fx by cli: turn fx is left as it is" in text, text
    assert "inputs that wait: 1 (1 not accepted yet): run in their order\n" in text, text
    plan = shell.json("plan", "s")
    assert (plan["inputs"], plan["runs"], plan["parked"]) == (1, ["two"], [])
    assert shell.run("resume", "s").out == "two\n"


def test_cancels_that_wait_are_no_inputs_and_the_queue_goes_on_after_them(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[say:one]]").code == 0
    for key in ("two", "three"):
        assert shell.run("send", "s", "--key", key, "[[say:later]]").code == 0
    asyncio.run(cancelled_twice(shell))
    text = planned(shell)
    held = "cancel by cli: no turn was running; the queue is held (2 waiting)"
    assert text.count(f"{held}; the resume then lets the queue go on") == 2, text
    assert "inputs that wait: 2 (2 not accepted yet): run in their order\n" in text, text
    assert text.endswith("then these turns run: two, then three\n")
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out) == (0, "later\nlater\n"), resumed


async def cancelled_twice(shell: Shell) -> None:
    """As by `/cancel` of a terminal that is attached to a session whose owner has just died."""
    async with outlast.connect(shell.url) as client:
        for _ in range(2):
            assert (await client.session("s").cancel(actor="cli")).result == "queued"


def asked(shell: Shell) -> str:
    """Session `s`, whose agent waits for an answer without an owner; the question's id."""
    assert shell.run("run", "-a", "scripted", "--session", "s", "--approve", "ask", ASKS).code == 6
    (gate,) = shell.show("s")["gates"]
    found: str = gate["id"]
    return found


def test_an_answer_that_waits_is_planned_with_its_question(shell: Shell) -> None:
    gate = asked(shell)
    assert shell.run("answer", "s", gate, "allow_once").code == 0
    text = planned(shell)
    assert f"gate {gate}: keep: its agent lives and is given the answer allow_once" in text, text
    assert "waits for the answer" not in text
    assert f"answer {gate} allow_once by " in text
    assert "nothing is queued\n" in text
    assert shell.run("resume", "s").out == "g=allow_once\n"


def test_the_same_answer_twice_is_one_answer_and_nobody_is_alarmed(shell: Shell) -> None:
    gate = asked(shell)
    for _ in range(2):
        kept = shell.run("answer", "s", gate, "allow_once")
        assert (kept.code, "kept for" in kept.out) == (0, True), kept
    assert len(shell.show("s")["commands"]) == 1
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out) == (0, "g=allow_once\n"), resumed
    assert "not carried out" not in resumed.err


def test_answers_that_lost_a_race_are_held_against_the_one_that_counted(shell: Shell) -> None:
    """Two people answered at the same moment, and an owner was killed after it had taken the first."""
    gate = asked(shell)
    assert shell.run("answer", "s", gate, "allow_once").code == 0
    assert shell.run("resume", "s").code == 0
    asyncio.run(answered_late(shell, gate))
    text = planned(shell)
    assert "allow_once by ann: the question has that answer already" in text, text
    assert "reject_once by bob: not carried out, it was answered allow_once by " in text, text
    resumed = shell.run("resume", "s")
    assert "not carried out: answer: it was answered allow_once by " in resumed.err, resumed
    assert resumed.err.count("not carried out") == 1


async def answered_late(shell: Shell, gate: str) -> None:
    async with outlast.connect(shell.url) as client:
        for by, choice in (("ann", "allow_once"), ("bob", "reject_once")):
            said = encode(AnswerRequest(gate=gate, choice=choice, by=by))
            await client.store.admit(Admission("s", by, "answer", said))
