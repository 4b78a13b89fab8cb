"""How a turn is closed: by the agent's own end, by a person, by a deadline, by a crash."""

from typing import Literal

import pytest

from outlast.agents.contract import ExitInfo, Failure, TurnEnded
from outlast.records.envelope import Draft
from outlast.records.types import (
    BY_ON_INTERRUPT,
    CommandSettled,
    GateOpened,
    GateResolved,
    InputCancelled,
    LoopChanged,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
)
from outlast.testing.journals import JournalBuilder
from outlast.turns.cut import Then
from outlast.turns.terminal import ASK_CHOICES, Ending, Stop, close

RUNNING = JournalBuilder().running("t").state()
KILLED = ExitInfo(status=None, signal=9)


def bodies(drafts: tuple[Draft, ...]) -> list[type]:
    return [type(draft.body) for draft in drafts]


def test_the_agents_own_end_is_the_turns() -> None:
    (done,) = close(RUNNING, "t", Ending(ended=TurnEnded("t", "end_turn", usage={"tokens": 3}))).drafts
    assert done.body == TurnDone(stop_reason="end_turn", usage={"tokens": 3})


def test_an_end_counts_more_than_the_exit_after_it() -> None:
    closing = close(RUNNING, "t", Ending(ended=TurnEnded("t"), exit=KILLED))
    assert bodies(closing.drafts) == [TurnDone]


def test_a_killed_agent_is_a_receipt_with_a_recovery_record() -> None:
    (failed,) = close(RUNNING, "t", Ending(exit=KILLED)).drafts
    assert isinstance(failed.body, TurnFailed)
    receipt = failed.body.receipt
    assert (receipt.failed_phase, receipt.error.code, receipt.error.signal) == ("host_execute", "crashed", 9)
    assert receipt.completed_phases == ["accept", "host_launch"]
    assert receipt.host_recovery is not None
    assert receipt.host_recovery.schema_version == "outlast_turn_host_recovery_v1"
    assert receipt.host_recovery.kind == "resume_session"


def test_a_launch_that_failed_has_nothing_to_recover() -> None:
    ending = Ending(failure=Failure("launch_failed", "not found"), phase="host_launch")
    (failed,) = close(RUNNING, "t", ending).drafts
    assert isinstance(failed.body, TurnFailed)
    assert failed.body.receipt.completed_phases == ["accept"]
    assert failed.body.receipt.host_recovery is None


def test_credential_leak() -> None:
    """A secret that looks like none is in no receipt, nor half of it where the message was cut."""
    secret = "plain words that nobody knows"
    for said in (f"bad key {secret}, sorry", f"bad key {secret[:9]}…"):
        ending = Ending(failure=Failure("auth_failed", said), secrets=(secret,))
        (failed,) = close(RUNNING, "t", ending).drafts
        assert isinstance(failed.body, TurnFailed)
        assert failed.body.receipt.error.message in ("bad key [redacted], sorry", "bad key …")


def test_cancel_then_run() -> None:
    """A person's cancel ends the turn and holds the queue, and is settled by the turn's own record."""
    closing = close(RUNNING, "t", Ending(exit=KILLED, stop=Stop("cancelled", "ann", "c1")))
    assert bodies(closing.drafts) == [TurnInterrupted, LoopChanged]
    interrupted, held = closing.drafts
    assert isinstance(interrupted.body, TurnInterrupted)
    assert (interrupted.body.reason, interrupted.cause, interrupted.actor) == ("cancelled", "c1", "ann")
    assert isinstance(held.body, LoopChanged)
    assert held.body.state == "held"
    assert closing.settle == (("c1", 0),)


def test_a_cancel_that_comes_after_the_end_is_too_late() -> None:
    closing = close(RUNNING, "t", Ending(ended=TurnEnded("t"), stop=Stop("cancelled", "ann", "c1")))
    assert bodies(closing.drafts) == [TurnDone, CommandSettled]
    settled = closing.drafts[1].body
    assert isinstance(settled, CommandSettled)
    assert (settled.outcome, settled.command) == ("too_late", "cancel")
    assert closing.settle == (("c1", 1),)


def test_a_kill_is_done_though_the_agent_had_done_its_turn_first() -> None:
    """It means the agent, which is gone."""
    closing = close(RUNNING, "t", Ending(ended=TurnEnded("t"), exit=KILLED, stop=Stop("killed", "ann", "k1")))
    assert bodies(closing.drafts) == [TurnDone, CommandSettled]
    settled = closing.drafts[1].body
    assert isinstance(settled, CommandSettled)
    assert (settled.outcome, settled.command) == ("done", "kill")
    assert closing.settle == (("k1", 1),)


def test_a_closed_session_does_not_hold_its_queue() -> None:
    closing = close(RUNNING, "t", Ending(exit=KILLED, stop=Stop("closed", "ann")))
    assert bodies(closing.drafts) == [TurnInterrupted]
    assert closing.settle == ()


def test_a_crash_is_an_interruption_with_its_evidence() -> None:
    (draft,) = close(RUNNING, "t", Ending(interrupted="seen dead")).drafts
    assert draft.body == TurnInterrupted(index=1, reason="crash", evidence="seen dead")


@pytest.mark.parametrize(
    ("then", "after"),
    [
        ("retry", [TurnRetried]),
        ("continue", [TurnRetried]),
        ("hold", [TurnParked]),
        ("quarantine", [TurnParked]),
        ("ask", [TurnParked, GateOpened]),
    ],
)
def test_what_follows_a_crash_is_in_the_same_batch(then: Then, after: list[type]) -> None:
    closing = close(RUNNING, "t", Ending(interrupted="seen dead", then=then))
    assert bodies(closing.drafts) == [TurnInterrupted, *after]
    second = closing.drafts[1].body
    if isinstance(second, TurnRetried):
        assert second.by == BY_ON_INTERRUPT
        assert second.mode == ("again" if then == "retry" else "continue")
    if then == "ask":
        gate = closing.drafts[2].body
        assert isinstance(gate, GateOpened)
        assert gate.choices == list(ASK_CHOICES)


def test_gates_of_the_turn_are_closed_before_its_terminal() -> None:
    state = JournalBuilder().running("t").ask("t", "q").state()
    closing = close(state, "t", Ending(exit=KILLED))
    assert bodies(closing.drafts) == [GateResolved, TurnFailed]


@pytest.mark.parametrize(
    ("rule", "after"),
    [("continue", []), ("hold", [LoopChanged]), ("withdraw", [InputCancelled, InputCancelled])],
)
def test_the_queue_follows_the_loops_rule_after_a_failure(
    rule: Literal["continue", "hold", "withdraw"], after: list[type]
) -> None:
    state = JournalBuilder().running("t").accept("u", "v").state()
    closing = close(state, "t", Ending(exit=KILLED), rule)
    assert bodies(closing.drafts) == [TurnFailed, *after]


def test_a_deadline_is_told_as_one_whatever_the_kill_looked_like() -> None:
    ending = Ending(
        ended=TurnEnded("t", failure=Failure("crashed", "signal 9", signal=9)),
        exit=KILLED,
        failure=Failure("timeout_idle", "nothing came for 3 s"),
    )
    (failed,) = close(RUNNING, "t", ending).drafts
    assert isinstance(failed.body, TurnFailed)
    assert failed.body.receipt.error.code == "timeout_idle"
