"""`outlast run`, as a user or a script meets it."""

import json
import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.support import Shell, on_terminal, reader, until

from outlast.testing import agents

TEXT = "CRLF\r\n NUL \0 emoji \N{ROCKET} and  spaces \t "


def test_of_a_program_that_is_not_there_nobody_is_sent_to_its_error_output(shell: Shell) -> None:
    shell.agents(gone=("/nowhere/agent",))
    ran = shell.run("run", "-a", "gone", "--session", "s", "hello")
    assert ran.code == 1
    assert "the agent's program /nowhere/agent is not there" in ran.err
    assert "what to do: Mend what is named there: no program ran. Then `outlast retry s`." in ran.err


def test_no_way_back(shell: Shell) -> None:
    """The agent's words are on standard output, and the last line on standard error says how to return."""
    ran = shell.process(
        "run", "-a", "scripted", "[[say:first]][[tool:t1:ls:started]][[tool:t1:ls:completed]][[say:second]]"
    )
    assert (ran.code, ran.out) == (0, "first\nsecond\n")
    (row,) = shell.sessions()
    assert f"outlast resume {row['id']}" in ran.err.splitlines()[-1]
    assert "[ls] done" in ran.err
    assert (row["status"], row["turns"], row["agent"], row["owner"]) == ("idle", 1, "scripted", None)
    assert row["workspace"] == str(shell.folder)


def test_json_begins_with_the_ids_and_ends_with_the_outcome(shell: Shell) -> None:
    ran = shell.run("run", "--json", "-a", "scripted", "[[say:hello]][[done:enough]]")
    first, *records, last = ran.lines
    assert set(first) == {"session", "turn"}
    assert last == {"outcome": "done", "stop_reason": "enough", "text": "hello"}
    assert [record["seq"] for record in records] == sorted(record["seq"] for record in records)
    types = [record["type"] for record in records]
    assert types[:3] == ["Fence", "SessionStarted", "LoopStarted"]
    assert types[-1] == "TurnDone"
    assert "AgentStateFolded" not in types
    assert {record["turn"] for record in records} == {None, first["turn"]}
    assert json.loads(ran.err.splitlines()[-1]) == {
        "session": first["session"],
        "resume": f"outlast resume {first['session']}",
    }


def test_a_failed_turn_exits_1_with_a_receipt(shell: Shell) -> None:
    ran = shell.run("run", "--json", "-a", "scripted", "[[say:so far]][[signal:9]]")
    last = ran.lines[-1]
    assert (ran.code, last["outcome"], last["text"]) == (1, "failed", "so far")
    error = last["receipt"]["error"]
    assert (error["code"], error["signal"], last["receipt"]["failed_phase"]) == ("crashed", 9, "host_execute")
    plain = shell.run("run", "-a", "scripted", "[[signal:9]]")
    assert plain.code == 1
    assert "failed: the agent was ended by SIGKILL (signal 9) (crashed)" in plain.err


