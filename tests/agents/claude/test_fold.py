"""The fold against frames made by hand: orders and faults that a recording does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from outlast.agents.claude import Claude
from outlast.agents.claude.requests import message_key
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    Delta,
    ExitInfo,
    Failure,
    FoldContext,
    GateAnswer,
    GateClosed,
    GateRequested,
    InputLine,
    Landed,
    Message,
    Notice,
    NotLanded,
    Prompt,
    Raw,
    SessionConfirmed,
    SessionLost,
    SessionObserved,
    StartFailed,
    ToolCall,
    TurnEnded,
    Wanted,
)
from outlast.agents.failure import TAXONOMY
from outlast.errors import InvalidRecordError
from outlast.records.types import Content

SESSION = "01a227de-0000-7000-8000-000000000001"


def a_prompt(key: str = "r1", attempt: int = 1, text: str = "hello", notice: str = "") -> Prompt:
    return Prompt(key, attempt, key, (Content(text=text),), notice=notice)


class Lab:
    """The fold, with the frames of a Claude Code that does what the test says."""

    def __init__(self, *, confirmed: bool = False) -> None:
        self.fold = Claude().fold(FoldContext("session", "main", "/workspace", SESSION, confirmed))
        self.written: list[dict[str, Any]] = []

    def write(self, **wanted: Any) -> list[dict[str, Any]]:
        """All that the fold wants to write now."""
        begun = len(self.written)
        while isinstance(line := self.fold.next(Wanted(**wanted)), InputLine):
            self.written.append(json.loads(line.line))
            assert self.fold.apply_in(line.line.rstrip(b"\n"), self.fold.last_input + 1) == []
        return self.written[begun:]

    def out(self, kind: str, **fields: Any) -> list[AgentEvent]:
        frame = {"type": kind, "session_id": SESSION, "uuid": "own", **fields}
        return self.fold.apply_out(json.dumps(frame).encode())

    def ready(self) -> Lab:
        [hello] = self.write()
        self.out("control_response", response={"subtype": "success", "request_id": hello["request_id"]})
        return self

    def prompt(self, key: str = "r1", **wanted: Any) -> str:
        """Write a prompt; its uuid."""
        [frame] = self.write(prompt=a_prompt(key), session_durable=True, **wanted)
        return str(frame["uuid"])

    def running(self, key: str = "r1", **wanted: Any) -> Lab:
        """A turn that Claude Code has begun and whose prompt has landed."""
        self.uuid = self.prompt(key, **wanted)
        self.lifecycle("queued")
        self.lifecycle("started")
        self.mirror({"type": "user", "uuid": self.uuid})
        return self

    def lifecycle(self, state: str, uuid: str | None = None) -> list[AgentEvent]:
        return self.out("command_lifecycle", command_uuid=uuid or self.uuid, state=state)

    def mirror(self, *entries: Mapping[str, Any]) -> list[AgentEvent]:
        return self.out("transcript_mirror", filePath="x", entries=list(entries))

    def says(self, *blocks: Mapping[str, Any], **fields: Any) -> list[AgentEvent]:
        message = {"model": "m", "role": "assistant", "content": list(blocks)}
        return self.out("assistant", message=message, parent_tool_use_id=None, **fields)

    def results(self, *blocks: Mapping[str, Any]) -> list[AgentEvent]:
        return self.out("user", message={"role": "user", "content": list(blocks)}, parent_tool_use_id=None)

    def ends(self, *uuids: str, **fields: Any) -> list[AgentEvent]:
        taken = list(uuids or (self.uuid,))
        told = {
            "subtype": "success",
            "is_error": False,
            "stop_reason": "end_turn",
            "user_message_uuids": taken,
        }
        return self.out("result", **{**told, **fields})

    def fails(self, **fields: Any) -> list[AgentEvent]:
        return self.ends(**{"is_error": True, "terminal_reason": "api_error", **fields})

    def asks(self, request: str = "q1", **fields: Any) -> list[AgentEvent]:
        asked = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, **fields}
        return self.out("control_request", request_id=request, request=asked)


def use(call: str = "c1", name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {"command": "ls"}}


def outcome(call: str = "c1", content: Any = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **fields}


# --- the handshake ----------------------------------------------------------------------------------


def test_the_handshake_comes_before_any_prompt() -> None:
    lab = Lab()
    [hello] = lab.write(prompt=a_prompt(), session_durable=True)
    assert hello["request"]["subtype"] == "initialize"
    assert lab.out("control_response", response={"subtype": "success", "request_id": "another"}) == []
    events = lab.out("control_response", response={"subtype": "success", "request_id": hello["request_id"]})
    assert events == [SessionObserved(SESSION, "chosen")]
    assert [frame["type"] for frame in lab.write(prompt=a_prompt(), session_durable=True)] == ["user"]


def test_early_id_no_prompt_is_written_before_the_session_is_durable() -> None:
    lab = Lab().ready()
    assert lab.write(prompt=a_prompt()) == []
    [frame] = lab.write(prompt=a_prompt(), session_durable=True)
    assert (frame["uuid"], frame["session_id"]) == (
        message_key(SESSION, a_prompt(), steer=False),
        SESSION,
    )


def test_a_prompts_line_names_the_request_that_it_carries() -> None:
    line = Lab().ready().fold.next(Wanted(prompt=a_prompt(), session_durable=True))
    assert isinstance(line, InputLine)
    assert line.carries == "r1"


def test_a_notice_is_a_block_of_its_own_before_the_text() -> None:
    prompt = a_prompt(notice="facts", text="and now")
    [frame] = Lab().ready().write(prompt=prompt, session_durable=True)
    assert [block["text"] for block in frame["message"]["content"]] == ["facts", "and now"]


def test_a_refused_handshake_fails_the_start_and_the_process_is_let_go() -> None:
    lab = Lab()
    [hello] = lab.write()
    response = {"subtype": "error", "request_id": hello["request_id"], "error": "no"}
    [failed] = lab.out("control_response", response=response)
    assert isinstance(failed, StartFailed)
    assert failed.failure.code == "version_unsupported"
    assert lab.fold.ending
    assert lab.fold.next(Wanted(prompt=a_prompt(), session_durable=True)) == CloseStdin()


def test_a_session_that_cannot_be_opened_for_another_reason_is_not_lost() -> None:
    lab = Lab(confirmed=True)
    lab.write()
    [failed] = lab.out("result", subtype="error_during_execution", is_error=True, errors=["no disk"])
    assert isinstance(failed, StartFailed)
    assert failed.failure.code == "unknown"
    assert lab.out("result", subtype="error_during_execution", is_error=True, errors=["again"]) == []


def test_wrong_adopt_a_process_that_works_in_another_session_is_no_part_of_this_one() -> None:
    lab = Lab(confirmed=True).ready()
    lab.uuid = lab.prompt()
    events = lab.out("system", subtype="init", session_id="another")
    assert [type(event) for event in events] == [SessionLost, TurnEnded]
    assert lab.fold.ending


def test_a_conversation_that_the_user_clears_goes_on_in_a_session_that_is_told() -> None:
    """Also for an owner that reads all of it later, and knows the new session already."""
    later = Claude().fold(FoldContext("session", "main", "/workspace", "new", False))
    lab = Lab(confirmed=True).ready()
    lab.uuid = lab.prompt()
    frames = [
        {"type": "control_response", "response": {"subtype": "success", "request_id": "outlast-1"}},
        {"type": "command_lifecycle", "command_uuid": lab.uuid, "state": "queued", "session_id": SESSION},
        {"type": "conversation_reset", "trigger": "clear", "session_id": SESSION},
        {"type": "system", "subtype": "init", "session_id": "new"},
        {"type": "result", "subtype": "success", "user_message_uuid": lab.uuid, "session_id": "new"},
    ]
    later.apply_in(json.dumps(lab.written[0]).encode(), 1)
    events = later.apply_out(json.dumps(frames[0]).encode())
    later.apply_in(json.dumps(lab.written[1]).encode(), 2)
    told: list[AgentEvent] = []
    for frame in frames[1:]:
        told += lab.fold.apply_out(json.dumps(frame).encode())
        events += later.apply_out(json.dumps(frame).encode())
    assert told == [SessionObserved("new"), TurnEnded("r1", "end_turn")]
    assert events[1:] == told
    [frame] = lab.write(prompt=a_prompt("r2"), session_durable=True)
    assert frame["session_id"] == "new"


# --- a prompt ---------------------------------------------------------------------------------------


def test_reconnect_dup_a_written_prompt_is_not_written_again_but_a_new_attempt_is() -> None:
    lab = Lab().ready().running()
    assert lab.write(prompt=a_prompt(), session_durable=True) == []
    lab.ends()
    assert lab.write(prompt=a_prompt(), session_durable=True) == []
    [frame] = lab.write(prompt=a_prompt(attempt=2), session_durable=True)
    assert frame["uuid"] != lab.uuid


def test_landed_is_what_the_transcript_has_and_neither_the_echo_nor_the_start() -> None:
    lab = Lab().ready()
    lab.uuid = lab.prompt()
    assert lab.lifecycle("queued") == []
    assert lab.lifecycle("started") == []
    echo = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    assert lab.out("user", uuid=lab.uuid, isReplay=True, message=echo) == []
    assert lab.mirror({"type": "user", "uuid": "another"}, {"type": "mode"}) == []
    assert lab.mirror({"type": "user", "uuid": lab.uuid}) == [Landed("r1")]
    assert lab.mirror({"type": "user", "uuid": lab.uuid}) == []


@pytest.mark.parametrize("told", ["echo", "completed"])
def test_dedupe_hang_a_message_that_never_was_in_the_queue_has_been_taken_before(told: str) -> None:
    lab = Lab(confirmed=True).ready()
    lab.uuid = lab.prompt()
    if told == "echo":
        [ended] = lab.out("user", uuid=lab.uuid, isReplay=True, message={"role": "user", "content": []})
    else:
        [ended] = lab.lifecycle("completed")
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert "already" in ended.failure.message
    assert lab.fold.turn is None
    assert lab.lifecycle("completed") == []


def test_never_settles_a_message_that_is_refused_ends_its_turn() -> None:
    lab = Lab().ready()
    lab.uuid = lab.prompt()
    [ended] = lab.lifecycle("refused")
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None


def test_a_prompt_that_is_cancelled_before_it_was_begun_ends_without_a_result() -> None:
    lab = Lab().ready()
    lab.uuid = lab.prompt()
    lab.lifecycle("queued")
    [frame] = lab.write(prompt=a_prompt(), session_durable=True, cancel=True)
    assert frame["request"] == {"subtype": "interrupt", "cancel_queued": True}
    [ended] = lab.lifecycle("cancelled")
    assert ended == TurnEnded("r1", "cancelled", cancelled=True)


def test_a_turn_that_was_done_before_its_cancel_came_is_done() -> None:
    lab = Lab(confirmed=True).ready().running()
    lab.write(prompt=a_prompt(), session_durable=True, cancel=True)
    assert lab.ends() == [TurnEnded("r1", "end_turn")]


def test_an_interrupt_is_asked_for_once_and_only_while_a_turn_runs() -> None:
    lab = Lab().ready()
    assert lab.write(prompt=a_prompt(), session_durable=True, cancel=True) == []
    lab.running()
    assert len(lab.write(prompt=a_prompt(), session_durable=True, cancel=True)) == 1
    assert lab.write(prompt=a_prompt(), session_durable=True, cancel=True) == []
    ended = lab.ends(is_error=True, terminal_reason="aborted_tools", subtype="error_during_execution")[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.cancelled


# --- results ----------------------------------------------------------------------------------------


def test_a_result_of_the_programs_own_ends_no_turn_of_ours() -> None:
    lab = Lab(confirmed=True).ready()
    lab.uuid = lab.prompt()
    own = {"user_message_uuids": [], "origin": {"kind": "task-notification"}}
    assert lab.ends(**own) == []
    lab.lifecycle("queued")
    lab.lifecycle("started")
    assert lab.ends(**own) == []
    assert lab.fold.turn == "r1"
    assert [type(event) for event in lab.ends()] == [TurnEnded]


def test_a_result_that_names_no_message_ends_the_turn_that_was_begun() -> None:
    lab = Lab(confirmed=True).ready()
    lab.uuid = lab.prompt()
    assert lab.ends(user_message_uuids=[]) == []
    lab.lifecycle("queued")
    lab.lifecycle("started")
    assert [type(event) for event in lab.ends(user_message_uuids=[])] == [TurnEnded]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"api_error_status": 401}, "auth_failed"),
        ({"api_error_status": 429}, "rate_limited"),
        ({"api_error_status": 429, "result": "Claude usage limit reached"}, "quota_exhausted"),
        ({"api_error_status": 429, "api_error": "usage_limit_reached"}, "quota_exhausted"),
        ({"api_error_status": 400, "result": "Your credit balance is too low"}, "quota_exhausted"),
        ({"api_error_status": 529}, "provider_overloaded"),
        ({"api_error_status": 503}, "provider_overloaded"),
        ({"api_error_status": 400}, "unknown"),
        ({"api_error": "connection_failed"}, "transport_lost"),
        ({"result": "Not logged in · Please run /login"}, "auth_failed"),
        ({"result": "API Error: API returned an empty or malformed response (HTTP 200)"}, "transport_lost"),
        (
            {
                "api_error_status": 429,
                "result": "Server is temporarily limiting requests (not your usage limit) · slow down",
            },
            "rate_limited",
        ),
        ({"subtype": "error_max_turns", "terminal_reason": "max_turns", "errors": ["enough"]}, "unknown"),
        ({"terminal_reason": "aborted_streaming"}, "cancelled"),
    ],
)
def test_the_words_of_a_failed_result_decide_the_failure(fields: dict[str, Any], code: str) -> None:
    lab = Lab(confirmed=True).ready().running()
    *_, ended = lab.fails(**fields)
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert ended.failure.code == code
    assert code in TAXONOMY


TOLD = "2026-01-31T12:00:00.000Z"
RESETS = 1_769_860_800 + 1_800  # half an hour after TOLD


def refused(lab: Lab, **fields: Any) -> Failure:
    """The failure of a turn whose model call was refused with 429."""
    lab.says(is_api_error_message=True, error="rate_limit", timestamp=TOLD, **fields)
    *_, ended = lab.fails(api_error_status=429)
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    return ended.failure


def retries(lab: Lab, delay_ms: int) -> None:
    lab.out("system", subtype="api_retry", attempt=1, max_retries=2, retry_delay_ms=delay_ms)


def test_retry_after_is_the_pause_that_the_program_was_asked_for() -> None:
    """It does not pass the header on: it tells how long it waits because of it."""
    lab = Lab(confirmed=True).ready().running()
    retries(lab, 33_000)
    retries(lab, 44_000)
    assert refused(lab).retry_after == 44.0


def test_retry_after_of_a_call_that_went_well_is_none() -> None:
    lab = Lab(confirmed=True).ready().running()
    retries(lab, 33_000)
    lab.says({"type": "text", "text": "well"})
    assert refused(lab).retry_after is None


def test_retry_after_of_an_earlier_turn_is_none() -> None:
    lab = Lab(confirmed=True).ready().running()
    retries(lab, 33_000)
    lab.ends()
    assert refused(lab.running("r2")).retry_after is None


def test_a_used_up_quota_says_when_it_is_there_again() -> None:
    lab = Lab(confirmed=True).ready().running()
    params = {"rate_limit_info": {"status": "rejected", "resetsAt": RESETS}}
    failure = refused(lab, api_error="usage_limit_reached", api_error_params=params)
    assert (failure.code, failure.retry_after) == ("quota_exhausted", 1_800.0)


@pytest.mark.parametrize(("status", "after"), [("rejected", 1_800.0), ("allowed_warning", None)])
def test_a_limit_that_was_told_before_the_error_counts_where_it_refused(
    status: str, after: float | None
) -> None:
    lab = Lab(confirmed=True).ready().running()
    assert lab.out("rate_limit_event", rate_limit_info={"status": status, "resetsAt": RESETS}) == []
    assert refused(lab, api_error="usage_limit_reached").retry_after == after


@pytest.mark.parametrize("odd", [7, "noon", None])
def test_an_error_of_an_odd_time_is_an_error_all_the_same(odd: Any) -> None:
    lab = Lab(confirmed=True).ready().running()
    lab.says(is_api_error_message=True, error="rate_limit", timestamp=odd)
    *_, ended = lab.fails(api_error_status=429)
    assert isinstance(ended, TurnEnded)


def test_the_programs_own_word_decides_where_there_is_no_status() -> None:
    lab = Lab(confirmed=True).ready().running()
    text = {"type": "text", "text": "Not logged in"}
    assert lab.says(text, is_api_error_message=True, error="authentication_failed") == []
    [ended] = lab.fails(result="a text that says nothing")
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert ended.failure.code == "auth_failed"


def test_a_failed_turn_is_gone_on_with_only_where_the_transcript_has_its_prompt_and_no_call_is_open() -> None:
    def retry(lab: Lab) -> object:
        *_, ended = lab.fails(api_error_status=529)
        assert isinstance(ended, TurnEnded)
        assert ended.failure is not None
        return ended.failure.retry

    assert retry(Lab(confirmed=True).ready().running()) == "continue"
    unstored = Lab(confirmed=True).ready()
    unstored.uuid = unstored.prompt()
    assert retry(unstored) is None
    open_call = Lab(confirmed=True).ready().running()
    open_call.says(use())
    assert retry(open_call) is None


def test_credential_leak_what_looks_like_a_key_does_not_get_into_a_failure() -> None:
    lab = Lab(confirmed=True).ready().running()
    message = "401 for sk-ant-abcdef123456 with Authorization: Bearer eyJhbGciOi.abcdefghijk.xyz"
    *_, ended = lab.fails(api_error_status=401, result=message)
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert not re.search("abcdef|eyJ", ended.failure.message)


def test_usage_is_of_all_models_and_in_whole_numbers() -> None:
    lab = Lab(confirmed=True).ready().running()
    used = {
        "m": {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 7, "costUSD": 0.000105},
        "n": {"inputTokens": 1, "thinkingTokens": 3, "costUSD": 0.0000014},
    }
    [ended] = lab.ends(model_usage_since_last_result=used)
    assert isinstance(ended, TurnEnded)
    assert ended.usage == {
        "input_tokens": 11,
        "output_tokens": 5,
        "cached_input_tokens": 7,
        "reasoning_output_tokens": 3,
        "cost_micro_usd": 106,
    }


def test_a_session_is_confirmed_once_and_only_by_a_prompt_that_landed() -> None:
    lab = Lab().ready()
    lab.uuid = lab.prompt()
    lab.lifecycle("started")
    assert [type(event) for event in lab.ends()] == [TurnEnded]
    lab.running("r2")
    assert [type(event) for event in lab.ends()] == [SessionConfirmed, TurnEnded]
    lab.running("r3")
    assert [type(event) for event in lab.ends()] == [TurnEnded]


# --- messages and calls -----------------------------------------------------------------------------


def test_blocks_of_many_kinds_are_messages_and_calls() -> None:
    lab = Lab().ready().running()
    assert lab.says({"type": "thinking", "thinking": "hm", "signature": "x"}) == [Message("thought", "hm")]
    assert lab.says({"type": "redacted_thinking", "data": "x"}) == []
    assert lab.says({"type": "text", "text": ""}) == []
    assert lab.says({"type": "text", "text": "hi"}) == [Message("assistant", "hi")]
    [call] = lab.says(use())
    assert call == ToolCall("c1", "Bash", "started", input='{"command": "ls"}')
    assert lab.fold.open_calls == 1
    assert lab.results(outcome(content=[{"type": "text", "text": "a"}, {"type": "image"}])) == [
        ToolCall("c1", "Bash", "completed", output="a\n[image]")
    ]
    assert lab.fold.open_calls == 0


def test_parallel_calls_each_have_their_outcome() -> None:
    lab = Lab().ready().running()
    lab.says(use("c1"), use("c2", "Read"))
    assert lab.results(outcome("c2", is_error=True), outcome("c1")) == [
        ToolCall("c2", "Read", "failed", output="done"),
        ToolCall("c1", "Bash", "completed", output="done"),
    ]


def test_a_subagents_words_are_not_the_agents_own() -> None:
    lab = Lab().ready().running()
    inner = {"model": "m", "content": [{"type": "text", "text": "inner"}, use("c9")]}
    assert [type(event) for event in lab.out("assistant", message=inner, parent_tool_use_id="c1")] == [
        ToolCall
    ]
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "inner"}}
    assert lab.out("stream_event", event=delta, parent_tool_use_id="c1") == []


def test_words_come_as_they_are_written_and_are_kept_when_they_are_cut_off() -> None:
    lab = Lab(confirmed=True).ready().running()
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "half"}}
    assert lab.out("stream_event", event=delta, parent_tool_use_id=None) == [Delta("half")]
    assert lab.fold.apply_exit(ExitInfo(None, 9))[0] == Message("assistant", "half", cut=True)


def test_uncapped_log_a_partial_message_is_kept_up_to_a_limit() -> None:
    lab = Lab().ready().running()
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x" * 50_000}}
    for _ in range(4):
        lab.out("stream_event", event=delta, parent_tool_use_id=None)
    assert len(lab.fold.dump()) < 70_000


def test_a_whole_message_takes_the_place_of_its_pieces() -> None:
    lab = Lab(confirmed=True).ready().running()
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "half"}}
    lab.out("stream_event", event=delta, parent_tool_use_id=None)
    assert lab.says({"type": "text", "text": "half and half"}) == [Message("assistant", "half and half")]
    assert [type(event) for event in lab.ends()] == [TurnEnded]


def test_uncapped_log_a_calls_long_output_is_kept_at_both_ends() -> None:
    lab = Lab().ready().running()
    lab.says(use())
    [call] = lab.results(outcome(content="begin" + "x" * 1_000_000 + "end"))
    assert isinstance(call, ToolCall)
    assert len(call.output) < 70_000
    assert call.output.startswith("begin")
    assert call.output.endswith("end")


def test_that_the_program_tries_again_by_itself_is_shown_and_no_progress() -> None:
    lab = Lab().ready().running()
    retry = {
        "attempt": 1,
        "max_retries": 10,
        "retry_delay_ms": 581,
        "error_status": 529,
        "error": "overloaded",
    }
    assert lab.out("system", subtype="api_retry", **retry) == [
        Notice("claude: the model call failed (529 overloaded); try 1 of 10 in 0.6 s")
    ]


# --- MCP servers ------------------------------------------------------------------------------------


def servers(lab: Lab, **status: str) -> list[AgentEvent]:
    told = [{"name": name, "status": said} for name, said in status.items()]
    return lab.out("system", subtype="init", mcp_servers=told)


def test_a_server_that_does_not_start_is_told_once_as_long_as_it_does_not() -> None:
    lab = Lab().ready().running()
    [notice] = servers(lab, near="connected", gone="failed", far="pending")
    assert notice == Notice("the MCP server gone did not start")
    assert servers(lab, gone="failed") == []
    assert servers(lab, gone="connected") == []
    assert servers(lab, gone="needs-auth") == [notice]


# --- gates ------------------------------------------------------------------------------------------


def permission(lab: Lab, request: str = "q1", **fields: Any) -> GateRequested:
    [gate] = lab.asks(request, **fields)
    assert isinstance(gate, GateRequested)
    return gate


def test_gate_wrong_an_answer_goes_to_the_request_that_it_was_given_for_and_once() -> None:
    lab = Lab().ready().running()
    first, second = permission(lab, "q1"), permission(lab, "q2")
    wrong = GateAnswer(second.gate, first.payload, "allow_once")
    assert lab.write(answers=(wrong,)) == []
    [frame] = lab.write(answers=(GateAnswer(first.gate, first.payload, "allow_once"),))
    assert frame["response"] == {
        "subtype": "success",
        "request_id": "q1",
        "response": {"behavior": "allow"},
    }
    assert lab.write(answers=(GateAnswer(first.gate, first.payload, "allow_once"),)) == []


def test_an_answered_gate_is_not_told_as_closed_when_its_turn_ends() -> None:
    lab = Lab(confirmed=True).ready().running()
    gate = permission(lab)
    lab.write(answers=(GateAnswer(gate.gate, gate.payload, "reject_once"),))
    assert [type(event) for event in lab.ends()] == [TurnEnded]


def test_a_gate_that_the_program_takes_back_is_closed() -> None:
    lab = Lab().ready().running()
    gate = permission(lab)
    assert lab.out("control_cancel_request", request_id=gate.gate) == [GateClosed(gate.gate)]
    assert lab.out("control_cancel_request", request_id=gate.gate) == []
    assert lab.write(answers=(GateAnswer(gate.gate, gate.payload, "allow_once"),)) == []


def asks_two(lab: Lab) -> list[GateRequested]:
    """Two questions in one request."""
    questions = [{"question": word, "options": [{"label": "yes"}, {"label": "no"}]} for word in ("A?", "B?")]
    asked = lab.asks("q7", tool_name="AskUserQuestion", input={"questions": questions})
    return [gate for gate in asked if isinstance(gate, GateRequested)]


def test_several_questions_are_answered_in_one_line_once_all_of_them_are() -> None:
    lab = Lab().ready().running()
    first, second = (GateAnswer(gate.gate, gate.payload, "no") for gate in asks_two(lab))
    assert lab.write(answers=(second,)) == []
    [frame] = lab.write(answers=(second, first))
    assert frame["response"]["request_id"] == "q7"
    assert frame["response"]["response"]["updatedInput"]["answers"] == {"A?": "no", "B?": "no"}
    assert lab.write(answers=(second, first)) == []
    assert not any(isinstance(event, GateClosed) for event in lab.ends())


def test_several_questions_that_the_program_takes_back_are_all_closed() -> None:
    lab = Lab().ready().running()
    names = [gate.gate for gate in asks_two(lab)]
    assert lab.out("control_cancel_request", request_id="q7") == [GateClosed(name) for name in names]
    assert lab.write(answers=()) == []


def test_a_choice_that_was_not_offered_refuses_the_whole_request() -> None:
    lab = Lab().ready().running()
    first, second = asks_two(lab)
    wrong = (GateAnswer(first.gate, first.payload, "yes"), GateAnswer(second.gate, second.payload, "maybe"))
    [frame] = lab.write(answers=wrong)
    assert (frame["response"]["subtype"], frame["response"]["request_id"]) == ("error", "q7")
    assert lab.write(answers=wrong) == []


def test_never_settles_a_question_that_no_choice_can_answer_is_refused_and_told() -> None:
    lab = Lab().ready().running()
    [notice] = lab.asks("q7", tool_name="AskUserQuestion", input={"questions": [{"question": "Name?"}]})
    assert isinstance(notice, Notice)
    assert "AskUserQuestion" in notice.text
    [frame] = lab.write()
    assert frame["response"]["subtype"] == "error"


def test_never_settles_a_request_of_an_unknown_kind_is_refused() -> None:
    lab = Lab().ready().running()
    assert lab.out("control_request", request_id="q9", request={"subtype": "hook_callback"}) == []
    [frame] = lab.write()
    assert frame["response"]["request_id"] == "q9"
    assert frame["response"]["subtype"] == "error"
    assert lab.write() == []


# --- steers -----------------------------------------------------------------------------------------


def steer(lab: Lab, *keys: str, **wanted: Any) -> list[dict[str, Any]]:
    """All that the fold writes when these inputs are to join the turn `r1`."""
    steers = tuple(Prompt("r1", 1, key, (Content(text=f"text of {key}"),)) for key in keys)
    return lab.write(prompt=a_prompt(), steer=steers, session_durable=True, **wanted)


def test_a_steers_line_carries_its_input_under_a_key_of_its_own() -> None:
    lab = Lab().ready().running()
    wanted = Wanted(prompt=a_prompt(), steer=(a_prompt("s1"),), session_durable=True)
    line = lab.fold.next(wanted)
    assert isinstance(line, InputLine)
    assert line.carries == "s1"
    assert message_key(SESSION, a_prompt("s1"), steer=True) != message_key(
        SESSION, a_prompt("s1"), steer=False
    )


def test_a_steer_is_written_once_and_each_in_its_order() -> None:
    lab = Lab().ready().running()
    assert [frame["outlast"]["request"] for frame in steer(lab, "s1", "s2")] == ["s1", "s2"]
    assert steer(lab, "s1", "s2") == []
    assert lab.fold.unsettled == {"s1", "s2"}


def test_no_steer_before_the_prompt_is_stored_after_a_cancel_or_after_the_end() -> None:
    lab = Lab(confirmed=True).ready()
    lab.uuid = lab.prompt()
    assert steer(lab, "s1") == []
    lab.mirror({"type": "user", "uuid": lab.uuid})
    assert [frame["type"] for frame in steer(lab, "s1", cancel=True)] == ["control_request"]
    assert steer(lab, "s1") == []
    lab.ends(is_error=True, terminal_reason="aborted_tools")
    assert steer(lab, "s1") == []


@pytest.mark.parametrize("evidence", ["attachment", "result", "completed"])
def test_a_steer_lands_by_the_transcript_or_by_the_turn_that_has_taken_it(evidence: str) -> None:
    lab = Lab(confirmed=True).ready().running()
    [frame] = steer(lab, "s1")
    assert lab.lifecycle("queued", frame["uuid"]) == []
    assert lab.lifecycle("started", frame["uuid"]) == []
    if evidence == "attachment":
        entry = {"type": "attachment", "uuid": "x", "attachment": {"source_uuid": frame["uuid"]}}
        assert lab.mirror(entry) == [Landed("s1")]
    elif evidence == "completed":
        assert lab.lifecycle("completed", frame["uuid"]) == [Landed("s1")]
    else:
        assert [type(event) for event in lab.ends(lab.uuid, frame["uuid"])] == [Landed, TurnEnded]
    assert lab.fold.unsettled == frozenset()


def test_a_turn_with_a_waiting_steer_ends_with_what_is_made_of_that() -> None:
    """Claude Code begins it by itself after its result; usage and end are of both."""
    lab = Lab(confirmed=True).ready().running()
    [frame] = steer(lab, "s1")
    used = {"m": {"outputTokens": 5}}
    assert lab.ends(model_usage_since_last_result=used) == []
    assert lab.fold.turn == "r1"
    assert lab.fold.unsettled == {"s1"}
    assert steer(lab, "s1", "s2") == []  # what comes now would be later still
    events = lab.ends(frame["uuid"], model_usage_since_last_result=used)
    assert events == [Landed("s1"), TurnEnded("r1", "end_turn", usage={"output_tokens": 10})]


def test_a_waiting_steer_that_is_dropped_lets_its_turn_end() -> None:
    lab = Lab(confirmed=True).ready().running()
    [frame] = steer(lab, "s1")
    lab.ends()
    assert [type(event) for event in lab.lifecycle("cancelled", frame["uuid"])] == [NotLanded, TurnEnded]


def test_a_steer_that_was_begun_has_joined_also_where_it_is_called_cancelled() -> None:
    """A model may have seen it: given again it would be there twice."""
    lab = Lab(confirmed=True).ready().running()
    [frame] = steer(lab, "s1")
    lab.lifecycle("started", frame["uuid"])
    assert lab.lifecycle("cancelled", frame["uuid"]) == [Landed("s1")]


def late_steer(lab: Lab) -> str:
    """A steer that the spool has after the turn's end: written before that was read."""
    line = lab.fold.next(Wanted(prompt=a_prompt(), steer=(a_prompt("s1"),), session_durable=True))
    assert isinstance(line, InputLine)
    assert [type(event) for event in lab.ends()] == [TurnEnded]
    assert lab.fold.apply_in(line.line, lab.fold.last_input + 1) == []
    return str(json.loads(line.line)["uuid"])


