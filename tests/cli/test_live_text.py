"""Words that are shown while they are written, and the records that come after them."""

from collections.abc import AsyncIterator
from typing import Literal

import pytest

from outlast.cli.output import Screen
from outlast.cli.present import TextPresenter
from outlast.cli.text import LiveText, first_line, gate_line, pieces_of, tool_line
from outlast.records import types as t
from outlast.records.agent_state import AgentStateRestored
from outlast.runtime.handles import Delta
from outlast.runtime.outcome import Outcome
from outlast.state.messages import ToolMessage
from outlast.testing.journals import JournalBuilder

JOINED = t.InputJoined(request_id="b")
CUT = t.ReplyInterrupted(text="The first rep")
WHOLE = t.AgentEventRecorded(kind="message", text="Another reply")


def shown(live: LiveText) -> list[str]:
    """What the records of a turn in which a steer cut a reply off show."""
    journal = JournalBuilder().running("a").accept("b").add(JOINED, CUT, WHOLE, turn="a")
    return [
        piece.text for record in journal.records()[-3:] for piece in pieces_of(record, live) if piece.text
    ]


def test_a_reply_after_one_that_was_cut_off_is_not_shown_twice() -> None:
    live = LiveText()
    live.delta("The first rep")
    live.delta("Another reply")
    assert shown(live) == ["input b has joined turn a", "[cut off] The first rep"]


def test_without_live_words_only_the_whole_reply_is_shown_as_the_agents_words() -> None:
    assert shown(LiveText()) == ["input b has joined turn a", "[cut off] The first rep", "Another reply"]


def test_that_an_agents_session_went_back_to_what_was_captured_is_told_with_the_reason() -> None:
    went_back = AgentStateRestored(
        provider="codex", provider_session="thr", through_turn="a", reason="its file was gone"
    )
    (record,) = JournalBuilder().running("a").add(went_back).records()[-1:]
    (piece,) = pieces_of(record, LiveText())
    assert piece.text == (
        "the agent's session goes on from what was captured of it after turn a: its file was gone"
    )


@pytest.mark.parametrize(
    ("resolved", "told"),
    [
        (t.GateResolved(gate="g", reason="answered", answer="left", by="ann"), "was answered by ann: left"),
        (t.GateResolved(gate="g", reason="policy", answer="yes", by="policy"), "was decided by rule: yes"),
        (
            t.GateResolved(gate="g", reason="answered", answer="yes", by="--approve all"),
            "was decided by rule: yes",
        ),
        (
            t.GateResolved(gate="g", reason="abandoned", by="claude"),
            "is closed by claude, as nobody waits for its answer any more",
        ),
        (t.GateResolved(gate="g", reason="abandoned"), "is closed, as nobody waits for its answer any more"),
    ],
)
def test_how_a_question_ended_is_told_in_a_sentence(resolved: t.GateResolved, told: str) -> None:
    assert gate_line(resolved) == f"question g {told}"


@pytest.mark.parametrize("status", ["started", "completed", "failed"])
def test_a_step_reads_the_same_live_and_in_the_history(
    status: Literal["started", "completed", "failed"],
) -> None:
    live = t.CallObserved(call="1", name="shell", status=status, input="make", output="two\nlines")
    past = ToolMessage(1, 0, "a", 1, "1", "shell", status, live.input, live.output)
    assert tool_line(past) == tool_line(live)


def test_a_line_that_stands_for_more_says_so() -> None:
    assert first_line("\n one \n\n") == "one"
    assert first_line("one\ntwo") == "one …"
    assert first_line("x" * 20, 10) == "x" * 9 + "…"


def test_what_an_agent_says_of_its_own_state_is_a_line_of_its_own_and_no_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    presenter = TextPresenter(Screen({}), "s", only_turn="a")
    presenter.delta(Delta("a", "codex: Reconnecting... 2/5", notice=True))
    presenter.delta(Delta("b", "another turn's", notice=True))
    for record in JournalBuilder().running("a").say("a", "Hello").records():
        presenter.record(record)
    out, err = capsys.readouterr()
    assert (out, err) == ("Hello\n", "codex: Reconnecting... 2/5\n")


async def test_a_turn_that_had_been_interrupted_says_why_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def nothing() -> AsyncIterator[str]:
        for piece in list[str]():
            yield piece

    presenter = TextPresenter(Screen({}), "s", only_turn="a")
    await presenter.outcome(Outcome("s", "a", "interrupted", reason="crash: its shim is gone"), nothing())
    err = capsys.readouterr().err
    assert "the turn was interrupted: crash: its shim is gone" in err
    assert "outlast retry s" in err
