"""Conversations of the real Claude Code, folded again. `record.py` made them; `recorded/` holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from outlast.agents.claude import Claude
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
    session: str
    confirmed: bool


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
        self.agent = Claude()
        self.context = FoldContext("session", "main", "/workspace", first.session, first.confirmed)
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
    assert [(call.name, call.status, call.output) for call in replay.all(ToolCall)] == [
        ("Bash", "started", ""),
        ("Bash", "completed", "0"),
        ("Bash", "started", ""),
        ("Bash", "completed", "1"),
    ]
    assert all(end.failure is None and end.usage["output_tokens"] > 0 for end in replay.all(TurnEnded))
    assert replay.fold.turn is None
    assert replay.fold.open_calls == 0


def test_each_turn_counts_what_it_used_and_cost_itself() -> None:
    first, second = (end.usage for end in Replay("turns").all(TurnEnded)[:2])
    assert 2 * first["input_tokens"] < second["input_tokens"] < 4 * first["input_tokens"]
    assert 2 * first["cost_micro_usd"] < second["cost_micro_usd"] < 4 * first["cost_micro_usd"]


def test_text_mangled_nothing_of_a_prompt_is_changed_on_its_way() -> None:
    assert Replay("turns").all(Message)[0].text == "ECHO 1: hello\r\n ✓ end "


def test_each_attempt_has_a_key_of_its_own() -> None:
    """Claude Code takes each key once: a retry that somebody asked for must not bear an old one."""
    sent = [msgspec.json.decode(line) for line in Replay("turns").lines if '"type":"user"' in line]
    assert len({frame["uuid"] for frame in sent}) == len(sent) == 4


def test_a_session_is_confirmed_by_its_first_finished_turn() -> None:
    kinds = [type(event) for event in Replay("turns").events]
    assert kinds.count(SessionConfirmed) == 1
    assert kinds.index(SessionObserved) < kinds.index(Landed) < kinds.index(SessionConfirmed)
    assert kinds.index(SessionConfirmed) < kinds.index(TurnEnded)
    assert Replay("killed-while-asking-1").all(SessionConfirmed) == []


def test_silent_fresh_a_session_that_is_gone_is_lost_and_nothing_is_sent_to_another() -> None:
    replay = Replay("missing")
    assert len(replay.all(SessionLost)) == 1
    assert [event.failure.code for event in replay.all(StartFailed)] == ["session_missing"]
    assert replay.all(SessionObserved) == []
    assert len(replay.lines) == 1
    assert replay.fold.ending


def test_unconfirmed_id_a_session_whose_transcript_is_torn_at_its_beginning_is_lost_too() -> None:
    """Its id can be neither resumed nor used: only another one helps."""
    assert Replay("torn-at-its-beginning-1").ends()["r1"].failure is None
    replay = Replay("torn-at-its-beginning-2")
    assert [event.failure.code for event in replay.all(StartFailed)] == ["session_missing"]
    assert len(replay.all(SessionLost)) == 1


def test_dedupe_hang_a_message_that_was_taken_before_ends_its_turn_at_once() -> None:
    """No result will ever come of it, and it is not worked on twice."""
    replay = Replay("known-already-2")
    failure = replay.ends()["r1"].failure
    assert failure is not None
    assert (failure.code, failure.retry) == ("unknown", None)
    assert "already" in failure.message
    assert [message.text for message in replay.all(Message)] == ["ECHO 2: go on"]
    assert replay.ends()["r2"].failure is None


def test_a_cancelled_turn_is_told_as_cancelled() -> None:
    replay = Replay("cancelled")
    for turn in ("r1", "r2"):
        end = replay.ends()[turn]
        assert (end.cancelled, end.stop_reason, end.failure) == (True, "cancelled", None)
    assert [call.status for call in replay.all(ToolCall)] == ["started", "failed"]
    assert replay.ends()["r3"].failure is None


def test_the_reply_that_a_cancel_cut_off_is_kept() -> None:
    [cut] = [message for message in Replay("cancelled").all(Message) if message.cut]
    assert cut.text.startswith("ECHO 2: ")


def test_a_steer_lands_in_the_turn_that_it_joined_and_the_turn_ends_once() -> None:
    replay = Replay("steered")
    assert [landed.key for landed in replay.all(Landed)] == ["r1", "s1", "r2", "s2", "r3", "r4"]
    assert [end.turn for end in replay.all(TurnEnded)] == ["r1", "r2", "r3", "r4"]


def test_a_steer_that_is_worked_on_after_the_last_model_call_belongs_to_its_turn() -> None:
    """Claude Code ends the turn before it, and begins another one for it by itself."""
    replay = Replay("steered")
    answer = Message("assistant", "ECHO 3: s2 joins")
    assert replay.events.index(answer) < replay.events.index(replay.ends()["r2"])
    [first, second] = [replay.ends()[turn].usage["output_tokens"] for turn in ("r1", "r2")]
    assert second > first


def test_a_steer_that_a_cancel_drops_is_told_before_the_turns_end() -> None:
    replay = Replay("steered")
    assert replay.all(NotLanded) == [NotLanded("s3", "claude dropped it before its turn ended")]
    told = replay.events.index(replay.all(NotLanded)[0])
    assert told < replay.events.index(replay.ends()["r3"])


def test_what_a_killed_process_had_of_a_steer_stays_unsettled() -> None:
    replay = Replay("steered")
    assert replay.fold.unsettled == {"s4"}
    assert "s4" not in {event.key for event in replay.all(NotLanded)}


def test_no_trace_call_a_call_that_started_is_told_although_the_process_was_killed() -> None:
    replay = Replay("killed-1")
    assert [call.status for call in replay.all(ToolCall)] == ["started"]
    failure = replay.ends()["r2"].failure
    assert failure is not None
    assert (failure.code, failure.signal) == ("crashed", 9)


def test_replay_as_new_a_resume_brings_no_old_messages() -> None:
    replay = Replay("killed-2")
    assert replay.all(SessionObserved)[0].source == "resumed"
    assert [message.text for message in replay.all(Message)] == ["ECHO 3: what happened?"]
    assert [event.key for event in replay.all(Landed)] == ["r3"]


def test_permissions_are_gates_and_their_answers_decide_what_runs() -> None:
    replay = Replay("approvals")
    gates = replay.all(GateRequested)
    assert [gate.kind for gate in gates] == ["permission"] * 5 + ["question"] * 3 + ["permission"]
    assert gates[0].question == 'Use Bash?\n{"command":"touch one","description":"scripted command"}'
    for gate in gates[:5]:
        kinds = [choice.kind for choice in gate.choices]
        assert kinds == ["allow_once", "allow_always", "reject_once"]
    assert [choice.id for choice in gates[5].choices] == ["red", "blue"]
    ended = [call.status for call in replay.all(ToolCall) if call.status != "started"]
    assert ended[:6] == ["completed", "failed", "failed", "completed", "failed", "completed"]


def test_always_says_what_it_allows_and_the_next_call_is_not_asked_about() -> None:
    replay = Replay("approvals")
    fourth = replay.all(GateRequested)[3]
    assert fourth.choices[1].label.startswith("Always allow: Bash(touch four *) (kept in the project's local")
    assert [gate.question for gate in replay.all(GateRequested)].count(fourth.question) == 1
    assert replay.ends()["always"].failure is None


def test_a_choice_that_was_not_offered_approves_nothing() -> None:
    replay = Replay("approvals")
    third = replay.all(GateRequested)[2]
    [answer] = [line for line in replay.lines if third.gate in line]
    assert msgspec.json.decode(answer)["response"]["subtype"] == "error"


def test_several_questions_are_gates_of_their_own_and_answered_in_one_line() -> None:
    replay = Replay("approvals")
    first, second = replay.all(GateRequested)[6:8]
    assert [choice.id for choice in second.choices] == ["red", "blue", "red, blue", "none of these"]
    request = first.gate.removesuffix("/1")
    assert second.gate == f"{request}/2"
    assert len([line for line in replay.lines if request in line]) == 1
    assert replay.ends()["many"].failure is None
    told = [call.output for call in replay.all(ToolCall) if call.name == "AskUserQuestion" and call.output]
    assert '"Which colour?"="red", "Which sizes?"="red, blue"' in told[-1]


def test_gate_dead_a_cancel_closes_the_gate_that_is_waited_for_no_more() -> None:
    replay = Replay("approvals")
    assert replay.all(GateClosed) == [GateClosed(replay.all(GateRequested)[-1].gate)]
    assert replay.ends()["cancelled"].cancelled


def test_gate_reasked_never_a_killed_process_closes_its_gate() -> None:
    first = Replay("killed-while-asking-1")
    assert [event.gate for event in first.all(GateClosed)] == [first.all(GateRequested)[0].gate]
    assert Replay("killed-while-asking-2").all(GateRequested) == []


def test_failures_of_the_provider_have_the_codes_of_the_taxonomy() -> None:
    ends = Replay("failures").ends()
    codes = {turn: end.failure.code for turn, end in ends.items() if end.failure is not None}
    assert codes == {
        "429": "rate_limited",
        "401": "auth_failed",
        "402": "quota_exhausted",
        "403": "auth_failed",
        "500": "provider_overloaded",
        "529": "provider_overloaded",
        "400": "unknown",
    }


def test_a_turn_whose_prompt_the_transcript_holds_is_gone_on_with_and_not_sent_again() -> None:
    failures = [end.failure for end in Replay("failures").all(TurnEnded)]
    assert {failure.retry for failure in failures if failure is not None} == {"continue"}
    assert Replay("failures").all(Message) == []


def test_a_turn_that_the_program_begins_by_itself_ends_no_turn_of_ours() -> None:
    replay = Replay("in-the-background")
    assert [end.turn for end in replay.all(TurnEnded)] == ["r1", "r2", "r3"]
    assert replay.all(Message)[-2].text == "ECHO 2: and now?"


def test_the_calls_of_a_subagent_are_seen_and_its_words_are_not() -> None:
    replay = Replay("in-the-background")
    calls = [(call.name, call.status) for call in replay.all(ToolCall)[2:]]
    assert calls == [("Task", "started"), ("Bash", "started"), ("Bash", "completed"), ("Task", "completed")]
    assert not any(message.text == "DONE 1: inner" for message in replay.all(Message))