def test_a_steer_that_came_too_late_is_taken_back() -> None:
    """Claude Code would make a turn of its own of it, which nobody has begun."""
    lab = Lab(confirmed=True).ready().running()
    uuid = late_steer(lab)
    assert lab.fold.unsettled == {"s1"}
    [frame] = steer(lab, "s1")
    assert frame["request"] == {"subtype": "cancel_async_message", "message_uuid": uuid}
    assert steer(lab, "s1") == []
    answer = {"subtype": "success", "request_id": frame["request_id"], "response": {"cancelled": False}}
    assert lab.out("control_response", response=answer) == []
    assert lab.lifecycle("cancelled", uuid) == [
        NotLanded("s1", "claude dropped it before its turn ended"),
    ]
    assert lab.fold.unsettled == frozenset()


def test_a_steer_that_came_too_late_and_was_begun_is_waited_for() -> None:
    lab = Lab(confirmed=True).ready().running()
    uuid = late_steer(lab)
    lab.lifecycle("started", uuid)
    assert steer(lab, "s1") == []
    assert lab.mirror({"type": "user", "uuid": uuid}) == []
    assert lab.fold.unsettled == {"s1"}
    assert lab.write(prompt=a_prompt("r2"), session_durable=True) == []
    assert lab.ends(uuid) == [Landed("s1")]
    assert [frame["type"] for frame in lab.write(prompt=a_prompt("r2"), session_durable=True)] == ["user"]


