"""The small commands: what they print and how they exit."""

import json
import os
import pty

import pytest
from tests.cli.support import Shell, on_terminal, reader, until

from outlast.cli.ls import beginnings

WAITS = "[[touch:here]][[wait:go]]"


def test_cancel_and_close_say_what_they_came_to(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    assert shell.json("cancel", "s") == {"session": "s", "result": "done", "detail": ""}
    assert owner.wait(30) == 130
    nothing = shell.run("cancel", "s")
    assert (nothing.code, nothing.out) == (0, "nothing was cancelled: no turn is running\n")
    closed = shell.run("close", "s")
    assert closed.code == 0, closed
    assert shell.sessions()[0]["status"] == "stopped"
    assert shell.run("run", "--session", "s", "[[say:open again]]").code == 0
    assert shell.sessions()[0]["status"] == "idle"


@pytest.mark.parametrize(("command", "word"), [("cancel", "cancelled"), ("kill", "killed")])
def test_a_run_tells_once_and_in_one_word_how_its_turn_was_ended(
    shell: Shell, command: str, word: str
) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    shell.run(command, "s")
    _, told = owner.communicate(timeout=30)
    (line,) = (line for line in told.splitlines() if not line.startswith("to come back"))
    assert (line.split()[0], line.split()[2]) == ("turn", f"{word}:"), told
    assert told.count("cancelled") + told.count("killed") == 1
    assert "interrupted" not in told


def test_a_run_whose_input_was_taken_out_of_the_queue_says_so_and_holds_nothing(shell: Shell) -> None:
    owner = shell.start("run", "-a", "scripted", "--session", "s", WAITS)
    until((shell.folder / "here").exists, "the agent to be at work")
    second = shell.start("run", "--session", "s", "--key", "second", "[[say:no]]")
    until(lambda: shell.sessions()[0]["queued"] == 1, "the second input to wait")
    assert shell.run("cancel", "s", "second").out == "cancelled\n"
    _, told = second.communicate(timeout=30)
    assert second.returncode == 130
    assert "cancelled" in told.splitlines()
    assert "held" not in told
    (shell.folder / "go").touch()
    assert owner.wait(30) == 0


def test_tail_shows_what_a_turn_used(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[usage:input_tokens=7]]").code == 0
    (line,) = (line for line in shell.run("tail", "s").out.splitlines() if "AgentEventRecorded" in line)
    assert line.endswith("usage: input_tokens=7")


def test_wait_exits_by_the_last_turn_and_not_by_an_input_that_never_was_one(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "fine").code == 0
    for key in ("second", "third"):
        shell.run("send", "s", "--key", key, "[[say:no]]")
    assert shell.run("cancel", "s").code == 0, "they are accepted, and held"
    assert shell.sessions()[0]["queued"] == 2
    for key in ("second", "third"):
        assert shell.run("cancel", "s", key).code == 0
    assert shell.json("wait", "s")["outcome"] == "done"


def test_a_turn_that_cannot_be_retried_or_skipped_is_refused_at_once_without_an_owner(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "--key", "done", "fine").code == 0
    assert shell.run("send", "s", "--key", "waits", "[[effect:{turn}]]").code == 0
    for command, turn, why in (
        ("retry", "done", "nothing to retry: that turn was done, or is too long ago"),
        ("retry", "waits", "nothing to retry: that turn has not run yet"),
        ("skip", "done", "nothing to skip: no such turn is parked"),
        ("skip", "waits", "nothing to skip: no such turn is parked"),
    ):
        ran = shell.run(command, "s", turn)
        assert (ran.code, ran.out.strip()) == (4, why)
    assert shell.show("s")["commands"] == [], "nothing is kept that nobody could carry out"
    assert shell.run("resume", "s").code == 0


def test_resume_says_which_waiting_command_it_could_not_carry_out(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "--key", "bad", "[[exit:3]]").code == 1
    for command in ("retry", "skip"):  # what the first will come to shows only when it is carried out
        assert shell.run(command, "s", "bad").code == 0
    ran = shell.run("resume", "s")
    assert "not carried out: skip of bad: no such turn is parked" in ran.err, ran
    assert "not carried out: retry" not in ran.err
    assert ran.code == 1, "the turn has failed again"


def test_resume_exits_4_where_all_that_was_wrong_is_a_command_that_it_could_not_carry_out(
    shell: Shell,
) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "--key", "bad", "[[1?exit:3]][[say:fine]]")
    for command in ("retry", "skip"):
        assert shell.run(command, "s", "bad").code == 0
    ran = shell.run("resume", "s", "--json")
    assert (ran.code, ran.lines[-1]["outcome"]) == (4, "done"), ran
    assert "not carried out: skip of bad" in ran.err


