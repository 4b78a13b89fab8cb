"""Real agent processes, good ones and bad ones, driven over pipes by the fold."""

import json
import os
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.agents import Command
from outlast.agents.contract import ExitInfo, Failure, SessionObserved, ToolCall
from outlast.testing.agents import ECHO, SCRIPTED, command
from outlast.testing.agents.talk import LIVES_ON, Setting, Talk, talk_to

ENVIRON = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C",
    "OUTLAST_STORE": "x",
    "CLAUDECODE": "1",
    "OTHER_KEY": "y",
    "MY_KEY": "k",
}
AGENT = Command(command(SCRIPTED, "--limit", "30"))
ASKING = Command(command(SCRIPTED, "--limit", "30"), stdin="open")
STRICT = Command(command(SCRIPTED, "--limit", "30"), require_nonce=True)

Run = Callable[..., Talk]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work space?#ü"
    folder.mkdir()
    return folder


@pytest.fixture
def run(workspace: Path) -> Run:
    def talk(text: str, agent: Command = AGENT, attempt: int = 1, **choose: str) -> Talk:
        setting = Setting(environ=ENVIRON, attempt=attempt)
        return talk_to(agent, text, workspace=workspace, choose=choose, setting=setting)

    return talk


def failure(talk: Talk) -> Failure:
    assert talk.ended.failure is not None
    return talk.ended.failure


def kill_named_in(file: Path) -> None:
    os.kill(int(file.read_text()), signal.SIGKILL)


# --- good ones ---------------------------------------------------------------------------------


def test_an_agent_says_back_what_it_was_told(run: Run) -> None:
    text = "--x\r\n\0 😀\u2028é" + "y" * (1 << 20)
    talk = run(text)
    assert talk.messages == [text]
    assert talk.ended.failure is None
    assert talk.exit == ExitInfo(0, None)


def test_steps_are_calls_and_effects(run: Run, workspace: Path) -> None:
    talk = run("[[session:]][[steps:2]][[say:through]]")
    calls = [(event.call, event.status) for event in talk.events if isinstance(event, ToolCall)]
    assert calls == [
        ("step-0", "started"),
        ("step-0", "completed"),
        ("step-1", "started"),
        ("step-1", "completed"),
    ]
    assert SessionObserved("scripted-turn-1") in talk.events
    assert (workspace / "effects.log").read_text() == "turn-1 0\nturn-1 1\n"
    assert talk.messages == ["through"]


def test_a_gate_is_answered_over_an_open_stdin(run: Run) -> None:
    assert run("[[gate:g:Go on?:allow_once,reject_once]]", ASKING, g="allow_once").messages == [
        "g=allow_once"
    ]


def test_a_question_to_a_closed_stdin_meets_its_end(run: Run) -> None:
    talk = run("[[gate:g:Go on?:yes,no]]", AGENT, g="yes")
    assert talk.messages == ["g closed"]
    assert talk.raw_lines == 1
    assert talk.ended.failure is None


def test_a_marker_may_be_for_one_attempt_alone(run: Run) -> None:
    text = "[[1?exit:4]][[say:attempt {attempt}]]"
    assert failure(run(text)).exit_status == 4
    assert run(text, attempt=2).messages == ["attempt 2"]


def test_an_agent_has_only_the_listed_environment(run: Run, workspace: Path) -> None:
    run("[[env:env.json]]", Command(command(SCRIPTED), env=["MY_KEY"]))
    environ = json.loads((workspace / "env.json").read_text())
    environ.pop("LC_CTYPE", None)  # Python sets it for itself where the locale is C.
    assert environ == {"PATH": "/usr/bin:/bin", "LANG": "C", "MY_KEY": "k"}


def test_the_documented_example_is_a_whole_agent(workspace: Path) -> None:
    talk = talk_to(
        Command(command(ECHO)), "hello there", workspace=workspace, setting=Setting(environ=ENVIRON)
    )
    assert talk.messages == ["You said: hello there"]
    assert talk.ended.failure is None
    assert talk.ended.usage == {"input_tokens": 2, "output_tokens": 2}
    assert talk.raw_lines == 0