def test_a_steer_dies_undecided_with_the_process() -> None:
    lab = Lab().ready().running()
    steer(lab, "s1")
    events = lab.fold.apply_exit(ExitInfo(None, 9))
    assert [type(event) for event in events] == [TurnEnded]
    assert lab.fold.unsettled == {"s1"}


def test_a_process_that_dies_while_a_steer_keeps_the_end_has_still_ended_the_turn() -> None:
    lab = Lab(confirmed=True).ready().running()
    steer(lab, "s1")
    lab.ends()
    [ended] = lab.fold.apply_exit(ExitInfo(None, 9))
    assert ended == TurnEnded("r1", "end_turn")
    assert lab.fold.unsettled == {"s1"}


# --- lines ------------------------------------------------------------------------------------------


def test_output_that_is_not_of_the_protocol_is_kept_and_counted() -> None:
    lab = Lab().ready()
    assert lab.fold.apply_out(b"[SandboxDebug] x") == [Raw("[SandboxDebug] x")]
    assert lab.fold.apply_out(b'{"type": "assistant", "message": 1}') == [
        Raw('{"type": "assistant", "message": 1}')
    ]
    assert lab.fold.apply_out(b'{"type": "of_a_later_version"}') == []


def test_torn_utf8_half_a_character_in_an_escape_costs_no_line() -> None:
    lab = Lab().ready().running()
    block = rb'{"type":"text","text":"a\ud83d"}'
    line = b'{"type":"assistant","parent_tool_use_id":null,"message":{"content":[' + block + b"]}}"
    assert lab.fold.apply_out(line) == [Message("assistant", "a\N{REPLACEMENT CHARACTER}")]


