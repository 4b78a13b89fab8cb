"""The fold against frames made by hand: orders and faults that a recording does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from outlast.agents.codex import Codex
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    Delta,
    ExitInfo,
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

THREAD = "01a227de-0000-7000-8000-000000000001"


def a_prompt(key: str = "r1", attempt: int = 1, text: str = "hello") -> Prompt:
    return Prompt(key, attempt, key, (Content(text=text),))


class Lab:
    """The fold, with the frames of a codex that does what the test says."""

    def __init__(
        self, *, resume: str | None = None, confirmed: bool = False, agent: Codex | None = None
    ) -> None:
        context = FoldContext("session", "main", "/workspace", resume, confirmed)
        self.fold = (agent or Codex()).fold(context)
        self.written: list[dict[str, Any]] = []

    def write(self, **wanted: Any) -> list[dict[str, Any]]:
        """All that the fold wants to write now."""
        begun = len(self.written)
        while isinstance(line := self.fold.next(Wanted(**wanted)), InputLine):
            self.written.append(json.loads(line.line))
            assert self.fold.apply_in(line.line.rstrip(b"\n"), self.fold.last_input + 1) == []
        return self.written[begun:]

    def says(self, method: str, **params: Any) -> list[AgentEvent]:
        return self.out({"method": method, "params": {"threadId": THREAD, **params}})

    def asks(self, request: int | str, method: str, **params: Any) -> list[AgentEvent]:
        return self.out({"id": request, "method": method, "params": {"threadId": THREAD, **params}})

    def answers(self, request: int, result: Any = None, error: Any = None) -> list[AgentEvent]:
        return self.out({"id": request, "error": error} if error else {"id": request, "result": result})

    def out(self, frame: Mapping[str, Any]) -> list[AgentEvent]:
        return self.fold.apply_out(json.dumps(frame).encode())

    def greet(self) -> Lab:
        [frame] = self.write()
        self.answers(frame["id"], {"userAgent": "codex"})
        self.opening = self.write()[-1]
        return self

    def ready(self) -> Lab:
        self.greet()
        self.answers(self.opening["id"], opened())
        return self

    def running(self, key: str = "r1", turn: str = "t1", **wanted: Any) -> Lab:
        """A turn that codex has begun and whose prompt has landed."""
        [frame] = self.write(prompt=a_prompt(key), session_durable=True, **wanted)
        self.answers(frame["id"], {"turn": {"id": turn, "items": [], "status": "inProgress"}})
        self.item("completed", {"type": "userMessage", "id": "u" + turn, "clientId": key}, turn)
        return self

    def item(self, state: str, item: Mapping[str, Any], turn: str = "t1") -> list[AgentEvent]:
        return self.says(f"item/{state}", turnId=turn, item=item)

    def ends(self, turn: str = "t1", status: str = "completed", error: Any = None) -> list[AgentEvent]:
        return self.says("turn/completed", turn={"id": turn, "status": status, "error": error, "items": []})


def opened(thread: str = THREAD, **changes: Any) -> dict[str, Any]:
    result = {"thread": {"id": thread}, "approvalPolicy": "on-request", "sandbox": {"type": "workspaceWrite"}}
    return {**result, **changes}


def command(call: str = "c1", **changes: Any) -> dict[str, Any]:
    return {"type": "commandExecution", "id": call, "command": "make", "status": "inProgress", **changes}


def test_the_handshake_opens_a_thread_before_any_prompt_is_there() -> None:
    lab = Lab(agent=Codex(model="m")).greet()
    assert [frame["method"] for frame in lab.written] == ["initialize", "initialized", "thread/start"]
    assert lab.opening["params"] == {
        "cwd": "/workspace",
        "sandbox": "workspace-write",
        "approvalPolicy": "on-request",
        "model": "m",
    }
    assert lab.answers(lab.opening["id"], opened()) == [SessionObserved(THREAD)]


def test_attachment_lost_an_image_is_given_where_it_stands_among_the_texts() -> None:
    picture = Content(type="image", text="[image a.png]", media_type="image/png", data="QUJD")
    content = (Content(text="before"), picture, Content(text="after"))
    prompt = Prompt(turn="t", attempt=1, request_id="r1", content=content)
    [frame] = Lab().ready().write(prompt=prompt, session_durable=True)
    assert frame["params"]["input"] == [
        {"type": "text", "text": "before", "text_elements": []},
        {"type": "image", "url": "data:image/png;base64,QUJD"},
        {"type": "text", "text": "after", "text_elements": []},
    ]


@pytest.mark.parametrize("resume", [THREAD, None])
def test_settings_lost_mcp_servers_are_sent_on_every_start_and_resume(resume: str | None) -> None:
    servers = {"tickets": {"command": "tickets", "args": ["--all"]}}
    lab = Lab(resume=resume, confirmed=resume is not None, agent=Codex(mcp_servers=servers)).greet()
    assert lab.opening["params"]["config"] == {"mcp_servers": servers}


def test_an_mcp_server_that_does_not_start_is_told_and_no_more() -> None:
    lab = Lab().ready().running()
    method = "mcpServer/startupStatus/updated"
    assert lab.says(method, name="tickets", status="ready", error=None) == []
    assert lab.says(method, name="tickets", status="failed", error="not there, token=abcdefgh") == [
        Notice("the MCP server tickets did not start: not there, token=[redacted]")
    ]


def test_the_id_of_a_request_is_the_sequence_number_of_its_input() -> None:
    lab = Lab().ready().running()
    assert [frame.get("id") for frame in lab.written] == [1, None, 3, 4]
    assert lab.fold.last_input == 4


def test_early_id_no_prompt_is_written_before_the_thread_id_is_durable() -> None:
    lab = Lab().ready()
    assert lab.write(prompt=a_prompt()) == []
    [frame] = lab.write(prompt=a_prompt(), session_durable=True)
    assert frame["params"]["clientUserMessageId"] == "r1"


def test_a_prompts_line_names_the_request_that_it_carries() -> None:
    line = Lab().ready().fold.next(Wanted(prompt=a_prompt(), session_durable=True))
    assert isinstance(line, InputLine)
    assert line.carries == "r1"


def test_reconnect_dup_a_written_prompt_is_not_written_again_but_a_new_attempt_is() -> None:
    lab = Lab().ready().running()
    assert lab.write(prompt=a_prompt(), session_durable=True) == []
    lab.ends()
    assert lab.write(prompt=a_prompt(), session_durable=True) == []
    [frame] = lab.write(prompt=a_prompt(attempt=2), session_durable=True)
    assert frame["params"]["clientUserMessageId"] == "r1"


def test_busy_merge() -> None:
    """A prompt waits for the end of the running turn, into which codex would merge it."""
    lab = Lab().ready().running("r1", "t1")
    assert lab.write(prompt=a_prompt("r2"), session_durable=True) == []
    lab.ends("t1")
    assert len(lab.write(prompt=a_prompt("r2"), session_durable=True)) == 1


def test_busy_merge_a_prompt_waits_for_a_turn_that_codex_began_by_itself() -> None:
    lab = Lab().ready()
    lab.says("turn/started", turn={"id": "own", "status": "inProgress", "items": []})
    assert lab.write(prompt=a_prompt(), session_durable=True) == []
    assert lab.ends("own") == []
    assert len(lab.write(prompt=a_prompt(), session_durable=True)) == 1


def test_started_is_ready() -> None:
    """A turn that was only accepted has not landed."""
    lab = Lab().ready()
    [frame] = lab.write(prompt=a_prompt(), session_durable=True)
    assert lab.answers(frame["id"], {"turn": {"id": "t1", "items": [], "status": "inProgress"}}) == []
    user = {"type": "userMessage", "id": "u", "clientId": "r1"}
    assert lab.item("started", user) == []
    assert lab.item("completed", user) == [Landed("r1")]
    assert lab.item("completed", user) == []


def test_the_turn_is_known_from_its_notification_when_that_comes_before_the_answer() -> None:
    lab = Lab().ready()
    [frame] = lab.write(prompt=a_prompt(), session_durable=True)
    lab.says("turn/started", turn={"id": "t1", "status": "inProgress", "items": []})
    lab.answers(frame["id"], {"turn": {"id": "t1", "items": [], "status": "inProgress"}})
    [ended] = lab.ends("t1")
    assert isinstance(ended, TurnEnded)
    assert ended.turn == "r1"


def test_a_refused_prompt_ends_its_turn_as_failed() -> None:
    lab = Lab().ready()
    [frame] = lab.write(prompt=a_prompt(), session_durable=True)
    data = {"input_error_code": "input_too_large", "max_chars": 1048576, "actual_chars": 1048577}
    [ended] = lab.answers(frame["id"], error={"code": -32602, "message": "Input exceeds", "data": data})
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert ended.failure.message == "the input is too long for codex: it takes 1048576 characters"
    assert lab.fold.turn is None


ANOTHER = {"result": opened(thread="another")}
GONE = {"error": {"code": -32600, "message": f"no rollout found for thread id {THREAD}"}}
CORRUPT = {"error": {"code": -32603, "message": "failed to read thread: failed to parse line 1"}}
WAYS_TO_LOSE = pytest.mark.parametrize(
    ("answer", "code"),
    [(ANOTHER, "session_missing"), (GONE, "session_missing"), (CORRUPT, "session_corrupt")],
)


@pytest.mark.parametrize("confirmed", [True, False])
@WAYS_TO_LOSE
def test_wrong_adopt(answer: dict[str, Any], code: str, confirmed: bool) -> None:
    """A thread that is gone, damaged or another one is a verdict, and nothing new begins: also where it never
    ended a turn, what becomes of it is decided where it is told to the next model."""
    lab = Lab(resume=THREAD, confirmed=confirmed).greet()
    assert lab.opening["params"]["threadId"] == THREAD
    lost, failed = lab.answers(lab.opening["id"], **answer)
    assert isinstance(lost, SessionLost)
    assert lost.provider_session == THREAD
    assert isinstance(failed, StartFailed)
    assert failed.failure.code == code
    assert lab.fold.ending
    assert lab.write(prompt=a_prompt(), session_durable=True) == []
    assert lab.fold.next(Wanted(prompt=a_prompt(), session_durable=True)) == CloseStdin()


def test_a_thread_found_lost_is_not_looked_for_again_by_an_owner_that_reads_the_spool_later() -> None:
    """The session has another thread by then; the frames say which one was asked for."""
    lab = Lab(resume=THREAD, confirmed=False).greet()
    later = Codex().fold(FoldContext("session", "main", "/workspace", "new", False))
    for seq, frame in enumerate(lab.written, 1):
        later.apply_in(json.dumps(frame).encode(), seq)
    lost, _ = later.apply_out(json.dumps({"id": lab.opening["id"], **GONE}).encode())
    assert isinstance(lost, SessionLost)
    assert lost.provider_session == THREAD


@pytest.mark.parametrize("resume", [THREAD, None])
def test_a_refusal_that_is_not_about_the_thread_does_not_cost_the_thread(resume: str | None) -> None:
    lab = Lab(resume=resume, confirmed=resume is not None).greet()
    error = {"code": -32600, "message": "failed to load configuration: Model provider `x` not found"}
    [failed] = lab.answers(lab.opening["id"], error=error)
    assert isinstance(failed, StartFailed)
    assert failed.failure.code == "unknown"
    assert "Model provider `x` not found" in failed.failure.message


@pytest.mark.parametrize(
    "changes",
    [{"sandbox": {"type": "dangerFullAccess"}}, {"sandbox": {"type": "new"}}, {"approvalPolicy": "never"}],
)
def test_sandbox_lost_a_thread_with_fewer_limits_than_asked_for_is_not_used(changes: dict[str, Any]) -> None:
    lab = Lab(resume=THREAD, confirmed=True).greet()
    [failed] = lab.answers(lab.opening["id"], opened(**changes))
    assert isinstance(failed, StartFailed)
    assert lab.write(prompt=a_prompt(), session_durable=True) == []


def test_a_stricter_sandbox_than_asked_for_is_used() -> None:
    lab = Lab().greet()
    assert lab.answers(lab.opening["id"], opened(sandbox={"type": "readOnly"})) == [SessionObserved(THREAD)]


def test_an_answer_of_an_unknown_shape_is_a_failure_and_no_silence() -> None:
    lab = Lab().greet()
    [failed] = lab.answers(lab.opening["id"], {"conversation": 1})
    assert isinstance(failed, StartFailed)
    assert failed.failure.code == "version_unsupported"
    lab = Lab()
    [frame] = lab.write()
    [refused] = lab.answers(frame["id"], error={"code": -32600, "message": "no"})
    assert isinstance(refused, StartFailed)


def test_a_cancelled_turn_is_told_when_its_commands_are_stopped() -> None:
    lab = Lab().ready().running()
    lab.item("started", command())
    [interrupt] = lab.write(cancel=True)
    assert interrupt["params"] == {"threadId": THREAD, "turnId": "t1"}
    assert lab.write(cancel=True) == []
    assert lab.ends(status="interrupted") == [SessionConfirmed(THREAD)]
    assert lab.fold.turn == "r1"
    [clean] = lab.write(prompt=a_prompt("r2"), session_durable=True)
    assert clean["method"] == "thread/backgroundTerminals/clean"
    assert lab.answers(clean["id"], {}) == [TurnEnded("r1", "cancelled", cancelled=True)]


def test_a_codex_that_cannot_clean_still_ends_the_turn() -> None:
    lab = Lab().ready().running()
    lab.write(cancel=True)
    lab.ends(status="interrupted")
    [clean] = lab.write()
    [ended] = lab.answers(clean["id"], error={"code": -32600, "message": "unknown variant"})
    assert isinstance(ended, TurnEnded)
    assert ended.cancelled


def test_cancel_then_run_a_cancel_writes_no_prompt() -> None:
    lab = Lab().ready()
    assert lab.write(prompt=a_prompt(), session_durable=True, cancel=True) == []


def test_a_cancel_waits_until_the_turn_has_a_name() -> None:
    lab = Lab().ready()
    [frame] = lab.write(prompt=a_prompt(), session_durable=True)
    assert lab.write(cancel=True) == []
    lab.answers(frame["id"], {"turn": {"id": "t1", "items": [], "status": "inProgress"}})
    assert [frame["method"] for frame in lab.write(cancel=True)] == ["turn/interrupt"]


def test_a_turn_that_finished_before_its_cancel_is_done_and_not_cancelled() -> None:
    lab = Lab().ready().running()
    [interrupt] = lab.write(cancel=True)
    lab.ends(status="completed")
    [clean] = lab.write()
    [ended] = lab.answers(clean["id"], {})
    assert isinstance(ended, TurnEnded)
    assert (ended.stop_reason, ended.cancelled, ended.failure) == ("end_turn", False, None)
    lab.running("r2", "t2")
    assert lab.answers(interrupt["id"], {}) == []
    assert lab.fold.turn == "r2"


def test_an_interrupt_that_nobody_asked_for_is_a_failure() -> None:
    lab = Lab().ready().running()
    *_, ended = lab.ends(status="interrupted")
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert not ended.cancelled


def test_a_call_that_ends_after_its_turn_is_told_and_counts_no_more() -> None:
    lab = Lab().ready().running()
    lab.item("started", command())
    assert lab.fold.open_calls == 1
    lab.ends()
    assert lab.fold.open_calls == 0
    done = command(status="failed", aggregatedOutput="half", exitCode=-1)
    [call] = lab.item("completed", done)
    assert isinstance(call, ToolCall)
    assert (call.status, call.output) == ("failed", "half\n[exit status -1]")
    assert lab.fold.open_calls == 0


def permission(lab: Lab, request: int | str = 0, **changes: Any) -> GateRequested:
    params = {"turnId": "t1", "itemId": "c1", "command": "rm x", "cwd": "/workspace", **changes}
    [gate] = lab.asks(request, "item/commandExecution/requestApproval", **params)
    assert isinstance(gate, GateRequested)
    return gate


def test_second_approve_an_answer_is_written_once() -> None:
    lab = Lab().ready().running()
    gate = permission(lab)
    answer = GateAnswer(gate.gate, gate.payload, "allow_once")
    assert lab.write(answers=(answer,)) == [{"id": 0, "result": {"decision": "accept"}}]
    assert lab.write(answers=(answer,)) == []
    assert lab.says("serverRequest/resolved", requestId=0) == []
    assert lab.write(answers=(answer,)) == []


def test_an_approval_that_is_asked_again_is_the_same_gate_and_gets_its_answer_again() -> None:
    """Also once codex has said that it is resolved, and by a later owner: one gate is never opened twice."""
    lab = Lab().ready().running()
    gate = permission(lab)
    answer = GateAnswer(gate.gate, gate.payload, "allow_once")
    asked = {"turnId": "t1", "itemId": "c1", "command": "rm x", "cwd": "/workspace"}
    method, accepted = "item/commandExecution/requestApproval", {"id": 0, "result": {"decision": "accept"}}
    assert lab.asks(0, method, **asked) == []
    assert lab.write(answers=(answer,)) == [accepted]
    assert lab.asks(0, method, **asked) == []
    assert lab.write(answers=(answer,)) == [accepted]
    lab.says("serverRequest/resolved", requestId=0)
    assert lab.write(answers=(answer,)) == []
    assert lab.asks(0, method, **asked) == []
    assert lab.write(answers=(answer,)) == [accepted]


def test_an_answer_is_none_to_another_question_of_the_same_id() -> None:
    lab = Lab().ready().running()
    gate = permission(lab)
    answer = GateAnswer(gate.gate, gate.payload, "allow_once")
    method = "item/commandExecution/requestApproval"
    [told] = lab.asks(0, method, turnId="t1", itemId="c1", command="rm -r /", cwd="/")
    assert isinstance(told, Notice)
    assert [line["result"] for line in lab.write(answers=(answer,))] == [{"decision": "accept"}]
    [told] = lab.asks(0, method, turnId="t1", itemId="c1", command="rm -r /", cwd="/")
    assert isinstance(told, Notice)
    [refused] = lab.write(answers=(answer,))
    assert refused["id"] == 0
    assert "error" in refused


def test_the_id_of_a_gate_of_an_earlier_turn_is_refused() -> None:
    lab = Lab().ready().running()
    gate = permission(lab)
    answer = GateAnswer(gate.gate, gate.payload, "allow_once")
    lab.write(answers=(answer,))
    lab.ends()
    asked = {"turnId": "t1", "itemId": "c1", "command": "rm x", "cwd": "/workspace"}
    [told] = lab.asks(0, "item/commandExecution/requestApproval", **asked)
    assert isinstance(told, Notice)
    assert "error" in lab.write(answers=(answer,))[0]


def test_gate_wrong_an_answer_for_a_closed_gate_or_with_anothers_payload_is_not_written() -> None:
    lab = Lab().ready().running()
    first = permission(lab, 0)
    assert lab.says("serverRequest/resolved", requestId=0) == [GateClosed(first.gate)]
    second = permission(lab, 1)
    assert lab.write(answers=(GateAnswer(first.gate, first.payload, "allow_once"),)) == []
    assert lab.write(answers=(GateAnswer(second.gate, first.payload, "allow_once"),)) == []
    assert lab.write(answers=(GateAnswer(second.gate, b"{", "allow_once"),)) == []


def test_gates_of_number_and_text_ids_are_different_gates() -> None:
    lab = Lab().ready().running()
    assert permission(lab, 1).gate != permission(lab, "1").gate


def test_a_question_that_is_too_large_for_a_gate_is_refused_and_told() -> None:
    lab = Lab().ready().running()
    options = [{"label": str(number) + "x" * 100_000} for number in range(6)]
    asked = {"questions": [{"id": "x", "question": "?", "options": options}]}
    [told] = lab.asks(7, "item/tool/requestUserInput", **asked)
    assert isinstance(told, Notice)
    assert "item/tool/requestUserInput, 600" in told.text
    assert [frame["id"] for frame in lab.write()] == [7]


def test_never_settles_a_request_that_nobody_here_can_answer_is_refused_once() -> None:
    lab = Lab().ready().running()
    assert lab.asks("x", "attestation/generate") == []
    assert lab.asks(7, "currentTime/read") == []
    assert [frame["id"] for frame in lab.write()] == ["x", 7]
    assert lab.written[-1]["error"]["code"] == -32601
    assert lab.write() == []


@pytest.mark.parametrize(
    ("info", "code"),
    [
        (ExitInfo(None, 9), "crashed"),
        (ExitInfo(None, 9, oom=True), "oom_killed"),
        (ExitInfo(3, None), "exit_nonzero"),
        (ExitInfo(0, None), "protocol_error"),
    ],
)
def test_a_process_that_dies_fails_the_turn_and_keeps_what_it_said(info: ExitInfo, code: str) -> None:
    lab = Lab().ready().running()
    lab.says("item/agentMessage/delta", itemId="m1", turnId="t1", delta="half a ")
    assert lab.says("item/agentMessage/delta", itemId="m1", turnId="t1", delta="reply") == [Delta("reply")]
    gate = permission(lab)
    lab.fold.apply_eof()
    closed, message, ended = lab.fold.apply_exit(info)
    assert closed == GateClosed(gate.gate)
    assert message == Message("assistant", "half a reply", cut=True)
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert ended.failure.code == code
    assert lab.fold.next(Wanted(prompt=a_prompt("r2"), session_durable=True)) is None


def test_unconfirmed_id() -> None:
    """A turn that never ended confirms no thread."""
    lab = Lab().ready().running()
    assert [type(event) for event in lab.fold.apply_exit(ExitInfo(None, 9))] == [TurnEnded]


def test_what_the_thread_lacks_is_told_before_a_turn_is_gone_on_with() -> None:
    lab = Lab(resume=THREAD, confirmed=True).ready()
    prompt = replace(a_prompt(), continues=True, notice="so far")
    [sent] = lab.write(prompt=prompt, session_durable=True)
    first, second = (part["text"] for part in sent["params"]["input"])
    assert first == "so far"
    assert second.startswith("The previous turn was interrupted.")


def test_a_process_that_dies_between_turns_fails_nothing() -> None:
    lab = Lab().ready().running()
    lab.ends()
    assert lab.fold.apply_exit(ExitInfo(0, None)) == []
    assert lab.fold.ending


def test_a_process_that_dies_while_it_cleans_ends_the_turn_as_cancelled() -> None:
    lab = Lab().ready().running()
    lab.write(cancel=True)
    lab.ends(status="interrupted")
    [ended] = lab.fold.apply_exit(ExitInfo(None, 9))
    assert isinstance(ended, TurnEnded)
    assert ended.cancelled


def test_an_error_that_codex_tries_to_mend_is_noticed_and_no_other() -> None:
    """Without a network it says nothing else, for as long as it tries."""
    lab = Lab().ready().running()
    said = {"message": "Reconnecting... 2/5 with token=sk-abcdefghijkl", "codexErrorInfo": None}
    [notice] = lab.says("error", turnId="t1", willRetry=True, error=said)
    assert notice == Notice("codex: Reconnecting... 2/5 with token=[redacted]")
    assert lab.says("error", turnId="t1", willRetry=False, error=said) == []
    assert (
        lab.out({"method": "error", "params": {"threadId": "another", "willRetry": True, "error": said}})
        == []
    )
    assert lab.fold.turn == "r1"


def test_a_steer_is_refused_without_what_looks_like_a_credential() -> None:
    lab = Lab().ready().running()
    [frame] = steer(lab, "s1")
    [refused] = lab.answers(frame["id"], error={"code": -32600, "message": "no: sk-abcdefghijklmnop"})
    assert refused == NotLanded("s1", "codex refused it: no: [redacted]")


def test_open_calls_are_bounded() -> None:
    lab = Lab().ready().running()
    for n in range(1_100):
        lab.item("started", command(f"c{n}"))
    assert lab.fold.open_calls == 1_000


def test_a_state_that_is_none_of_codex_is_refused() -> None:
    for state in (b"[]", b"{", b"[" * 100_000):
        with pytest.raises(InvalidRecordError):
            Codex().fold(FoldContext("session", "main", "/w", None, False), state)


def test_forged_done_a_frame_inside_a_tools_output_is_only_output() -> None:
    lab = Lab().ready().running()
    forged = json.dumps({"method": "turn/completed", "params": {"threadId": THREAD, "turn": {"id": "t1"}}})
    lab.item("started", command())
    output = command(status="completed", aggregatedOutput=f"\n{forged}\n")
    [call] = lab.item("completed", output)
    assert isinstance(call, ToolCall)
    assert lab.fold.turn == "r1"


def test_what_another_thread_does_is_not_this_turns() -> None:
    """A child agent's work is neither shown as this turn's nor does it end it."""
    lab = Lab().ready().running()
    other = {"threadId": "child"}
    assert lab.says("item/started", **other, turnId="t9", item=command("c9")) == []
    assert lab.says("turn/completed", **other, turn={"id": "t9", "status": "failed", "items": []}) == []
    assert lab.says("item/agentMessage/delta", **other, itemId="m", turnId="t9", delta="x") == []
    assert (lab.fold.turn, lab.fold.open_calls) == ("r1", 0)


@pytest.mark.parametrize(
    "line", [b"Warning: something", b"[1]", b"", b'{"method":"item/completed","params":{}}']
)
def test_output_that_is_not_of_the_protocol_is_kept_raw(line: bytes) -> None:
    lab = Lab().ready().running()
    assert lab.fold.apply_out(line) == [Raw(line.decode())]
    assert lab.fold.turn == "r1"


def test_bad_line_a_lone_surrogate_costs_no_frame() -> None:
    lab = Lab().ready().running()
    line = '{"method":"item/completed","params":{"threadId":"%s","turnId":"t1","item":%s}}'
    item = '{"type":"agentMessage","id":"m","text":"a\\ud800b"}'
    assert lab.fold.apply_out((line % (THREAD, item)).encode()) == [Message("assistant", "a\ufffdb")]


def test_huge_output_the_end_of_an_item_or_a_turn_is_seen_in_a_line_that_is_too_long() -> None:
    lab = Lab().ready().running()
    lab.item("started", command())
    head = {"method": "item/completed", "params": {"item": command(aggregatedOutput="x" * 100)}}
    compact = json.dumps(head, separators=(",", ":")).encode()[:-60]
    raw, call = lab.fold.apply_long(compact, 100_000_000)
    assert isinstance(raw, Raw)
    assert isinstance(call, ToolCall)
    assert (call.call, call.status, lab.fold.open_calls) == ("c1", "completed", 0)
    turn = {
        "method": "turn/completed",
        "params": {"threadId": THREAD, "turn": {"id": "t1", "items": ["x" * 99]}},
    }
    *_, ended = lab.fold.apply_long(json.dumps(turn, separators=(",", ":")).encode()[:-60], 100_000_000)
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert ended.failure.code == "output_limit"


def test_a_line_that_is_too_long_and_ends_nothing_is_only_raw() -> None:
    lab = Lab().ready()
    assert len(lab.fold.apply_long(b'{"method":"turn/completed","params":{"x":"', 100_000_000)) == 1


def test_the_folded_state_stays_small_however_many_turns_there_were() -> None:
    lab = Lab().ready()
    sizes = []
    for number in range(500):
        lab.running(f"request-{number:09}", f"t{number}")
        lab.item("started", command(f"c{number}"), f"t{number}")
        lab.says("item/agentMessage/delta", itemId="m", turnId=f"t{number}", delta="x" * 1000)
        lab.ends(f"t{number}")
        sizes.append(len(lab.fold.dump()))
    assert sizes[499] < sizes[3] + 100


def test_a_partial_reply_is_kept_only_up_to_its_bound() -> None:
    lab = Lab().ready().running()
    for _ in range(100):
        lab.says("item/agentMessage/delta", itemId="m", turnId="t1", delta="x" * 10_000)
    assert len(lab.fold.dump()) < 70_000


@pytest.mark.parametrize(
    ("info", "code"),
    [
        ("usageLimitExceeded", "quota_exhausted"),
        ("sessionBudgetExceeded", "quota_exhausted"),
        ("unauthorized", "auth_failed"),
        ("contextWindowExceeded", "unknown"),
        ("somethingNew", "unknown"),
        (None, "unknown"),
        ({"httpConnectionFailed": {"httpStatusCode": 403}}, "auth_failed"),
        ({"httpConnectionFailed": {"httpStatusCode": 529}}, "provider_overloaded"),
        ({"httpConnectionFailed": {"httpStatusCode": 404}}, "unknown"),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "transport_lost"),
        ({"activeTurnNotSteerable": {"turnKind": "review"}}, "unknown"),
    ],
)
def test_codexs_error_codes_decide_the_failure(info: Any, code: str) -> None:
    lab = Lab().ready().running()
    *_, ended = lab.ends(status="failed", error={"message": "why", "codexErrorInfo": info})
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert ended.failure.code == code
    assert code in TAXONOMY
    assert ended.failure.message.endswith("why")
    assert isinstance(info, dict | None) or info in ended.failure.message


def test_credential_leak_what_looks_like_a_key_does_not_get_into_a_failure() -> None:
    lab = Lab().ready().running()
    message = "401 for sk-proj-abcdef123456 with Authorization: Bearer eyJhbGciOi.abcdefghijk.xyz"
    *_, ended = lab.ends(status="failed", error={"message": message, "codexErrorInfo": "unauthorized"})
    assert isinstance(ended, TurnEnded)
    assert ended.failure is not None
    assert not re.search("abcdef|eyJ", ended.failure.message)


def test_items_of_many_kinds_are_messages_and_calls() -> None:
    lab = Lab().ready().running()
    thought = {"type": "reasoning", "id": "1", "summary": ["why", "how"], "content": []}
    assert lab.item("completed", thought) == [Message("thought", "why\n\nhow")]
    assert lab.item("completed", {"type": "reasoning", "id": "1", "summary": [], "content": []}) == []
    assert lab.item("completed", {"type": "plan", "id": "2", "text": "first"}) == [Message("plan", "first")]
    steps = [{"step": "a", "status": "completed"}, {"step": "b", "status": "pending"}]
    assert lab.says("turn/plan/updated", turnId="t1", plan=steps) == [Message("plan", "[x] a\n[ ] b")]
    search = {"type": "webSearch", "id": "3", "query": "weather"}
    assert lab.item("started", search) == [ToolCall("3", "web search", "started", input="weather")]
    mcp = {"type": "mcpToolCall", "id": "4", "server": "git", "tool": "log", "arguments": {"n": 1}}
    done = {**mcp, "status": "failed", "result": None, "error": {"message": "no"}}
    [call] = lab.item("completed", done)
    assert call == ToolCall("4", "git.log", "failed", input='{"n": 1}', output='{"message": "no"}')
    assert lab.item("completed", {"type": "contextCompaction", "id": "5"}) == []


def test_uncapped_log_a_calls_long_output_is_kept_at_both_ends() -> None:
    lab = Lab().ready().running()
    output = "begin" + "x" * 1_000_000 + "end"
    [call] = lab.item("completed", command(status="completed", aggregatedOutput=output))
    assert isinstance(call, ToolCall)
    assert len(call.output) < 70_000
    assert call.output.startswith("begin")
    assert call.output.endswith("end")


def test_an_answered_gate_is_not_told_as_closed_when_its_turn_ends() -> None:
    lab = Lab().ready().running()
    gate = permission(lab)
    lab.write(answers=(GateAnswer(gate.gate, gate.payload, "allow_once"),))
    assert [type(event) for event in lab.ends()] == [SessionConfirmed, TurnEnded]


def test_tokens_of_a_turn_that_codex_began_by_itself_are_not_the_next_turns() -> None:
    def used(turn: str, total: int, last: int) -> None:
        usage = {"total": {"totalTokens": total}, "last": {"totalTokens": last}}
        assert lab.says("thread/tokenUsage/updated", turnId=turn, tokenUsage=usage) == []

    lab = Lab().ready().running("r1", "t1")
    used("t1", 50, 50)
    lab.ends("t1")
    used("own", 150, 100)
    lab.running("r2", "t2")
    used("t2", 180, 30)
    used("t2", 200, 20)
    [ended] = lab.ends("t2")
    assert isinstance(ended, TurnEnded)
    assert ended.usage == {"total_tokens": 50}


# --- steers ---------------------------------------------------------------------------------------


def steer(lab: Lab, *keys: str, **wanted: Any) -> list[dict[str, Any]]:
    """All that the fold writes when these inputs are to join the turn `r1`."""
    steers = tuple(Prompt("r1", 1, key, (Content(text=f"text of {key}"),)) for key in keys)
    return lab.write(prompt=a_prompt(), steer=steers, session_durable=True, **wanted)


def test_a_steer_names_its_key_and_the_turn_that_it_may_join() -> None:
    lab = Lab().ready().running()
    [frame] = steer(lab, "s1")
    assert (frame["method"], frame["id"]) == ("turn/steer", 5)
    assert frame["params"] == {
        "threadId": THREAD,
        "expectedTurnId": "t1",
        "clientUserMessageId": "s1",
        "input": [{"type": "text", "text": "text of s1", "text_elements": []}],
    }


def test_a_steers_line_carries_its_input() -> None:
    lab = Lab().ready().running()
    wanted = Wanted(prompt=a_prompt(), steer=(a_prompt("s1"),), session_durable=True)
    line = lab.fold.next(wanted)
    assert isinstance(line, InputLine)
    assert line.carries == "s1"


def test_a_steer_is_written_once_and_each_in_its_order() -> None:
    lab = Lab().ready().running()
    assert [frame["params"]["clientUserMessageId"] for frame in steer(lab, "s1", "s2")] == ["s1", "s2"]
    assert steer(lab, "s1", "s2") == []
    assert lab.fold.unsettled == {"s1", "s2"}


def test_the_answer_to_a_steer_is_no_landing_but_its_item_is() -> None:
    lab = Lab().ready().running()
    [frame] = steer(lab, "s1")
    assert lab.answers(frame["id"], {"turnId": "t1"}) == []
    item = {"type": "userMessage", "id": "u2", "clientId": "s1"}
    assert lab.item("started", item) == []
    assert lab.fold.unsettled == {"s1"}
    assert lab.item("completed", item) == [Landed("s1")]
    assert lab.item("completed", item) == []
    assert lab.fold.unsettled == frozenset()
    assert [type(event) for event in lab.ends()] == [SessionConfirmed, TurnEnded]


def test_a_steer_that_codex_refuses_has_not_landed_and_is_not_offered_again() -> None:
    lab = Lab().ready().running()
    [frame] = steer(lab, "s1")
    refused = lab.answers(frame["id"], error={"code": -32600, "message": "no active turn to steer"})
    assert refused == [NotLanded("s1", "codex refused it: no active turn to steer")]
    assert lab.fold.unsettled == frozenset()
    assert steer(lab, "s1") == []


@pytest.mark.parametrize("answered", [True, False])
def test_a_turn_that_ends_without_its_steer_has_not_taken_it(answered: bool) -> None:
    lab = Lab().ready().running()
    [frame] = steer(lab, "s1")
    if answered:
        lab.answers(frame["id"], {"turnId": "t1"})
    assert NotLanded("s1", "codex ended the turn without it") in lab.ends()
    assert lab.answers(frame["id"], error={"code": -32600, "message": "no active turn to steer"}) == []


def test_a_steer_that_the_spool_has_after_the_turns_end_is_one_that_codex_refuses() -> None:
    lab = Lab().ready().running()
    line = lab.fold.next(Wanted(prompt=a_prompt(), steer=(a_prompt("s1"),), session_durable=True))
    assert isinstance(line, InputLine)
    lab.ends()
    assert lab.fold.apply_in(line.line, 5) == [NotLanded("s1", "codex had ended the turn")]
    assert lab.fold.unsettled == frozenset()


def test_no_steer_before_the_prompt_is_stored_after_a_cancel_or_after_the_end() -> None:
    lab = Lab().ready()
    [prompt] = steer(lab, "s1")
    assert prompt["method"] == "turn/start"
    lab.answers(prompt["id"], {"turn": {"id": "t1", "items": [], "status": "inProgress"}})
    assert steer(lab, "s1") == []
    lab.item("completed", {"type": "userMessage", "id": "u", "clientId": "r1"})
    assert [frame["method"] for frame in steer(lab, "s1", cancel=True)] == ["turn/interrupt"]
    lab.ends(status="interrupted")
    assert [frame["method"] for frame in steer(lab, "s1")] == ["thread/backgroundTerminals/clean"]


def test_a_steer_dies_undecided_with_codex() -> None:
    lab = Lab().ready().running()
    steer(lab, "s1")
    events = lab.fold.apply_exit(ExitInfo(None, 9))
    assert [type(event) for event in events] == [TurnEnded]
    assert lab.fold.unsettled == {"s1"}


def test_a_message_that_a_new_one_replaces_was_cut_off() -> None:
    """A steer and a broken stream make codex ask the model anew: the message before never becomes whole."""
    lab = Lab().ready().running()
    lab.item("started", {"type": "agentMessage", "id": "m1"})
    lab.says("item/agentMessage/delta", itemId="m1", turnId="t1", delta="half")
    assert lab.item("started", {"type": "agentMessage", "id": "m2"}) == [
        Message("assistant", "half", cut=True)
    ]
    assert lab.item("completed", {"type": "agentMessage", "id": "m2", "text": "whole"}) == [
        Message("assistant", "whole")
    ]
    assert [event for event in lab.ends() if isinstance(event, Message)] == []