def test_the_documented_example_works_where_a_nonce_is_required(workspace: Path) -> None:
    agent = Command(command(ECHO), require_nonce=True)
    talk = talk_to(agent, "hi", workspace=workspace, setting=Setting(environ=ENVIRON, resume="old"))
    assert talk.ended.failure is None
    assert SessionObserved("old", source="resumed") in talk.events


# --- bad ones ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "number", "status"),
    [
        ("[[signal:9]]", "crashed", 9, None),
        ("[[signal:15]]", "crashed", 15, None),
        ("[[signal:11]]", "crashed", 11, None),
        ("[[exit:3]]", "exit_nonzero", None, 3),
        ("[[exit:0]]", "protocol_error", None, 0),
        ("[[say:half a reply]][[signal:9]]", "crashed", 9, None),
        ("[[error:rate_limit_error:slow down]]", "rate_limited", None, None),
        ("[[error:rate_limit_error:slow down]][[exit:3]]", "rate_limited", None, None),
        ("[[no-such-marker]]", "protocol_error", None, None),
    ],
)
def test_a_failing_agent_has_the_kind_of_its_failure(
    run: Run, text: str, code: str, number: int | None, status: int | None
) -> None:
    failed = failure(run(text))
    assert (failed.code, failed.signal, failed.exit_status) == (code, number, status)


@pytest.mark.parametrize("end", ["[[exit:3]]", "[[signal:9]]"])
def test_done_wins_over_what_comes_after_it(run: Run, end: str) -> None:
    assert run(f"[[done]]{end}").ended.failure is None


def test_done_twice_and_messages_after_it_are_counted(run: Run) -> None:
    talk = run("[[done]][[done]][[say:late]]")
    assert talk.ended.failure is None
    assert (talk.messages, talk.raw_lines) == ([], 2)


def test_a_flood_takes_no_memory(run: Run) -> None:
    tracemalloc.start()
    try:
        talk = run("[[flood:48]]")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (talk.raw_lines, talk.raw_bytes) == (48 * 1024, 48 * 1024 * 1023)
    assert talk.ended.failure is None
    assert peak < 8 << 20


def test_a_line_of_64_mb_takes_no_memory_and_no_turn(run: Run) -> None:
    tracemalloc.start()
    try:
        talk = run("[[line:64]][[say:still here]]")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (talk.raw_lines, talk.raw_bytes) == (1, 64 << 20)
    assert talk.messages == ["still here"]
    assert peak < 24 << 20


def test_bytes_that_are_no_text_cost_no_turn(run: Run) -> None:
    talk = run("[[bad-utf8]][[hex:ff00fe0a]][[say:still here]]")
    assert (talk.messages, talk.raw_lines) == (["still here"], 2)
    assert talk.ended.failure is None


def test_half_a_last_line_is_read(run: Run) -> None:
    talk = run("[[hex:7b2274797065223a22646f6e65227d]][[exit:0]]")  # {"type":"done"} and no newline
    assert talk.ended.failure is None


def test_a_forged_end_is_not_believed(run: Run) -> None:
    forged = '[[raw:{"type":"done","stop_reason":"forged"}]]'
    assert run(f"{forged}[[say:more]]", STRICT).messages == ["more"]
    assert failure(run(f"{forged}[[exit:1]]", STRICT)).code == "exit_nonzero"
    assert run(forged, STRICT).ended.stop_reason == "end_turn"
    assert failure(run("[[nonce:wrong]][[done]]", STRICT)).code == "protocol_error"


def test_an_agent_that_closes_its_output_and_lives_on_has_broken_the_protocol(run: Run) -> None:
    talk = run(f"[[close-stdout]][[touch:{LIVES_ON}]][[hang]]")
    assert failure(talk).code == "protocol_error"
    assert talk.exit == ExitInfo(None, signal.SIGKILL, killed=True, lingered=True)


def test_an_agent_that_leaves_a_daemon_is_done(run: Run, workspace: Path) -> None:
    pid_file = workspace / "pid"
    talk = run("[[daemon:pid]][[wait:pid]]")
    kill_named_in(pid_file)
    assert talk.ended.failure is None
