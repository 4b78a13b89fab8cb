"""Questions that an agent asks, from the shell."""

import asyncio
import json
import os
import pty
import sys
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.cli.support import Shell, on_terminal, reader, until

import outlast
from outlast.runtime.handles import Answer

PERMISSION = "[[gate:g:May I write?:allow_once,reject_once]]"
QUESTION = "[[gate:g:Which one?:left,right]]"


def gate_of(shell: Shell, session: str) -> dict[str, Any]:
    (gate,) = shell.show(session)["gates"]
    found: dict[str, Any] = gate
    return found


@pytest.mark.parametrize(("approve", "answer"), [("all", "allow_once"), ("never", "reject_once")])
def test_approve_decides_permissions(shell: Shell, approve: str, answer: str) -> None:
    ran = shell.run("run", "-a", "scripted", "--approve", approve, PERMISSION)
    assert (ran.code, ran.out) == (0, f"g={answer}\n"), ran


@pytest.mark.parametrize(("approve", "answer"), [("all", "allow_once"), ("never", "reject_once")])
def test_resume_decides_permissions_as_run_does(shell: Shell, approve: str, answer: str) -> None:
    """Also those that were open before: whoever restarts unattended work has no other way."""
    twice = PERMISSION + "[[gate:h:And again?:allow_once,reject_once]]"
    assert shell.run("run", "-a", "scripted", "--session", "s", twice).code == 6
    ran = shell.run("resume", "s", "--approve", approve)
    assert (ran.code, ran.out) == (0, f"g={answer}\nh={answer}\n"), ran


def test_gate_dead(shell: Shell) -> None:
    """A question without anybody makes run exit 6; it can be answered, and resume goes on with the answer."""
    ran = shell.run("run", "-a", "scripted", "--session", "s", "--approve", "all", QUESTION)
    assert ran.code == 6
    assert "the agent waits for an answer: Which one?" in ran.err
    assert "outlast answer s" in ran.err
    (row,) = shell.sessions()
    assert (row["status"], row["open_gates"]) == ("detached", 1)
    gate = gate_of(shell, "s")
    assert [choice["id"] for choice in gate["choices"]] == ["left", "right"]

    wrong = shell.run("answer", "s", gate["id"], "up")
    assert wrong.code == 2
    assert "left, right" in wrong.err
    assert shell.json("answer", "s", gate["id"][:8], "right")["result"] == "queued"
    assert shell.run("answer", "s", gate["id"], "right").code == 0
    other = shell.run("answer", "s", gate["id"], "left")
    assert other.code == 4
    assert "the answer right waits for the session's next owner" in other.out
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out) == (0, "g=right\n")
    late = shell.run("answer", "--json", "s", gate["id"][:8], "left")
    assert (late.code, late.lines[0]["result"]) == (4, "taken")
    never = shell.run("answer", "--json", "s", "no-such-gate", "left")
    assert (never.code, never.error["error"]) == (3, "gate_not_found")


def test_of_two_contrary_answers_at_once_to_nobody_one_is_kept_and_the_other_told_so(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", QUESTION).code == 6
    gate = gate_of(shell, "s")["id"]

    async def all_at_once() -> list[Answer]:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(outlast.connect(shell.url)) for _ in range(6)]
            people = enumerate(zip(clients, ("left", "right") * 3, strict=True))
            said = (client.session("s").answer(gate, choice, by=f"{i}") for i, (client, choice) in people)
            return await asyncio.gather(*said)

    answers = asyncio.run(all_at_once())
    assert {answer.result for answer in answers} == {"queued", "taken"}
    (first,) = {(answer.by, answer.choice) for answer in answers if answer.result == "taken"}
    assert answers[int(first[0] or "")].result == "queued"
    late = shell.run("answer", "s", gate, "left" if first[1] == "right" else "right")
    assert (late.code, f"by {first[0]}; the answer {first[1]} waits" in late.out) == (4, True), late
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out) == (0, f"g={first[1]}\n"), resumed
    after = shell.run("answer", "s", gate, "left" if first[1] == "right" else "right")
    assert (after.code, f"the answer was {first[1]}" in after.out) == (4, True), after


