"""What a plan says of turns that failed: of the one that a restore settles, and of the one that waits."""

from __future__ import annotations

import pytest

from outlast.agents.contract import ExitInfo, Failure
from outlast.records import types as t
from outlast.restore.facts import AgentFacts, Facts
from outlast.restore.plan import RestorePlan, plan
from outlast.restore.repairs import slow_ending
from outlast.testing.journals import JournalBuilder
from outlast.testing.journals.bodies import limited

ENDED = ExitInfo(0, None)


def planned(journal: JournalBuilder, failure: Failure | None = None, attempts: int = 8) -> RestorePlan:
    state = journal.state()
    loop = state.root or ""
    agent = AgentFacts(
        loop=loop,
        known=True,
        generation="g",
        found=True,
        started=True,
        exit=ENDED,
        landing="written",
        terminal=None if failure is None else "failed",
        failure=failure,
        retry_attempts=attempts,
        readable=True,
    )
    return plan(state, Facts(agents={loop: agent}))


@pytest.mark.parametrize(
    ("failure", "attempts", "then"),
    [
        (Failure("rate_limited", "", retry="again"), 8, "retry"),
        (Failure("rate_limited", "", retry="continue"), 8, "continue"),
        (Failure("rate_limited", "", retry="again"), 0, "none"),
        (Failure("rate_limited", ""), 8, "none"),
        (Failure("rate_limited", "", retry="again", retry_after=7200.0), 8, "hold"),
        (Failure("quota_exhausted", ""), 8, "hold"),
        (Failure("auth_failed", "", retry="again"), 8, "hold"),
        (Failure("exit_nonzero", "", retry="again"), 8, "none"),
    ],
)
def test_what_follows_a_failure_in_the_spool(failure: Failure, attempts: int, then: str) -> None:
    (turn,) = planned(JournalBuilder().running("t"), failure, attempts).turns
    assert (turn.action, turn.then) == ("settle", then)
    assert (failure.code in turn.evidence) is (then != "none")


def test_what_is_said_to_follow_is_no_order() -> None:
    """The retry is planned once more from what the agent says there; a spool that cannot be read has none."""
    (turn,) = planned(JournalBuilder().running("t"), Failure("rate_limited", "", retry="again")).turns
    facts = AgentFacts(loop=turn.loop, known=True)
    assert slow_ending(turn, facts).then == "none"


def test_a_turn_that_waits_is_named_with_its_time() -> None:
    retried = t.TurnRetried(by=f"{t.BY_POLICY}rate_limited", mode="again")
    waiting = JournalBuilder().running("t").add(limited(1, 1), retried, turn="t")
    chosen = planned(waiting)
    assert [turn.action for turn in chosen.turns] == ["return"]
    (line,) = (line for line in chosen.lines() if "waits until" in line)
    assert line.endswith("because slow down (rate_limited); retry 1 of 8")
    waits = chosen.to_json()["waits"]
    assert isinstance(waits, list)
    assert [(w["turn"], w["code"], w["retry"], w["of"]) for w in waits] == [("t", "rate_limited", 1, 8)]

    returned = t.InputReturned(request_id="t", evidence="")
    assert planned(waiting.crash(2).add(returned, turn="t").restored()).waits == chosen.waits
