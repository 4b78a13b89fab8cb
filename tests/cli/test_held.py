"""`outlast run` whose prompt waits in a queue that only a person lets go on: it says so and ends, for whoever
wants to go on must find no owner in the way."""

from __future__ import annotations

import asyncio
import signal

import pytest
from tests.cli.support import Shell, hears, interrupt, until

import outlast
from outlast.cli.resume import held

WAITS = "[[touch:here]][[wait:go]]"


def test_a_prompt_behind_a_failure_that_holds_the_queue_is_not_waited_for(shell: Shell) -> None:
    with shell.config.open("a") as config:
        config.write('after_failure = "hold"\n')
    assert shell.run("run", "-a", "scripted", "--session", "x", "[[say:hello]]").code == 0
    assert shell.run("send", "x", "[[exit:3]]").code == 0
    ran = shell.run("run", "--json", "--session", "x", "[[say:late]]")
    assert (ran.code, ran.error["error"], ran.error["session"]) == (1, "turn_held", "x")
    assert "has not begun: the queue is held" in ran.error["message"]
    assert ran.error["hint"] == "`outlast resume x` goes on with it"
    (row,) = shell.sessions()
    assert (row["status"], row["queued"], row["owner"]) == ("parked", 1, None)
    assert shell.run("wait", "x").code == 1
    resumed = shell.run("resume", "x")
    assert (resumed.code, resumed.out) == (0, "late\n"), resumed


def test_a_new_input_lets_a_held_queue_go_on_and_whoever_sends_it_is_told(shell: Shell) -> None:
    with shell.config.open("a") as config:
        config.write('after_failure = "hold"\n')
    assert shell.run("run", "-a", "scripted", "--session", "x", "[[say:hello]]").code == 0
    assert shell.run("send", "x", "[[exit:3]]").code == 0
    assert shell.run("run", "--session", "x", "[[say:first]]").code == 1
    sent = shell.run("send", "x", "[[say:second]]")
    assert "the queue was held: it goes on with this input (1 before it)" in sent.err
    assert [row["status"] for row in shell.sessions()] == ["detached"], "work goes on as soon as it is owned"
    resumed = shell.run("resume", "x")
    assert (resumed.code, resumed.out) == (0, "first\nsecond\n"), resumed