def test_an_image_for_an_agent_that_takes_none_fails_the_turn_before_anything_is_sent(shell: Shell) -> None:
    (shell.folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n and so on")
    ran = shell.run("run", "-a", "scripted", "--image", "a.png", "[[say:unheard]]")
    assert (ran.code, ran.out) == (1, "")
    assert "takes none: send the text alone (version_unsupported)" in ran.err
    (row,) = shell.sessions()
    assert "[[say:unheard]] [image a.png]\n" in shell.run("show", row["id"]).out
    missing = shell.run("run", "-a", "scripted", "--image", "b.png", "look")
    assert missing.code == 2
    assert "b.png cannot be read" in missing.err


BROKEN = """
import sys, time
for n in range(9):
    print(f"line {n}", file=sys.stderr)
print("API_KEY=verysecretvalue \x1b[2J" + "x" * 1000, file=sys.stderr, flush=True)
sys.exit(3)
"""


def test_a_failure_shows_the_end_of_what_the_agent_wrote_to_stderr_and_what_to_do(shell: Shell) -> None:
    shell.agents(broken=(sys.executable, "-c", BROKEN))
    ran = shell.run("run", "-a", "broken", "--session", "s", "go")
    assert ran.code == 1
    for told in (ran.err, shell.run("show", "s").out):
        assert "the agent ended with status 3 (exit_nonzero)" in told
        assert [line.strip() for line in told.splitlines() if "| line" in line] == [
            f"| line {n}" for n in (5, 6, 7, 8)
        ]
        assert "API_KEY=[redacted] xxx" in told
        assert max(map(len, told.splitlines())) < 400
        assert "mend what it names, then `outlast retry s`" in told
        assert "host_" not in told
    shell.run("retry", "s")
    again = shell.run("resume", "s")
    assert "| line 8" in again.err
    assert "steps from the journal" not in again.err


def test_what_an_agent_wrote_to_stderr_stays_out_of_json_and_the_journal(shell: Shell) -> None:
    shell.agents(broken=(sys.executable, "-c", BROKEN))
    ran = shell.run("run", "--json", "-a", "broken", "--session", "s", "go")
    assert "line 8" not in ran.out + ran.err + shell.run("tail", "s", "--json", "--internal").out
    shown = shell.run("show", "s", "--json")
    assert "line 8" not in shown.out
    (turn,) = shown.lines[0]["turns"]
    assert turn["receipt"] == ran.lines[-1]["receipt"]
    assert "line 8" in Path(turn["stderr"]).read_text()


# --- the prompt -----------------------------------------------------------------------------------


def test_text_mangled(shell: Shell) -> None:
    """Every character of standard input reaches the agent, the journal and the output as it was."""
    ran = shell.run("run", "--json", "-a", "scripted", "-", stdin=TEXT.encode())
    assert ran.lines[-1]["text"] == TEXT
    (row,) = shell.sessions()
    assert shell.show(row["id"])["turns"][0]["input"] == TEXT


@pytest.mark.slow
def test_a_mebibyte_goes_through_unchanged(shell: Shell) -> None:
    text = "\N{ROCKET}0123456789\r\n" * 65536
    ran = shell.process("run", "--json", "-a", "scripted", "-", stdin=text.encode())
    assert ran.code == 0, ran.err
    assert ran.lines[-1]["text"] == text


def test_bytes_that_are_not_utf8_are_refused_with_their_place(shell: Shell) -> None:
    ran = shell.run("run", "-a", "scripted", "-", stdin=b"abc\xff")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("outlast: standard input is not valid UTF-8: byte 3 is 0xff")
    assert len(ran.err.splitlines()) == 1
    assert shell.sessions() == []


def test_an_argument_that_is_not_utf8_is_refused(shell: Shell) -> None:
    ran = shell.process("run", "-a", "scripted", b"caf\xe9".decode("utf-8", "surrogateescape"))
    assert ran.code == 2
    assert "the prompt is not valid UTF-8: byte 3 is 0xe9" in ran.err


def test_a_prompt_with_leading_dashes_goes_after_two_dashes(shell: Shell) -> None:
    ran = shell.run("run", "-a", "scripted", "--", "--json -x")
    assert (ran.code, ran.out) == (0, "--json -x\n")
    refused = shell.run("run", "-a", "scripted", "--jsn")
    assert refused.code == 2
    assert "a prompt that begins with a dash goes after `--`" in refused.err


@pytest.mark.parametrize("arguments", [("",), ("-",)])
def test_an_empty_prompt_is_refused(shell: Shell, arguments: tuple[str, ...]) -> None:
    ran = shell.run("run", "-a", "scripted", *arguments)
    assert ran.code == 2
    assert f"the prompt{' from standard input' if arguments == ('-',) else ''} is empty" in ran.err


@pytest.mark.parametrize("command", ["run", "send"])
def test_a_blank_prompt_is_refused_and_begins_nothing(shell: Shell, command: str) -> None:
    arguments = ("run", "-a", "scripted", "-") if command == "run" else ("send", "s", "-")
    ran = shell.run(*arguments, stdin=b" \r\n\t\n")
    assert (ran.code, "the prompt from standard input is blank" in ran.err) == (2, True), ran
    assert shell.run(*arguments[:-1], "  \n").code == 2
    assert shell.sessions() == []


def test_a_c_locale_changes_no_text(shell: Shell) -> None:
    environ = {**shell.environ, "LC_ALL": "C", "LANG": "C"}
    ran = shell.process("run", "-a", "scripted", "\N{ROCKET} é", environ=environ)
    assert (ran.code, ran.out) == (0, "\N{ROCKET} é\n")


# --- agents and sessions --------------------------------------------------------------------------


def test_without_an_agent_the_only_one_is_taken_else_they_are_listed(shell: Shell) -> None:
    here = [row["name"] for row in shell.json("agents")]
    ran = shell.run("run", "hello")
    if len(here) == 1:  # no codex is installed beside
        assert (ran.code, ran.out) == (0, "hello\n")
    shell.agents(one=("true",), two=("true",))
    ran = shell.run("run", "hello")
    assert ran.code == 2
    assert "one, two" in ran.err


def test_an_unknown_agent_is_not_found(shell: Shell) -> None:
    ran = shell.run("run", "--json", "-a", "other", "hello")
    assert (ran.code, ran.error["error"]) == (3, "agent_not_found")
    assert "scripted" in ran.error["hint"]


def test_a_label_begins_a_session_and_goes_on_with_it(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "chat-42", "one").code == 0
    assert shell.run("run", "--session", "chat-42", "two").code == 0
    (row,) = shell.sessions()
    assert (row["id"], row["turns"]) == ("chat-42", 2)


def test_a_new_label_is_not_taken_for_the_beginning_of_another(shell: Shell) -> None:
    """Nor is the folder of another session, with its own agents, taken for that of the new one."""
    for label in ("job-10", "job-11", "deadbeef-10"):
        folder = shell.folder / label
        folder.mkdir()
        shell.run("run", "-a", "scripted", "--session", label, "--workspace", label, "one")
    for label in ("job-10", "job-1", "job", "deadbeef"):
        ran = shell.run("run", "--json", "-a", "scripted", "--session", label, "two")
        assert (ran.code, ran.lines[0]["session"]) == (0, label), ran
    assert {row["id"]: row["turns"] for row in shell.sessions()} == {
        "job-10": 2, "job-11": 1, "deadbeef-10": 1, "job-1": 1, "job": 1, "deadbeef": 1,
    }  # fmt: skip


def test_the_beginning_of_a_uuid_goes_on_with_that_session(shell: Shell) -> None:
    first = shell.run("run", "--json", "-a", "scripted", "one").lines[0]["session"]
    assert shell.run("run", "--json", "--session", first[:13], "two").lines[0]["session"] == first
    assert shell.run("run", "--json", "--session", first[:20], "three").lines[0]["session"] == first
    shell.run("run", "--json", "-a", "scripted", "--session", first[:7], "four")
    assert {row["id"]: row["turns"] for row in shell.sessions()} == {first: 3, first[:7]: 1}


def test_a_uuids_beginning_that_fits_two_sessions_is_refused(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "01a22829-1bf3-77b3-8c13-250b9aa7b749", "one")
    shell.run("run", "-a", "scripted", "--session", "01a22829-2bf3-77b3-8c13-250b9aa7b749", "two")
    ran = shell.run("run", "--json", "--session", "01a22829", "three")
    assert (ran.code, ran.error["error"]) == (2, "ambiguous_id")


def test_a_session_keeps_its_agent(shell: Shell) -> None:
    shell.agents(scripted=("true",), other=("true",))
    shell.run("run", "-a", "scripted", "--session", "chat", "one")
    ran = shell.run("run", "-a", "other", "--session", "chat", "two")
    assert ran.code == 2
    assert "belongs to agent scripted" in ran.err


def test_continue_takes_the_newest_session_of_the_folder(shell: Shell) -> None:
    nothing = shell.run("run", "-c", "hello")
    assert nothing.code == 3
    shell.run("run", "-a", "scripted", "--session", "older", "one")
    shell.run("run", "-a", "scripted", "--session", "newer", "two")
    assert shell.run("run", "-c", "three").code == 0
    assert {row["id"]: row["turns"] for row in shell.sessions()} == {"older": 1, "newer": 2}
    elsewhere = shell.folder / "below"
    elsewhere.mkdir()
    assert shell.run("run", "-c", "--workspace", str(elsewhere), "four").code == 3


def test_continue_with_an_agent_takes_the_newest_session_of_that_agent(shell: Shell) -> None:
    said = agents.command(agents.SCRIPTED)
    shell.agents(one=said, two=said, three=said)
    shell.run("run", "-a", "one", "--session", "ones", "hello")
    shell.run("run", "-a", "two", "--session", "twos", "hello")
    assert shell.run("run", "-c", "-a", "one", "again").code == 0
    assert {row["id"]: row["turns"] for row in shell.sessions()} == {"ones": 2, "twos": 1}
    assert shell.run("run", "-c", "-a", "two", "again").code == 0
    none = shell.run("run", "-c", "-a", "three", "again")
    assert none.code == 3
    assert f"no session of agent three in {shell.folder} to continue" in none.err
    assert "the newest there, twos, is of two" in none.err
    assert len(shell.sessions()) == 2


def test_a_folder_that_is_not_there_is_refused(shell: Shell) -> None:
    ran = shell.run("run", "-a", "scripted", "--workspace", "missing", "hello")
    assert ran.code == 2
    assert f"there is no folder {shell.folder}/missing" in ran.err


# --- keys -----------------------------------------------------------------------------------------


def test_the_same_key_is_the_same_turn_and_another_text_a_collision(shell: Shell) -> None:
    first = shell.run("run", "--json", "-a", "scripted", "--key", "K", "[[effect:once]][[say:it]]")
    again = shell.run("run", "--json", "-a", "scripted", "--key", "K", "[[effect:once]][[say:it]]")
    assert first.lines[0] == again.lines[0]
    assert first.lines[-1] == again.lines[-1]
    assert shell.effects.read_text() == "once\n"
    assert shell.run("run", "-a", "scripted", "--key", "K", "[[effect:once]][[say:it]]").out == "it\n"
    other = shell.run("run", "--json", "-a", "scripted", "--key", "K", "another text")
    assert (other.code, other.error["error"]) == (4, "request_collision")


def test_turns_that_a_run_drains_are_shown_beside_its_result(shell: Shell) -> None:
    run = shell.start("run", "-a", "scripted", "--session", "s", "[[touch:here]][[wait:go]][[say:mine]]")
    until((shell.folder / "here").exists, "the turn runs")
    shell.run("send", "s", "--", "other words")
    shell.run("send", "s", "--", "[[exit:3]]")
    (shell.folder / "go").touch()
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "mine\n")
    lines = err.splitlines()
    assert lines.index("> other words") < lines.index("other words") < lines.index("> [[exit:3]]")
    assert "status 3" in err[err.index("> [[exit:3]]") :]


