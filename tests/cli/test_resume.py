"""`outlast resume`, `plan`, `kill` and friends, after a crash and beside a living owner."""

import json
import os
import pty
import signal
import sys

import pytest
from tests.cli.support import Ran, Shell, interrupt, is_alive, on_terminal, reader, until

WAITS = "[[say:at work]][[touch:here]][[wait:go]][[effect:{turn} {attempt}]]"


def crash(shell: Shell, prompt: str = WAITS) -> None:
    """A run of session `s` that is killed in the middle of its turn."""
    process = shell.start("run", "-a", "scripted", "--session", "s", prompt)
    until((shell.folder / "here").exists, "the agent to be at work")
    process.kill()
    process.communicate(timeout=30)


def test_status_stale(shell: Shell) -> None:
    """After kill -9 nothing claims to run; resume goes on with the same turn and drains the queue."""
    crash(shell)
    (row,) = shell.sessions()
    assert (row["status"], row["owner"]) == ("detached", None)
    plan = shell.json("plan", "s")
    assert [turn["action"] for turn in plan["turns"]] == ["attach"]
    assert "attach: gen-000001 lives" in shell.run("plan", "s").out
    assert shell.run("send", "s", "[[say:second]]").code == 0

    resumed = shell.start("resume", "--json", "s")
    until(lambda: bool(shell.records("s", "TurnAttached")), "the new owner to have attached")
    (shell.folder / "go").touch()
    out, _ = resumed.communicate(timeout=30)
    lines = [line for line in out.splitlines() if '"outcome":"' in line or line.startswith('{"session"')]
    assert resumed.returncode == 0
    assert len(lines) == 4
    assert '"type":"TurnAttached"' in out
    shown = shell.show("s")
    assert [turn["outcome"] for turn in shown["turns"]] == ["done", "done"]
    assert [turn["attempts"] for turn in shown["turns"]] == [1, 1]
    assert len(shell.effects.read_text().splitlines()) == 1
    assert len(shown["restores"]) == 1
    assert "── " in shell.run("show", "s").out


def test_double_writer(shell: Shell) -> None:
    """Resume beside a living owner is a conflict that names it; with --wait it comes after."""
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    ran = shell.run("resume", "--json", "s")
    assert (ran.code, ran.error["error"], ran.error["kind"]) == (4, "lease_held", "lease")
    assert f"pid {owner.pid}" in ran.error["message"]
    assert ran.error["session"] == "s"
    planned = shell.run("plan", "s")
    assert (planned.code, "`outlast resume s` would be refused now" in planned.out) == (0, True)
    assert f"pid {owner.pid}" in shell.json("plan", "s")["owner"]
    waiting = shell.start("resume", "s", "--wait", "20")
    (shell.folder / "go").touch()
    assert owner.wait(30) == 0
    assert waiting.wait(30) == 0
    assert len(shell.effects.read_text().splitlines()) == 1