def test_of_an_empty_queue_nobody_hears_that_it_is_held(shell: Shell) -> None:
    process = shell.start("run", "-a", "scripted", "--session", "y", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    assert shell.run("cancel", "y").out == "cancelled\n"
    _, told = process.communicate(timeout=30)
    assert "the queue" not in told


@pytest.mark.slow
@pytest.mark.parametrize("hung_up", [False, True])
def test_a_prompt_behind_a_turn_that_is_cancelled_is_not_waited_for(shell: Shell, hung_up: bool) -> None:
    """Nor after the terminal is gone: nobody would ever end it."""
    first = shell.start("run", "-a", "scripted", "--session", "y", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    second = shell.start("run", "--session", "y", "[[say:hello]]")
    until(lambda: shell.sessions()[0]["queued"] == 1, "the prompt to wait")
    if hung_up:
        until(lambda: hears(second.pid, signal.SIGHUP), "it to follow its turn")
        interrupt(second, signal.SIGHUP)
    assert shell.run("cancel", "y").code == 0
    assert first.wait(30) == 130
    _, told = second.communicate(timeout=30)
    assert second.returncode == 1, told
    assert "has not begun: the queue is held" in told
    resumed = shell.run("resume", "y")
    assert (resumed.code, resumed.out) == (0, "hello\n"), resumed


@pytest.mark.slow
@pytest.mark.parametrize("what", ["program", "workspace"])
def test_what_waits_behind_an_agent_that_cannot_be_launched_is_not_used_up(shell: Shell, what: str) -> None:
    """One turn is parked and says what to do; once that is mended, `retry` runs it and then the queue."""
    usual, folder = shell.config.read_text(), shell.folder / "place"
    folder.mkdir()
    began = ("run", "-a", "scripted", "--session", "x", "--workspace", str(folder))
    assert shell.run(*began, "[[say:hello]]").code == 0
    if what == "program":
        shell.agents(scripted=("/nowhere/agnet",))
    else:
        folder.rename(shell.folder / "elsewhere")
    for text in ("one", "two", "three"):
        assert shell.run("send", "x", f"[[say:{text}]]").code == 0
    broken = shell.run("resume", "x")
    assert broken.code == 1
    assert broken.err.count(" is not there") >= 1
    assert broken.err.count("what to do: ") == 1
    (row,) = shell.sessions()
    assert (row["status"], row["queued"], row["owner"]) == ("parked", 2, None)
    shown = shell.json("show", "x")
    assert [turn["outcome"] for turn in shown["turns"]] == ["done", "parked", "queued", "queued"]
    parked = shown["turns"][1]
    code = {"program": "launch_failed", "workspace": "workspace_missing"}[what]
    assert parked["receipt"]["error"]["code"] == code
    told = shell.run("show", "x").out
    assert f"`outlast retry x {parked['turn']}`. Or outlast skip x {parked['turn']} leaves it" in told

    shell.config.write_text(usual)
    if what == "workspace":
        (shell.folder / "elsewhere").rename(folder)
    assert shell.run("retry", "x").code == 0
    resumed = shell.run("resume", "x")
    assert (resumed.code, resumed.out) == (0, "one\ntwo\nthree\n"), resumed


def test_the_next_run_of_a_session_whose_program_was_misspelled_tries_it_again(shell: Shell) -> None:
    """A person's new input lets the queue go on (decision 0057); what was parked stays, and is told."""
    usual = shell.config.read_text()
    shell.agents(scripted=("/nowhere/agnet",))
    first = shell.run("run", "-a", "scripted", "--session", "x", "--json", "[[say:first]]")
    assert (first.code, first.lines[-1]["outcome"]) == (1, "parked")
    assert first.lines[-1]["receipt"]["error"]["code"] == "launch_failed"
    assert shell.run("run", "--session", "x", "[[say:second]]").code == 1, (
        "still misspelled: it says so at once"
    )
    shell.config.write_text(usual)
    third = shell.run("run", "--session", "x", "[[say:third]]")
    assert (third.code, third.out) == (0, "third\n"), third
    assert [row["status"] for row in shell.sessions()] == ["parked"]
    assert [turn["outcome"] for turn in shell.json("show", "x")["turns"]] == ["parked", "parked", "done"]
    left = shell.run("resume", "x").err
    assert left.count("Mend what is named there: no program ran. Then `outlast retry x ") == 2
    assert shell.run("retry", "x", first.lines[0]["turn"]).code == 0
    assert shell.run("resume", "x").out == "first\n"


def stored(shell: Shell, session: str) -> str:
    """A cancel that nobody is there to carry out, as `outlast attach` asks for it."""

    async def cancel() -> str:
        async with outlast.connect(shell.url) as client:
            return (await client.session(session).cancel()).result

    return asyncio.run(cancel())


@pytest.mark.parametrize("kept", [True, False])
def test_resume_goes_on_after_a_cancel_whether_it_waited_or_was_carried_out(shell: Shell, kept: bool) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[say:hello]]").code == 0
    assert shell.run("send", "s", "[[say:first]]").code == 0
    assert shell.run("send", "s", "[[say:second]]").code == 0
    if kept:
        assert stored(shell, "s") == "queued"
    else:
        assert shell.run("cancel", "s").out.startswith("no turn was running; the queue is held (2 waiting)")
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out) == (0, "first\nsecond\n"), resumed
    assert "nothing to do" not in resumed.err


def test_resume_goes_on_after_the_turn_that_a_cancel_which_waited_ends(shell: Shell) -> None:
    process = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    process.kill()
    process.wait()
    assert shell.run("send", "s", "[[say:more]]").code == 0
    assert stored(shell, "s") == "queued"
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out.splitlines()[-1]) == (1, "more"), resumed
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["cancelled", "done"]


def test_what_resume_leaves_held_is_told_as_work_and_not_as_nothing_to_do(shell: Shell) -> None:
    """Held by somebody in the moment between its restore and its end."""
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[say:hello]]").code == 0
    assert asyncio.run(told_held(shell, "s")) == []
    assert shell.run("send", "s", "[[say:more]]").code == 0
    assert shell.run("cancel", "s").code == 0
    assert asyncio.run(told_held(shell, "s")) == [
        "the queue is held (1 waiting)",
        "  what to do: `outlast resume s` goes on with it",
    ]


async def told_held(shell: Shell, session: str) -> list[str]:
    async with outlast.connect(shell.url) as client:
        return await held(client.store, session)