def test_retry_and_skip_of_nothing_are_not_found(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "fine")
    for command in ("retry", "skip"):
        ran = shell.run(command, "s", "nothing-like-it")
        assert ran.code == 3
        assert "has no turn 'nothing-like-it'" in ran.err


def test_retry_and_skip_with_nothing_to_do_are_a_conflict_at_once(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "fine")
    for command in ("retry", "skip"):
        ran = shell.run(command, "s")
        assert (ran.code, ran.out.partition(":")[0]) == (4, f"nothing to {command}"), ran
        told = shell.run(command, "s", "--json")
        assert (told.code, told.lines[0]["result"]) == (4, "too_late")
    assert shell.sessions()[0]["queued"] == 0


def test_a_turn_goes_by_the_number_that_show_gives_it(shell: Shell) -> None:
    for key in ("bad", "worse"):
        shell.run("run", "-a", "scripted", "--session", "s", "--key", key, f"[[exit:3]]{key}")
    shell.run("run", "--session", "s", "--key", "2nd", "fine")
    told = [line.split()[:3] for line in shell.run("show", "s").out.splitlines()]
    assert ["1", "failed", "bad"] in told
    assert ["2", "failed", "worse"] in told
    assert shell.run("retry", "s", "4").code == 3
    several = shell.run("retry", "s", "2")
    assert (several.code, "several turns '2'" in several.err) == (3, True), "the id of another begins so"
    for number, turn in (("1", "bad"), ("#2", "worse")):
        assert shell.run("retry", "s", number).code == 0
        assert shell.show("s")["commands"][-1]["turn"] == turn


def test_a_prompt_that_is_sent_again_is_told_what_became_of_it(shell: Shell) -> None:
    """It is not queued, and nobody has to run it."""
    shell.run("run", "-a", "scripted", "--session", "s", "first")
    send = ("send", "s", "--key", "K", "second")
    assert shell.run(*send).out == "queued as turn K of session s\n"
    assert shell.run(*send).out == "queued as turn K of session s\n"
    assert shell.run("resume", "s").code == 0
    again = shell.run(*send)
    assert (again.code, again.out) == (0, "sent before: turn K of session s is done already\n")
    assert "nobody runs" not in again.err
    assert shell.run("send", "s", "--key", "bad", "[[exit:3]]").code == 0
    shell.run("resume", "s")
    again = shell.run("send", "s", "--key", "bad", "[[exit:3]]")
    assert (again.code, again.out) == (0, "sent before: turn bad of session s has failed\n")


def test_send_is_durable_and_says_who_runs_it(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "first")
    sent = shell.run("send", "--json", "--key", "K", "s", "-", stdin=b"second\r\n")
    assert (sent.code, sent.lines) == (0, [{"session": "s", "turn": "K"}])
    assert json.loads(sent.err)["notice"] == "nobody runs this session now: outlast resume s"
    (row,) = shell.sessions()
    assert (row["status"], row["queued"]) == ("detached", 1)
    assert shell.run("wait", "s").code == 1
    resumed = shell.run("resume", "s")
    assert (resumed.code, resumed.out) == (0, "second\r\n")


@pytest.mark.parametrize(
    "arguments",
    [("send", "x", "hi"), ("show", "x"), ("tail", "x"), ("wait", "x"), ("cancel", "x"), ("kill", "x"),
     ("close", "x"), ("retry", "x"), ("skip", "x"), ("plan", "x"), ("resume", "x"), ("answer", "x", "g", "c"),
     ("attach", "x")],
)  # fmt: skip
def test_a_session_that_is_not_there_exits_3(shell: Shell, arguments: tuple[str, ...]) -> None:
    ran = shell.run(*arguments)
    assert ran.code == 3, ran
    assert ran.err.splitlines()[-1].startswith("outlast: ")
    assert "`outlast ls` lists them" in ran.err


def test_an_empty_id_names_nothing(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "[[fail:no]]")
    shell.run("send", "s", "hi")
    before = shell.sessions()
    for arguments in (
        ("send", "", "hi"), ("show", ""), ("tail", ""), ("wait", ""), ("cancel", ""), ("kill", ""),
        ("close", ""), ("retry", ""), ("retry", "s", ""), ("skip", ""), ("skip", "s", ""), ("plan", ""),
        ("resume", ""), ("answer", "", "g", "c"), ("answer", "s", "", "c"), ("attach", ""),
        ("run", "--session", "", "hi"), ("run", "--workspace", "", "hi"), ("ls", "--workspace", ""),
        ("trust", ""),
    ):  # fmt: skip
        ran = shell.run(*arguments)
        assert ran.code == 2, ran
        assert "empty" in ran.err
    assert shell.sessions() == before