def test_take_over_ends_a_stopped_owner(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    interrupt(owner, signal.SIGSTOP)
    doctor = shell.run("doctor")
    assert "is stopped" in doctor.out
    assert "--take-over" in doctor.out
    (shell.folder / "go").touch()
    ran = shell.run("resume", "s", "--take-over")
    assert (ran.code, ran.out) == (0, "at work\n"), ran
    assert owner.wait(30) == -signal.SIGKILL
    assert len(shell.effects.read_text().splitlines()) == 1


def test_run_in_a_session_that_is_owned_elsewhere_sends_and_follows(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    second = shell.start("run", "--session", "s", "[[say:mine]]")
    until(lambda: shell.sessions()[0]["queued"] == 1, "the second input to be queued")
    (shell.folder / "go").touch()
    out, _ = second.communicate(timeout=30)
    assert (second.returncode, out) == (0, "mine\n")
    assert owner.wait(30) == 0
    assert shell.sessions()[0]["turns"] == 2


def test_kill_ends_the_agent_of_a_session_that_nobody_owns(shell: Shell) -> None:
    crash(shell)
    found = shell.run("doctor")
    assert "lives without owner" in found.out
    (process,) = [
        line for line in shell.run("tail", "s", "--json").lines if line["type"] == "TurnAttemptStarted"
    ]
    pids = [entry["pid"] for entry in process["body"]["processes"]]
    killed = shell.run("kill", "s")
    assert killed.code == 0, killed
    until(lambda: not any(is_alive(pid) for pid in pids), "guard and shim to be gone")
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["cancelled"]
    assert not shell.effects.exists()
    assert shell.sessions()[0]["status"] in ("idle", "parked")
    assert "no agent lives without an owner" in shell.run("doctor").out


def test_cancel_and_close_act_on_a_session_that_nobody_owns(shell: Shell) -> None:
    crash(shell)
    (attempt,) = shell.records("s", "TurnAttemptStarted")
    assert shell.json("cancel", "s")["result"] == "done"
    pids = [entry["pid"] for entry in attempt["body"]["processes"]]
    until(lambda: not any(is_alive(pid) for pid in pids), "the agent to be gone")
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["cancelled"]
    assert shell.json("close", "s")["result"] == "done"
    assert shell.sessions()[0]["status"] == "stopped"
    assert not shell.effects.exists()


def test_the_agents_of_a_sessions_own_folder_are_found_from_elsewhere(shell: Shell) -> None:
    project = shell.folder / "project"
    project.mkdir()
    toml = shell.config.read_text().replace("agents.scripted", "agents.own")
    (project / "outlast.toml").write_text(toml)
    assert shell.run("trust", "project").code == 0
    assert shell.run("run", "--workspace", "project", "-a", "own", "--session", "s", "one").code == 0
    shell.run("send", "s", "two")
    assert shell.json("plan", "s")["inbox"] == 1
    assert shell.run("resume", "s").out == "two\n"
    assert shell.run("run", "--session", "s", "three").out == "three\n"


def test_kill_force_ends_an_owner_that_hangs(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    interrupt(owner, signal.SIGSTOP)
    killed = shell.run("kill", "--force", "s")
    assert killed.code == 0, killed
    assert f"pid {owner.pid}" in killed.out, "who was ended beside the agent is told"
    assert "did not answer and was ended; the agent is gone" in killed.out
    assert owner.wait(30) == -signal.SIGKILL
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["cancelled"]


@pytest.mark.parametrize(
    "arguments", [("cancel",), ("close",), ("kill",), ("skip", "{turn}"), ("answer", "{gate}", "left")]
)
def test_who_asks_an_owner_that_is_stopped_is_told_so_and_does_not_wait_for_ever(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("outlast.cli.owners.NOTICED_AFTER", 0.1)
    monkeypatch.setattr("outlast.cli.owners.GIVES_UP_AFTER", 0.3)
    master, slave = pty.openpty()
    owner = shell.start(
        "run", "-a", "scripted", "--session", "s", "[[gate:g:Which one?:left,right]]",
        **on_terminal(slave),
    )  # fmt: skip
    os.close(slave)
    seen = reader(master)
    until(lambda: "answer:" in seen(), "the question")  # nothing more is written from here on
    interrupt(owner, signal.SIGSTOP)
    shown = shell.show("s")
    command, *rest = (
        word.format(turn=shown["turns"][0]["turn"], gate=shown["gates"][0]["id"]) for word in arguments
    )
    ran = shell.run(command, "s", *rest)
    assert ran.code == 4, ran
    notice, error = ran.err.splitlines()
    assert f"pid {owner.pid} (outlast run) owns session s and is stopped: kill -CONT {owner.pid}" in notice
    assert error.endswith(f"kill -CONT {owner.pid}, or outlast resume s --take-over")
    assert shell.run(command, "s", *rest, "--json").error["error"] == "owner_stopped"
    interrupt(owner, signal.SIGCONT)
    if command in ("cancel", "close", "kill"):
        owner.wait(30)  # it was kept: nobody else ends the wait for an answer
    os.close(master)


def cut_off(shell: Shell, prompt: str = WAITS) -> None:
    """A run of session `s` that died together with its agent, in the middle of its turn."""
    crash(shell, prompt)
    (attempt,) = shell.records("s", "TurnAttemptStarted")
    for entry in attempt["body"]["processes"]:
        os.kill(entry["pid"], signal.SIGKILL)
    until(lambda: shell.json("plan", "s")["turns"][0]["action"] == "interrupt", "the agent's end to be seen")


def on_interrupt(shell: Shell, policy: str) -> None:
    shell.config.write_text(f'{shell.config.read_text()}on_interrupt = "{policy}"\n')


def blocks(ran: Ran) -> list[list[str]]:
    """What each turn's block holds, in order: `ids`, the types of its records, its outcome."""
    found: list[list[str]] = []
    for line in ran.lines:
        if set(line) == {"session", "turn"}:
            found.append(["ids"])
        else:
            found[-1].append(line.get("outcome") or line["type"])
    return found


BROKEN = """
import os, sys, time
print("it began badly", file=sys.stderr, flush=True)
open("here", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
sys.exit(3)
"""


@pytest.mark.parametrize("command", ["resume", "attach"])
def test_who_comes_late_to_a_failure_sees_what_the_agent_had_written_before(
    shell: Shell, command: str
) -> None:
    shell.agents(broken=(sys.executable, "-c", BROKEN))
    owner = shell.start("run", "-a", "broken", "--session", "s", "go")
    until((shell.folder / "here").exists, "the agent to be at work")
    if command == "resume":
        owner.kill()
        owner.communicate(timeout=30)
    master, slave = pty.openpty()
    late = shell.start(command, "s", **on_terminal(slave))
    os.close(slave)
    seen = reader(master)
    until(lambda: ("goes on" if command == "resume" else "/help lists") in seen(), "the turn on the terminal")
    (shell.folder / "go").touch()
    until(lambda: "what to do: Read the end of its error output" in seen(), "advice")
    assert "| it began badly" in seen()
    os.write(master, b"\x04")
    assert late.wait(30) == (1 if command == "resume" else 0)
    os.close(master)


def test_an_interrupted_turn_is_not_executed_again_until_a_person_says_so(shell: Shell) -> None:
    cut_off(shell)
    (shell.folder / "go").touch()
    resumed = shell.run("resume", "--json", "s")
    assert (resumed.code, resumed.lines[-1]["outcome"]) == (1, "interrupted"), resumed
    assert not shell.effects.exists()
    assert shell.run("wait", "s").code == 1
    (turn,) = shell.json("show", "s")["turns"]
    assert turn["reason"].startswith("gen-000001 has ended")
    assert turn["reason"] in shell.run("show", "s").out

    assert shell.json("retry", "s")["result"] == "queued"
    again = shell.run("resume", "s")
    assert again.code == 0, again
    assert shell.effects.read_text().split()[1] == "2"


def test_resume_sees_the_question_of_a_turn_that_was_sent_again(shell: Shell) -> None:
    """A turn that is interrupted and begun again in one step has not ended: nothing waits for its end."""
    on_interrupt(shell, "retry")
    cut_off(shell, f"{WAITS}[[gate:g:Which one?:left,right]]")
    (shell.folder / "go").touch()
    ran = shell.run("resume", "--json", "s")
    assert (ran.code, ran.error["error"]) == (6, "waiting_for_answer"), ran
    (block,) = blocks(ran)
    assert block[0] == "ids"
    assert block[-2:] == ["GateOpened", "waiting"]
    assert block.index("TurnInterrupted") + 1 == block.index("TurnRetried")

    (gate,) = shell.show("s")["gates"]
    shell.run("answer", "s", gate["id"], "left")
    ran = shell.run("resume", "--json", "s")
    (block,) = blocks(ran)
    assert (ran.code, block[-2:]) == (0, ["TurnDone", "done"])
    # What was said before this command came is part of the turn's text.
    assert ran.lines[-1]["text"] == "at work\ng=left"


def test_a_turn_that_was_sent_again_has_one_outcome_and_the_text_of_its_last_attempt(shell: Shell) -> None:
    on_interrupt(shell, "retry")
    cut_off(shell, "[[say:attempt {attempt}]][[touch:here]][[wait:go]]")
    (shell.folder / "go").touch()
    shell.run("send", "s", "[[say:behind it]]")
    ran = shell.run("resume", "--json", "s")
    assert ran.code == 0, ran
    assert [block[-1] for block in blocks(ran)] == ["done", "done"]
    assert [line["text"] for line in ran.lines if "outcome" in line] == ["attempt 2", "behind it"]


@pytest.mark.parametrize("policy", ["hold", "ask"])
def test_a_turn_that_is_parked_when_it_was_cut_off_is_told_once_and_whole(shell: Shell, policy: str) -> None:
    on_interrupt(shell, policy)
    cut_off(shell)
    ran = shell.run("resume", "--json", "s")
    (block,) = blocks(ran)
    assert [name for name in block if name.startswith("Turn")] == ["TurnInterrupted", "TurnParked"]
    assert block[-1] == "parked"
    assert ran.code == {"hold": 1, "ask": 6}[policy], ran


def test_wait_does_not_take_a_parked_turn_for_the_end_of_the_queue(shell: Shell) -> None:
    on_interrupt(shell, "hold")
    cut_off(shell)
    shell.run("send", "s", "[[say:behind it]]")
    shell.run("cancel", "s")  # comes for its own sake, begins nothing
    (row,) = shell.sessions()
    assert (row["status"], row["queued"]) == ("parked", 1)
    assert shell.run("wait", "--json", "s").error["error"] == "nobody_runs_it"
    assert shell.run("resume", "--json", "s").lines[-1]["text"] == "behind it"
    assert shell.json("wait", "s")["text"] == "behind it"


def test_each_turn_of_a_queue_is_announced_by_what_it_was_asked(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "first")
    shell.run("send", "s", "[[say:two]]\nand more")
    shell.run("send", "s", "[[say:three]]")
    resumed = shell.run("resume", "s")
    assert resumed.out == "two\nthree\n"
    assert [line for line in resumed.err.splitlines() if line.startswith(">")] == [
        "> [[say:two]] …", "> [[say:three]]",
    ]  # fmt: skip
    shell.run("send", "s", "[[say:four]]")
    ran = shell.run("run", "--session", "s", "[[say:five]]")
    assert ran.out == "five\n"
    assert [line for line in ran.err.splitlines() if line.startswith(">")] == [
        "> [[say:four]]", "> [[say:five]]",
    ]  # fmt: skip
    assert ">" not in shell.run("run", "--session", "s", "alone").err


def test_an_input_that_was_accepted_before_resume_came_is_announced_too(shell: Shell) -> None:
    crash(shell)
    owner = shell.start("resume", "s")
    until(lambda: bool(shell.records("s", "TurnAttached")), "the owner")
    shell.run("send", "s", "[[say:second]]")
    until(lambda: len(shell.records("s", "InputAccepted")) == 2, "the second input to be accepted")
    owner.kill()
    owner.communicate(timeout=30)
    (shell.folder / "go").touch()
    assert "> [[say:second]]\n" in shell.run("resume", "s").err


def test_a_person_sees_that_resume_waits_for_the_owner(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    master, slave = pty.openpty()
    resumed = shell.start("resume", "s", "--wait", "30", **on_terminal(slave))
    os.close(slave)
    seen = reader(master)
    until(lambda: "restoring session s" in seen(), "the moving line")
    (shell.folder / "go").touch()
    assert owner.wait(30) == 0
    assert resumed.wait(30) == 0
    os.close(master)


RATE_LIMITED = "[[fail:rate_limited:600:slow down]]"


def test_a_turn_that_was_given_up_while_it_waited_is_told_as_that(shell: Shell) -> None:
    process = shell.start("run", "-a", "scripted", "--session", "s", "--key", "t", RATE_LIMITED)
    until(lambda: bool(shell.sessions()) and "waits" in str(shell.show("s")["turns"]), "the wait")
    interrupt(process, signal.SIGTERM)
    process.communicate(timeout=30)
    assert shell.run("skip", "s").code == 0
    ran = shell.run("resume", "s")
    assert "turn t was given up, as was asked" in ran.err, ran
    assert "waits until" not in ran.err
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["cancelled"]


def test_a_parked_turn_that_was_left_is_told_as_that(shell: Shell) -> None:
    on_interrupt(shell, "hold")
    cut_off(shell)
    assert shell.run("resume", "s").code == 1
    assert shell.run("skip", "s").code == 0
    assert "was left as it is, as was asked" in shell.run("resume", "s").err


def test_resume_with_nothing_to_do_says_so_and_leads_on(shell: Shell) -> None:
    """And not back to itself."""
    assert shell.run("run", "-a", "scripted", "--session", "s", "--key", "t", "[[exit:3]]").code == 1
    said = "nothing to do; turn t failed: exit_nonzero: the agent ended with status 3"
    for _ in range(2):
        ran = shell.run("resume", "s")
        assert ran.code == 0, ran
        assert ran.err.splitlines()[-2:] == [said, 'go on with: outlast run --session s "..."']
    as_json = shell.run("resume", "s", "--json")
    assert [json.loads(line) for line in as_json.err.splitlines()][-2:] == [
        {"notice": said},
        {"session": "s", "resume": "outlast resume s"},
    ]


def test_a_turn_that_crashed_is_told_as_fully_as_one_that_was_interrupted(shell: Shell) -> None:
    prompt = "[[tool:c:command:started]][[tool:d:other:started]][[tool:d:other:completed]][[signal:9]]"
    ran = shell.run("run", "-a", "scripted", "--session", "s", "--key", "t", prompt)
    shown = shell.run("show", "s").out
    for said in (ran.err, shown):
        assert "calls without outcome: command\n" in said, said
        assert "Or outlast retry s t runs it again, which may repeat what it had done" in said
    assert [row["status"] for row in shell.sessions()] == ["failed"]


def test_an_interrupted_turn_is_listed_and_shown_as_a_crashed_one_is(shell: Shell) -> None:
    cut_off(shell)
    assert shell.run("resume", "s").code == 1
    assert [row["status"] for row in shell.sessions()] == ["failed"]
    assert "outlast retry s " in shell.run("show", "s").out


def test_a_turn_that_was_skipped_can_still_be_retried(shell: Shell) -> None:
    on_interrupt(shell, "hold")
    cut_off(shell)
    assert shell.run("resume", "s").code == 1
    assert shell.run("skip", "s").code == 0
    shell.run("resume", "s")
    assert shell.sessions()[0]["status"] == "idle", "nobody has to do anything about it"
    assert "kept for the session's next owner" in shell.run("retry", "s").out
    (shell.folder / "go").touch()
    ran = shell.run("resume", "s")
    assert ran.code == 0, ran
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["done"]
