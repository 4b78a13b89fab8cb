"""What is told to who waits for an input in a queue that does not go on by itself."""

from __future__ import annotations

import pytest

from outlast.records import types as t
from outlast.testing.journals import JournalBuilder
from outlast.turns.holding import held_because

HELD = t.LoopChanged(state="held", reason="cancelled")


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        (("a",), "the queue is held"),
        (("a", "b"), "the queue is held (one more waits)"),
        (("b", "a", "c"), "the queue is held (2 more wait)"),
    ],
)
def test_a_held_queue_is_told_with_what_else_waits(waiting: tuple[str, ...], told: str) -> None:
    assert held_because(JournalBuilder().accept(*waiting).add(HELD).state(), "a") == told


def test_an_input_of_a_closed_session_is_told() -> None:
    closed = JournalBuilder().accept("a").add(t.SessionStopped(reason="closed")).state()
    assert held_because(closed, "a") == "the session was closed before it began"


def test_what_goes_on_by_itself_or_does_not_wait_is_not_held() -> None:
    journal = JournalBuilder().running("a").accept("b")
    assert held_because(journal.state(), "b") is None
    held = journal.add(HELD).state()
    assert held_because(held, "a") is None
    assert held_because(held, "nobody's") is None


def test_a_queue_that_waits_for_an_answer_is_not_held() -> None:
    """It is the question that is told."""
    lost = t.GateOpened(
        gate="g",
        kind="question",
        question="the agent's session is lost",
        resolver="runtime",
        requested_by="outlast",
        choices=[t.Choice(id="reseed", label="r"), t.Choice(id="fresh", label="f")],
    )
    journal = JournalBuilder().running("a").park("a").accept("b").add(HELD)
    assert held_because(journal.state(), "b") is not None
    assert held_because(journal.add(lost, turn="a").state(), "b") is None