def test_duplicate_submit(shell: Shell) -> None:
    """Processes with one key meet in one session and one turn, and all exit as it ends."""
    arguments = ("run", "--json", "-a", "scripted", "--key", "K", "[[effect:{turn}]][[say:done by one]]")
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: shell.process(*arguments), range(4)))
    assert {ran.code for ran in runs} == {0}, runs
    assert len({json.dumps(ran.lines[0]) for ran in runs}) == 1
    assert {ran.lines[-1]["text"] for ran in runs} == {"done by one"}
    (row,) = shell.sessions()
    assert row["turns"] == 1
    assert shell.effects.read_text() == "K\n"


# --- output that goes away ------------------------------------------------------------------------


def test_a_closed_pipe_ends_the_printing_and_not_the_work(shell: Shell) -> None:
    flood = shell.start("run", "--json", "-a", "scripted", "[[messages:2000]][[effect:all of it]]")
    assert flood.stdout is not None
    assert flood.stderr is not None
    assert set(json.loads(flood.stdout.readline())) == {"session", "turn"}
    flood.stdout.close()
    flood.stdout = None
    assert flood.wait(30) == 0
    assert "Traceback" not in flood.stderr.read()
    assert shell.effects.read_text() == "all of it\n"


def test_a_full_output_is_an_error_in_one_line_and_the_session_goes_on(shell: Shell) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = shell.start("run", "-a", "scripted", "hello", stdout=full, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "outlast: what was to be printed cannot be written: No space left on device" in err
    assert "again" not in err, "what was sent must not be sent twice"
    assert "outlast resume" in err
    assert "Traceback" not in err


def test_no_colours_where_nobody_sees_them(shell: Shell) -> None:
    ran = shell.run("run", "-a", "scripted", "[[tool:t:ls:completed]][[say:hi]]")
    assert "\x1b" not in ran.out + ran.err


def test_a_person_knows_the_session_from_the_beginning(shell: Shell) -> None:
    master, slave = pty.openpty()
    run = shell.start("run", "-a", "scripted", "--session", "s", "[[wait:go]]", **on_terminal(slave))
    os.close(slave)
    seen = reader(master)
    until(lambda: "session s (agent scripted)" in seen(), "the session's id")
    (shell.folder / "go").touch()
    run.communicate(timeout=30)
    os.close(master)
    assert "session s" not in shell.run("run", "--session", "s", "hello").err


def test_early_id(shell: Shell) -> None:
    """An id that was shown is known for ever, however soon after it the process is killed."""
    process = shell.start("run", "--json", "-a", "scripted", "[[effect:ran]]")
    assert process.stdout is not None
    ids = json.loads(process.stdout.readline())
    process.kill()
    process.communicate(timeout=30)
    shown = shell.json("show", ids["session"])
    known = [*(turn["turn"] for turn in shown["turns"]), *(item["request_id"] for item in shown["queue"])]
    assert ids["turn"] in known
    assert shell.run("resume", ids["session"]).code == 0
    assert shell.effects.read_text() == "ran\n"


def test_cwd_keyed(shell: Shell) -> None:
    """A session whose folder was renamed is still listed, shown and followed."""
    folder = shell.folder / "before"
    folder.mkdir()
    shell.run("run", "-a", "scripted", "--session", "s", "--workspace", "before", "[[say:hi]]")
    folder.rename(shell.folder / "after")
    assert [row["id"] for row in shell.json("ls")] == ["s"]
    assert shell.json("show", "s")["turns"][0]["outcome"] == "done"
    ran = shell.run("run", "--json", "--session", "s", "again")
    assert (ran.code, ran.lines[-1]["outcome"]) == (1, "parked")
    assert "is not there" in ran.lines[-1]["receipt"]["error"]["message"]
    (shell.folder / "after").rename(folder)
    assert shell.run("run", "--session", "s", "[[say:back]]").out == "back\n"