def test_resume_of_a_session_that_waits_waits_on(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", QUESTION)
    again = shell.run("resume", "--json", "s")
    assert (again.code, again.error["error"]) == (6, "waiting_for_answer")
    assert shell.sessions()[0]["open_gates"] == 1
    joined = shell.run("run", "--session", "s", "[[say:behind it]]")
    assert joined.code == 6
    assert shell.sessions()[0]["queued"] == 1


def test_json_tells_the_wait_as_an_error_with_the_session(shell: Shell) -> None:
    ran = shell.run("run", "--json", "-a", "scripted", "--session", "s", QUESTION)
    assert ran.code == 6
    assert (ran.error["error"], ran.error["session"]) == ("waiting_for_answer", "s")
    assert ran.lines[-2]["type"] == "GateOpened"
    gate = gate_of(shell, "s")["id"]
    assert ran.lines[-1] == {"outcome": "waiting", "stop_reason": None, "text": "", "gate": gate}


def test_a_block_that_ends_at_a_question_ends_with_what_its_turn_has_said_so_far(shell: Shell) -> None:
    ran = shell.run("run", "--json", "-a", "scripted", "--session", "s", f"[[say:so far]]{QUESTION}")
    again = shell.run("resume", "--json", "s")
    for each in (ran, again):
        assert (each.code, each.lines[-1]["outcome"], each.lines[-1]["text"]) == (6, "waiting", "so far"), (
            each
        )
        assert each.lines[0]["turn"] == ran.lines[0]["turn"]
    behind = shell.run("run", "--json", "--session", "s", "[[say:behind it]]")
    assert (behind.code, behind.lines[-1]["outcome"], behind.lines[-1]["text"]) == (6, "waiting", "")


def test_wait_exits_6_at_a_question_and_0_when_all_is_done(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", QUESTION)
    assert shell.run("wait", "s").code == 6
    shell.run("answer", "s", gate_of(shell, "s")["id"], "left")
    assert shell.run("resume", "s").code == 0
    assert shell.json("wait", "s") == {"outcome": "done", "stop_reason": "end_turn", "text": "g=left"}


def test_an_answer_that_waits_for_an_owner_is_shown_and_not_asked_for_again(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", QUESTION)
    gate = gate_of(shell, "s")["id"]
    shell.run("answer", "s", gate, "left")
    shown = shell.run("show", "s").out
    assert "Which one?\n      1  left\n      2  right\n      answered left by" in shown
    assert "detached (1 asked, 1 decided)" in shell.run("ls").out
    assert f"decided, and not yet carried out: nobody owns the session\n  answer {gate} left by" in shown
    (waiting,) = shell.show("s")["commands"]
    assert (waiting["command"], waiting["gate"], waiting["choice"]) == ("answer", gate, "left")
    waited = shell.run("wait", "s")
    assert (waited.code, "nobody runs it" in waited.err, "outlast resume s" in waited.err) == (1, True, True)
    other = shell.run("answer", "s", gate, "right")
    assert (other.code, "outlast resume s" in other.out) == (4, True)
    assert shell.run("resume", "s").out == "g=left\n"
    assert shell.show("s")["commands"] == []


ASKS = """
import json, sys
prompt = json.loads(sys.stdin.readline())
always = "Always allow: Bash(echo c *) (kept in the project's local settings)"
choices = [
    {"id": "allow_once", "label": "Allow", "kind": "allow_once"},
    {"id": "allow_always", "label": always, "kind": "allow_always"},
    *({"id": f"more{n}", "label": "x" * 1000, "kind": "reject_once"} for n in range(30)),
]
gate = {"type": "gate", "id": "g", "question": "echo c?", "choices": choices}
print(json.dumps(gate | {"nonce": prompt["nonce"]}), flush=True)
sys.stdin.readline()
print(json.dumps({"type": "done", "nonce": prompt["nonce"]}), flush=True)
"""


def test_what_a_choice_stands_for_is_said_wherever_an_answer_is_asked_for(shell: Shell) -> None:
    """Its id alone does not tell what an "always" allows. Each has a line of its own, within bounds."""
    script = shell.folder / "asks.py"
    script.write_text(ASKS)
    shell.agents(asks=(sys.executable, str(script)))
    ran = shell.run("run", "-a", "asks", "--session", "s", "go")
    assert ran.code == 6, ran
    for said in (ran.err, shell.run("show", "s").out, shell.run("wait", "s").err):
        lines = [line.strip() for line in said.splitlines()]
        always = "Always allow: Bash(echo c *) (kept in the project's local settings)"
        assert f"2  allow_always  {always}" in lines, said
        assert "1  allow_once  Allow" in lines
        assert "… and 12 more: outlast show s --json" in lines
        assert max(map(len, lines)) < 700
    as_json = shell.run("wait", "--json", "s")
    assert [set(json.loads(line)) for line in as_json.err.splitlines()] == [
        {"error", "message", "hint", "session"}
    ]


def test_an_answer_from_elsewhere_reaches_a_running_session(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", QUESTION, **_terminal_input())
    until(lambda: bool(_gates(shell)), "the question to be open")
    assert shell.json("answer", "s", gate_of(shell, "s")["id"], "right")["result"] == "answered"
    out, _ = owner.communicate(timeout=30)
    assert (owner.returncode, out) == (0, "g=right\n")


def test_a_person_at_the_terminal_is_asked(shell: Shell) -> None:
    master, slave = pty.openpty()
    owner = shell.start(
        "run", "-a", "scripted", "--session", "s", QUESTION,
        **on_terminal(slave),
    )  # fmt: skip
    os.close(slave)
    seen = reader(master)
    until(lambda: "answer:" in seen(), "the question on the terminal")
    os.write(master, b"sideways\n")
    until(lambda: "none of the choices" in seen(), "the second asking")
    os.write(master, b"2\n")
    out, _ = owner.communicate(timeout=30)
    assert (owner.returncode, out) == (0, "g=right\n")
    assert "1  left" in seen()
    os.close(master)


def _gates(shell: Shell) -> list[Any]:
    rows = shell.sessions()
    return [row for row in rows if row["open_gates"]]


def _terminal_input() -> dict[str, Any]:
    """A terminal where nobody types: the owner asks and goes on waiting."""
    master, slave = pty.openpty()
    _open_ends.append(master)
    return on_terminal(slave)


_open_ends: list[int] = []


@pytest.fixture(autouse=True)
def _close_ends() -> Any:
    yield
    while _open_ends:
        os.close(_open_ends.pop())