def test_a_prefix_that_fits_two_sessions_is_refused(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "chat-1", "one")
    shell.run("send", "chat", "more")  # a unique beginning
    shell.run("run", "-a", "scripted", "--session", "chat-2", "two")
    ran = shell.run("show", "--json", "chat")
    assert (ran.code, ran.error["error"]) == (2, "ambiguous_id")


def test_ls_show_and_tail_have_the_shapes_that_scripts_know(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "[[say:hi]]")
    (row,) = shell.json("ls", "--workspace", ".")
    assert list(row) == [
        "id", "title", "status", "agent", "workspace", "created_at", "last_activity_at", "turns", "queued",
        "open_gates", "owner",
    ]  # fmt: skip
    assert shell.json("ls", "--workspace", "/") == []
    shown = shell.json("show", "s")
    assert {"session", "turns", "queue", "gates", "agent_sessions", "restores"} <= set(shown)
    assert shown["session"] == row
    (turn,) = shown["turns"]
    assert set(turn) == {"turn", "index", "input", "outcome", "attempts", "started_at", "ended_at"}
    lines = shell.run("tail", "s", "--json").lines
    assert list(lines[0]) == [
        "seq", "epoch", "id", "at", "type", "v", "loop", "turn", "cause", "actor", "cursor", "body", "chain",
    ]  # fmt: skip
    assert shell.run("tail", "s", "--json", "--after", "4").lines[0]["seq"] == 5
    every = shell.run("tail", "s", "--json", "--internal").lines
    assert [line["seq"] for line in every] == list(range(1, len(every) + 1))
    table = shell.run("ls").out.splitlines()
    assert table[0].split() == ["ID", "STATUS", "AGENT", "ACTIVE", "TURNS", "QUEUED", "TITLE"]
    assert table[1].split()[:3] == ["s", "idle", "scripted"]


def test_a_title_has_room_on_a_narrow_terminal(shell: Shell) -> None:
    for title in ("mend the first thing", "mend the second thing"):
        shell.run("run", "-a", "scripted", title)
    whole = [line.split()[0] for line in shell.run("ls").out.splitlines()[1:]]
    assert whole == [row["id"] for row in shell.json("ls")]
    master, slave = pty.openpty()
    shell.environ["COLUMNS"] = "80"
    listing = shell.start("ls", stdout=slave, **on_terminal(slave))
    os.close(slave)
    assert listing.wait(30) == 0
    _, *lines = reader(master)().splitlines()
    os.close(master)
    assert [line[line.index("mend") :] for line in lines] == ["mend the second thing", "mend the first thing"]
    assert all(len(line) <= 80 for line in lines)
    for line, session in zip(lines, whole, strict=True):
        assert session in shell.run("show", line.split()[0]).out


def test_ids_are_cut_where_they_tell_sessions_apart() -> None:
    a, b = "0192a4c1-7f3e-7aaa-8000-000000000001", "0192a4c1-7f3e-7aab-8000-000000000001"
    other = "0192a4c1-7f3f-7aaa-8000-000000000001"
    assert beginnings([b, "job", other, a]) == [b[:18], "job", other[:13], a[:18]]


def test_an_argument_too_many_is_named_without_advice_about_prompts(shell: Shell) -> None:
    ran = shell.run("ls", "extra")
    assert ran.code == 2
    assert "extra" in ran.err
    assert "prompt" not in ran.err
    assert "put the prompt in quotes" in shell.run("run", "two", "words").err


def test_tail_follows_until_its_reader_goes(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "one")
    following = shell.start("tail", "-f", "--json", "s")
    assert following.stdout is not None
    seen: list[dict[str, object]] = []
    while not seen or seen[-1]["type"] != "TurnDone":
        seen.append(json.loads(following.stdout.readline()))
    shell.run("run", "--session", "s", "two")
    line = json.loads(following.stdout.readline())
    assert line["seq"] > seen[-1]["seq"]
    following.stdout.close()
    following.stdout = None
    shell.run("run", "--session", "s", "three")
    assert following.wait(30) == 0


@pytest.mark.slow
def test_bench_measures_with_real_parts_and_leaves_nothing_behind(shell: Shell) -> None:
    shell.state.mkdir(mode=0o700)
    figures = json.loads(shell.process("bench", "--json", "--seconds", "0.05").out)
    assert set(figures) == {
        "raw_commit", "append_alone", "records", "wake", "shim_start", "turn", "restore", "peak_memory",
    }  # fmt: skip
    assert all(figure["value"] > 0 for figure in figures.values())
    assert list(shell.state.iterdir()) == []
