"""Conversations of the real codex, folded again. `record.py` made them; `recorded/` holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from outlast.agents.codex import Codex
from outlast.agents.codex.requests import Approval, Sandbox
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    ExitInfo,
    FoldContext,
    GateClosed,
    GateRequested,
    Landed,
    Message,
    NotLanded,
    Raw,
    SessionConfirmed,
    SessionLost,
    SessionObserved,
    StartFailed,
    ToolCall,
    TurnEnded,
    Wanted,
)

RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
E = TypeVar("E", bound=AgentEvent)


class Context(msgspec.Struct):
    resume: str | None
    confirmed: bool
    sandbox: Sandbox
    approval: Approval


class Step(msgspec.Struct):
    context: Context | None = None
    wanted: Wanted | None = None
    input: str | None = msgspec.field(default=None, name="in")
    out: str | None = None
    closed: int | None = None
    eof: bool = False
    exit: ExitInfo | None = None


def steps_of(name: str) -> Iterator[Step]:
    with (RECORDED / f"{name}.jsonl").open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=Step)


@dataclass
class Replay:
    """The events of a conversation, and what the fold would have written at each step."""

    name: str
    reload: bool = False
    """Go on from a dump after every frame, as an owner that takes over does."""
    events: list[AgentEvent] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        wanted = Wanted()
        steps = steps_of(self.name)
        first = next(steps).context
        assert first is not None
        self.agent = Codex(sandbox=first.sandbox, approval=first.approval)
        self.context = FoldContext("session", "main", "/workspace", first.resume, first.confirmed)
        self.fold = self.agent.fold(self.context)
        for step in steps:
            if step.wanted is not None:
                wanted = step.wanted
            self._frame(step)
            self._write(wanted)

    def _frame(self, step: Step) -> None:
        if step.closed is not None and step.closed > self.fold.last_input:
            self._close(step.closed)
        if step.out is not None:
            self.events += self.fold.apply_out(step.out.encode())
        if step.eof:
            self.events += self.fold.apply_eof()
        if step.exit is not None:
            self.events += self.fold.apply_exit(step.exit)

    def _write(self, wanted: Wanted) -> None:
        """Write at once all that the fold wants to write: the recorded lines are what it must be."""
        while (line := self.fold.next(wanted)) is not None:
            seq = self.fold.last_input + 1
            if isinstance(line, CloseStdin):
                self._close(seq)
            else:
                self.lines.append(line.line.decode())
                self.events += self.fold.apply_in(line.line.rstrip(b"\n"), seq)
            self._reload()
        self._reload()

    def _close(self, seq: int) -> None:
        self.closed.append(seq)
        self.events += self.fold.apply_stdin_closed(seq)

    def _reload(self) -> None:
        if self.reload:
            dumped = self.fold.dump()
            self.fold = self.agent.fold(self.context, dumped)
            assert self.fold.dump() == dumped

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def ends(self) -> dict[str, TurnEnded]:
        return {end.turn: end for end in self.all(TurnEnded)}


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_writes_exactly_what_was_written_live(name: str) -> None:
    replay = Replay(name)
    recorded = list(steps_of(name))
    assert replay.lines == [step.input for step in recorded if step.input is not None]
    assert replay.closed == [step.closed for step in recorded if step.closed is not None]


@pytest.mark.parametrize("name", NAMES)
def test_an_owner_that_takes_over_after_any_frame_goes_on_the_same(name: str) -> None:
    once, reloaded = Replay(name), Replay(name, reload=True)
    assert (reloaded.lines, reloaded.events) == (once.lines, once.events)


@pytest.mark.parametrize("name", NAMES)
def test_an_owner_that_only_reads_the_spool_comes_to_the_same_state(name: str) -> None:
    replay = Replay(name)
    fold = replay.agent.fold(replay.context)
    seq = 0
    for step in steps_of(name):
        if step.input is not None:
            seq += 1
            fold.apply_in(step.input.rstrip("\n").encode(), seq)
        elif step.closed is not None:
            fold.apply_stdin_closed(step.closed)
        elif step.out is not None:
            fold.apply_out(step.out.encode())
        elif step.exit is not None:
            fold.apply_exit(step.exit)
    assert fold.dump() == replay.fold.dump()


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_the_real_program_is_understood(name: str) -> None:
    assert Replay(name).all(Raw) == []


def test_turns_of_one_process_land_run_their_calls_once_and_end() -> None:
    replay = Replay("turns")
    assert [event.key for event in replay.all(Landed)] == ["r1", "r2", "r1", "r3"]
    assert [end.turn for end in replay.all(TurnEnded)] == ["r1", "r2", "r1", "r3"]
    assert [(call.status, call.output) for call in replay.all(ToolCall)] == [
        ("started", ""),
        ("completed", "0\n"),
        ("started", ""),
        ("completed", "1\n"),
    ]
    assert all(end.failure is None and end.usage["total_tokens"] > 0 for end in replay.all(TurnEnded))
    assert replay.fold.turn is None
    assert replay.fold.open_calls == 0


def test_text_mangled_nothing_of_a_prompt_is_changed_on_its_way() -> None:
    assert Replay("turns").all(Message)[0].text == "ECHO 1: hello\r\n ✓ \x00 end "


def test_a_thread_is_confirmed_by_its_first_finished_turn() -> None:
    kinds = [type(event) for event in Replay("turns").events]
    assert kinds.count(SessionConfirmed) == 1
    assert kinds.index(SessionObserved) < kinds.index(Landed) < kinds.index(SessionConfirmed)
    assert kinds.index(SessionConfirmed) < kinds.index(TurnEnded)
    assert Replay("killed-while-asking-1").all(SessionConfirmed) == []


def test_early_id_a_thread_that_was_never_stored_is_lost_visibly() -> None:
    [observed] = Replay("never-stored-1").all(SessionObserved)
    again = Replay("never-stored-2")
    assert [event.provider_session for event in again.all(SessionLost)] == [observed.provider_session]
    assert [event.failure.code for event in again.all(StartFailed)] == ["session_missing"]


def test_silent_fresh_a_confirmed_thread_that_is_gone_is_lost_and_nothing_new_begins() -> None:
    replay = Replay("never-stored-3")
    assert len(replay.all(SessionLost)) == 1
    assert [event.failure.code for event in replay.all(StartFailed)] == ["session_missing"]
    assert replay.all(SessionObserved) == []
    assert not any("thread/start" in line for line in replay.lines)
    assert replay.fold.ending


def test_double_writer_a_thread_with_another_writer_is_refused_by_name() -> None:
    replay = Replay("two-writers-2")
    [failed] = replay.all(StartFailed)
    assert failed.failure.code == "session_in_use"
    assert "another process has this codex thread open" in failed.failure.message
    assert replay.fold.ending
    assert replay.all(SessionLost) == []


def test_a_cancelled_turn_ends_after_its_commands_are_stopped() -> None:
    replay = Replay("cancelled")
    end = replay.ends()["r1"]
    assert (end.cancelled, end.stop_reason, end.failure) == (True, "cancelled", None)
    written = [line for line in replay.lines if "interrupt" in line or "clean" in line]
    assert ["interrupt" in line for line in written] == [True, False, True, False]
    assert replay.ends()["r3"].failure is None


def test_the_reply_that_a_cancel_cut_off_is_kept() -> None:
    [cut] = [message for message in Replay("cancelled").all(Message) if message.cut]
    assert cut.text.startswith("ECHO 2: ")


def test_a_steer_lands_in_the_turn_that_it_joined_and_the_turn_ends_once() -> None:
    replay = Replay("steered")
    assert [landed.key for landed in replay.all(Landed)] == ["r1", "s1", "r2", "s2", "r3", "r4"]
    assert [end.turn for end in replay.all(TurnEnded)] == ["r1", "r2", "r3", "r4"]
    assert replay.all(Message)[0].text == "ECHO 2: s1 joins"


def test_the_reply_that_a_steer_cut_off_stands_before_the_one_that_came_instead() -> None:
    cut, whole = Replay("steered").all(Message)[1:3]
    assert cut.cut
    assert cut.text.startswith("ECHO ")
    assert whole == Message("assistant", "ECHO 4: s2 joins")


def test_a_steer_that_codex_drops_with_its_turn_is_told_before_the_turns_end() -> None:
    replay = Replay("steered")
    assert replay.all(NotLanded) == [NotLanded("s3", "codex ended the turn without it")]
    told = replay.events.index(replay.all(NotLanded)[0])
    assert told < replay.events.index(replay.ends()["r3"])


def test_what_a_killed_codex_had_of_a_steer_stays_unsettled() -> None:
    replay = Replay("steered")
    assert replay.fold.unsettled == {"s4"}
    assert "s4" not in {event.key for event in replay.all(NotLanded)}


def test_no_trace_call_a_call_that_started_is_told_although_the_process_was_killed() -> None:
    replay = Replay("killed-1")
    assert [call.status for call in replay.all(ToolCall)] == ["started"]
    failure = replay.ends()["r2"].failure
    assert failure is not None
    assert (failure.code, failure.signal) == ("crashed", 9)


def test_reconnect_dup_a_resume_tells_that_the_last_prompt_had_landed() -> None:
    replay = Replay("killed-2")
    assert replay.all(SessionObserved)[0].source == "resumed"
    assert [event.key for event in replay.all(Landed)] == ["r2", "r3"]
    assert not any('"r2"' in line for line in replay.lines)


def test_replay_as_new_a_resume_brings_no_old_messages() -> None:
    assert [message.text for message in Replay("killed-2").all(Message)] == ["ECHO 3: what happened?"]


def test_the_usage_of_a_turn_after_a_resume_is_its_own() -> None:
    first, second = Replay("killed-1").ends()["r1"], Replay("killed-2").ends()["r3"]
    assert second.usage["total_tokens"] < 1.5 * first.usage["total_tokens"]


def test_approvals_are_gates_and_their_answers_decide_what_runs() -> None:
    replay = Replay("approvals")
    gates = replay.all(GateRequested)
    assert [gate.kind for gate in gates] == ["permission"] * 5 + ["question", "permission"]
    assert gates[0].question == "Run /bin/bash -lc 'echo > one' in /workspace?\nneeds it"
    assert gates[3].question == "Apply these changes?\nadd /workspace/four\nhello\n"
    for gate in gates[:5]:
        kinds = [choice.kind for choice in gate.choices]
        assert kinds == ["allow_once", "allow_always", "reject_once"]
    assert [choice.id for choice in gates[5].choices] == ["red", "blue"]
    ended = [call.status for call in replay.all(ToolCall) if call.status != "started"]
    assert ended == ["completed", "failed", "failed", "completed", "failed"]


def test_a_choice_that_was_not_offered_approves_nothing() -> None:
    replay = Replay("approvals")
    third = replay.all(GateRequested)[2]
    assert (
        f'{{"id":{third.gate},"error":{{"code":-32601,"message":"not supported by this client"}}}}\n'
        in replay.lines
    )


def test_never_settles_a_question_that_no_choice_can_answer_is_refused_and_the_turn_ends() -> None:
    replay = Replay("approvals")
    assert replay.ends()["many"].failure is None


def test_gate_dead_a_cancel_closes_the_gate_that_codex_waits_for_no_more() -> None:
    replay = Replay("approvals")
    assert replay.all(GateClosed) == [GateClosed(replay.all(GateRequested)[-1].gate)]
    assert replay.ends()["cancelled"].cancelled


def test_gate_reasked_never_a_killed_process_closes_its_gate() -> None:
    replay = Replay("killed-while-asking-1")
    assert [event.gate for event in replay.all(GateClosed)] == ["0"]
    assert Replay("killed-while-asking-2").all(GateRequested) == []


def test_failures_of_the_provider_have_the_codes_of_the_taxonomy() -> None:
    ends = Replay("failures").ends()
    codes = {turn: end.failure.code for turn, end in ends.items() if end.failure is not None}
    assert codes == {
        "429": "rate_limited",
        "401": "auth_failed",
        "500": "provider_overloaded",
        "503": "provider_overloaded",
        "400": "unknown",
        "context_length_exceeded": "unknown",
        "insufficient_quota": "quota_exhausted",
        "rate_limit_exceeded": "rate_limited",
        "server_is_overloaded": "provider_overloaded",
    }


def test_sandbox_lost_every_start_and_resume_says_sandbox_approval_and_folder() -> None:
    opened = [line for name in NAMES for line in Replay(name).lines if '"method":"thread/' in line]
    opening = [line for line in opened if "/start" in line or "/resume" in line]
    assert len(opening) >= len(NAMES)
    for line in opening:
        assert '"sandbox":' in line
        assert '"approvalPolicy":' in line
        assert '"cwd":"/workspace"' in line