def test_huge_output_a_line_that_is_too_long_still_ends_its_call_or_its_turn() -> None:
    lab = Lab(confirmed=True).ready().running()
    lab.says(use())
    head = b'{"type":"user","message":{"content":[{"tool_use_id":"c1","type":"tool_result","content":"xx'
    raw, call = lab.fold.apply_long(head, 70_000_000)
    assert isinstance(raw, Raw)
    assert call == ToolCall("c1", "Bash", "completed", output="[70000000 bytes]")
    raw, ended = lab.fold.apply_long(b'{"type":"result","result":"xx', 70_000_000)
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert ended.failure.code == "output_limit"


def test_an_input_that_is_no_frame_of_ours_is_only_counted() -> None:
    lab = Lab().ready()
    assert lab.fold.apply_in(b"nonsense", 7) == []
    assert lab.fold.last_input == 7
    assert lab.fold.apply_in(b'{"type": "user", "message": {}}', 8) == []
    assert lab.fold.turn is None


def test_nothing_is_written_to_a_process_that_reads_no_more() -> None:
    lab = Lab().ready()
    lab.fold.apply_stdin_closed(2)
    assert lab.fold.next(Wanted(prompt=a_prompt(), session_durable=True)) is None


def test_an_end_between_turns_is_no_turns_end() -> None:
    lab = Lab().ready()
    assert lab.fold.apply_exit(ExitInfo(0, None)) == []


def test_a_state_of_another_adapter_is_refused() -> None:
    context = FoldContext("session", "main", "/workspace", SESSION, False)
    with pytest.raises(InvalidRecordError):
        Claude().fold(context, b'{"stage": "nowhere"}')
