"""A failed turn is tried again by itself where that can do nothing twice, and nowhere else."""

from __future__ import annotations

import itertools

import pytest

from outlast.agents.contract import ExitInfo, Failure, TurnEnded
from outlast.agents.failure import TAXONOMY
from outlast.clock import Micros, isoformat
from outlast.errors import IntegrityError
from outlast.records import types as t
from outlast.state.delays import delay_json, delayed
from outlast.state.model import Closed, ClosedAs, Delay, OpenTurn, State
from outlast.testing.journals import JournalBuilder
from outlast.turns.budget import ATTEMPTS_TOTAL
from outlast.turns.retrying import Boot, Judging, Parked, by_person, in_words, judged, left_of
from outlast.turns.terminal import AfterFailure, Ending, Stop, close

NOW = Micros(1_790_000_000_000_000)
HOUR = 3_600_000_000
JUDGING = Judging(NOW)
LIMITED = Failure("rate_limited", "slow down", retry="again")


def opened(journal: JournalBuilder | None = None) -> OpenTurn:
    return (journal or JournalBuilder().running("t")).state().open_turns["t"]


def verdict(failure: Failure, journal: JournalBuilder | None = None, judging: Judging = JUDGING) -> object:
    return judged("session", opened(journal), failure, judging)


def planned(failure: Failure, journal: JournalBuilder | None = None) -> t.PlannedRetry:
    found = verdict(failure, journal)
    assert isinstance(found, t.PlannedRetry)
    return found


# --- whether --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", TAXONOMY)
@pytest.mark.parametrize("retry", [None, "again", "continue"])
def test_each_kind(code: str, retry: str | None) -> None:
    """What follows the failure of each kind, as its adapter says it can be taken up."""
    found = verdict(Failure(code, "why", retry=retry))  # type: ignore[arg-type]
    if TAXONOMY[code].parks:
        assert isinstance(found, Parked)
        assert found.why
    elif code in ("rate_limited", "provider_overloaded", "transport_lost") and retry is not None:
        assert isinstance(found, t.PlannedRetry)
        assert found.mode == retry
    else:
        assert found is None


def test_a_code_that_nobody_knows_is_never_tried_again() -> None:
    assert verdict(Failure("weather", "rain", retry="again")) is None


def call(status: str, name: str = "c") -> t.CallObserved:
    return t.CallObserved(call=name, name="sh", status=status)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("calls", "retry", "mode"),
    [
        ([], "again", "again"),
        ([call("started"), call("completed")], "again", None),
        ([call("started"), call("failed")], "again", None),
        ([call("started"), call("completed")], "continue", "continue"),
        ([call("started"), call("failed")], "continue", "continue"),
        ([call("started")], "continue", None),
        ([call("started"), call("completed"), call("started", "d")], "continue", None),
    ],
)
def test_what_was_called_speaks_against_it(calls: list[t.CallObserved], retry: str, mode: str | None) -> None:
    """The journal's own evidence counts, whatever the adapter says."""
    journal = JournalBuilder().running("t").add(*calls, turn="t")
    found = verdict(Failure("rate_limited", "", retry=retry), journal)  # type: ignore[arg-type]
    assert (found.mode if isinstance(found, t.PlannedRetry) else None) == mode


def test_a_turn_that_went_on_is_never_given_its_input_anew() -> None:
    journal = JournalBuilder().running("t").interrupt("t")
    journal.add(t.TurnRetried(by=t.BY_ON_INTERRUPT, mode="continue"), turn="t").attempt("t", 2).reserve("t")
    assert planned(LIMITED, journal).mode == "continue"


def test_the_agents_own_limit_counts() -> None:
    assert verdict(LIMITED, judging=Judging(NOW, attempts=0)) is None
    found = verdict(LIMITED, judging=Judging(NOW, attempts=2))
    assert isinstance(found, t.PlannedRetry)
    assert (found.retry, found.of) == (1, 2)


def retried(journal: JournalBuilder, times: int, first: int = 1) -> JournalBuilder:
    """The turn has failed so often, and each time an attempt followed."""
    for retry in range(first, first + times):
        journal.add(failed(retry), by_policy(), turn="t").attempt("t", retry + 1).reserve("t")
    return journal


def failed(retry: int, wait: float = 5.0) -> t.TurnFailed:
    plan = t.PlannedRetry(mode="again", retry=retry, of=8, wait=wait, not_before="later")
    error = t.ReceiptError(code="rate_limited", message="slow down")
    receipt = t.Receipt(attempt=1, completed_phases=[], failed_phase="host_execute", error=error, retry=plan)
    return t.TurnFailed(receipt=receipt)


def by_policy(mode: str = "again") -> t.TurnRetried:
    return t.TurnRetried(by=f"{t.BY_POLICY}rate_limited", mode=mode)  # type: ignore[arg-type]


def test_retries_end() -> None:
    policy = TAXONOMY["rate_limited"].retry
    assert policy is not None
    last = retried(JournalBuilder().running("t"), policy.attempts - 1)
    assert planned(LIMITED, last).retry == policy.attempts
    assert verdict(LIMITED, retried(last, 1, policy.attempts)) is None


def test_progress_begins_the_count_anew_and_not_the_total() -> None:
    """Of a turn that went on."""
    journal = JournalBuilder().running("t")
    for retry in range(1, ATTEMPTS_TOTAL - 1):
        journal.say("t", "a step further").add(failed(1), by_policy(), turn="t")
        journal.attempt("t", retry + 1).reserve("t", continues=True)
        assert planned(LIMITED, journal).retry == 2
    journal.say("t", "again")
    assert planned(LIMITED, journal).retry == 1
    journal.add(failed(1), by_policy(), turn="t").attempt("t", ATTEMPTS_TOTAL).reserve("t", continues=True)
    assert opened(journal).attempts == ATTEMPTS_TOTAL
    assert verdict(LIMITED, journal) is None


@pytest.mark.parametrize("mode", ["again", "continue"])
def test_what_only_repeats_because_the_input_was_given_again_is_no_progress(mode: str) -> None:
    """Also of a turn that was to go on, and whose agent's session did not hold its input."""
    journal = JournalBuilder().running("t")
    for retry in range(1, 9):
        journal.add(call("started"), call("completed"), turn="t").say("t", "the same")
        journal.add(failed(retry), by_policy(mode), turn="t").attempt("t", retry + 1).reserve("t")
    journal.say("t", "the same")
    assert opened(journal).retries == 8
    assert verdict(LIMITED, journal) is None


def test_poison_turn_between_retries() -> None:
    """An attempt that the provider refused does not spend the recovery budget; crashes between do."""
    journal = JournalBuilder().running("t")
    for epoch in (2, 3, 4):
        retried(journal, 1)
        assert opened(journal).since_progress == epoch - 1
        again = t.TurnRetried(by=t.BY_ON_INTERRUPT, mode="again")
        journal.interrupt("t").add(again, turn="t").attempt("t").reserve("t")
    assert opened(journal).since_progress == 4


# --- when -----------------------------------------------------------------------------------------


def test_the_wait_is_the_same_for_who_computes_it_again() -> None:
    one, other = planned(LIMITED), planned(LIMITED)
    assert one == other
    assert 2.5 <= one.wait <= 5.0
    assert one.not_before == isoformat(NOW + int(one.wait * 1_000_000))


def test_retry_after_is_waited_for_in_full() -> None:
    wait = planned(Failure("rate_limited", "", retry_after=90.0, retry="continue")).wait
    assert 90.0 <= wait < 100.0


def test_a_pause_that_is_too_long_parks_and_says_when() -> None:
    found = verdict(Failure("rate_limited", "", retry_after=7200.0, retry="continue"))
    assert found == Parked(
        "the provider asks to be left alone for 2 h, until 2026-09-21 16:13:20 UTC: "
        "more than the 1 h that are waited by itself"
    )
    assert verdict(Failure("rate_limited", "", retry_after=7200.0)) is None


@pytest.mark.parametrize("absurd", [1_790_000_000_000.0, 1e300, -1e300, float("inf"), float("nan")])
def test_an_absurd_time_of_renewal_in_a_journal_is_not_known(absurd: float) -> None:
    assert verdict(Failure("quota_exhausted", "", retry_after=absurd)) == Parked(
        "the quota is used up: when it is renewed is not known"
    )
    planned(Failure("rate_limited", "", retry_after=absurd, retry="again"))


def test_a_quota_says_when_it_is_renewed() -> None:
    assert verdict(Failure("quota_exhausted", "", retry_after=300.0)) == Parked(
        "the quota is used up; it is renewed in 5 min, 2026-09-21 14:18:20 UTC"
    )
    assert verdict(Failure("quota_exhausted", "")) == Parked(
        "the quota is used up: when it is renewed is not known"
    )
    assert verdict(Failure("quota_exhausted", "codex: or try again at 6:19 AM.")) == Parked(
        "the quota is used up: codex: or try again at 6:19 AM."
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "1 s"),
        (90, "90 s"),
        (121, "3 min"),
        (3600, "1 h"),
        (7800, "2 h 10 min"),
        (86_400, "24 h"),
        (200_000, "2 d 7 h"),
        (259_200, "3 d"),
    ],
)
def test_lengths_of_time(seconds: float, said: str) -> None:
    assert in_words(seconds) == said


DELAY = Delay(until=NOW + 60_000_000, wait=60.0, retry=1, of=8, code="rate_limited", message="slow down")


@pytest.mark.parametrize(
    ("jumped", "left"), [(0, 60.0), (45_000_000, 15.0), (HOUR, 0.0), (-HOUR, 60.0), (-1_000 * HOUR, 60.0)]
)
def test_clock_jump_in_a_wait(jumped: int, left: float) -> None:
    """A clock that was set never makes a later owner wait for longer than was planned."""
    assert left_of(DELAY, Micros(NOW + jumped), Boot("b", 0)) == left


@pytest.mark.parametrize("passed", [0, 45, 60, 90])
@pytest.mark.parametrize("jumped", [HOUR, -HOUR])
def test_clock_jump_in_the_boot_of_the_plan_changes_nothing(jumped: int, passed: int) -> None:
    boot = Boot("b", 7_000_000_000)
    plan = verdict(LIMITED, judging=Judging(NOW, boot=boot))
    assert isinstance(plan, t.PlannedRetry)
    delay = Delay(NOW, plan.wait, 1, 8, "rate_limited", "slow down", plan.boot_id, plan.due)
    later = Boot("b", boot.time + passed * 1_000_000_000)
    assert left_of(delay, Micros(NOW + jumped), later) == pytest.approx(max(0.0, plan.wait - passed))


# --- the records ----------------------------------------------------------------------------------


def ended(failure: Failure, **how: object) -> Ending:
    return Ending(ended=TurnEnded("t", failure=failure), judging=JUDGING, **how)  # type: ignore[arg-type]


def records(ending: Ending, rule: AfterFailure = "continue") -> list[t.Body]:
    state = JournalBuilder().accept("next").running("t").state()
    return [draft.body for draft in close(state, "t", ending, rule).drafts]


def test_a_retry_is_planned_and_made_in_one_batch() -> None:
    first, second = records(ended(LIMITED), "hold")
    assert isinstance(first, t.TurnFailed)
    assert first.receipt.retry is not None
    assert second == t.TurnRetried(by="policy:rate_limited", mode="again")


@pytest.mark.parametrize(
    ("rule", "after"),
    [
        ("continue", [t.LoopChanged(state="held", reason="quota_exhausted")]),
        ("hold", [t.LoopChanged(state="held", reason="after a failed turn")]),
        ("withdraw", [t.InputCancelled(request_id="next", reason="withdrawn")]),
    ],
)
def test_a_quota_parks_the_turn_and_holds_the_queue(rule: AfterFailure, after: list[t.Body]) -> None:
    failure, parked, *rest = records(ended(Failure("quota_exhausted", "no money")), rule)
    assert isinstance(failure, t.TurnFailed)
    assert isinstance(parked, t.TurnParked)
    assert parked.reason == "held"
    assert "quota" in parked.detail
    assert rest == after


@pytest.mark.parametrize("reason", ["cancelled", "killed", "closed", "skipped"])
def test_who_wants_the_turn_ended_gets_no_retry(reason: str) -> None:
    (first, *_) = records(ended(LIMITED, stop=Stop(reason, "ann", "c1")))  # type: ignore[arg-type]
    assert isinstance(first, t.TurnInterrupted)


def test_a_skip_leaves_the_queue_going() -> None:
    interrupted = records(Ending(stop=Stop("skipped", "ann", "s1"), interrupted="it waited"))
    assert interrupted == [t.TurnInterrupted(index=1, reason="cancelled", evidence="it waited")]


def test_what_a_dead_agent_did_not_say_is_not_tried_again() -> None:
    """How a process ended says nothing of what it had done."""
    for status, signal in itertools.product((None, 0, 1, 137), (None, 9, 15)):
        bodies = records(Ending(exit=ExitInfo(status, signal), judging=JUDGING))
        assert [type(body) for body in bodies] == [t.TurnFailed]


# --- the fold -------------------------------------------------------------------------------------


def waiting() -> JournalBuilder:
    return JournalBuilder().running("t").add(failed(1), by_policy(), turn="t")


def the_delay(state: State) -> Delay | None:
    return state.open_turns["t"].delay


def test_a_turn_that_waits_is_open_and_says_for_what() -> None:
    journal = waiting()
    delay = the_delay(journal.state())
    assert delay is not None
    at = journal.records()[-1].at
    assert (delay.until, delay.wait) == (at + 5_000_000, 5.0)
    assert delay_json(delay) | {"until": ""} == {
        "until": "",
        "code": "rate_limited",
        "message": "slow down",
        "retry": 1,
        "of": 8,
    }
    assert the_delay(journal.attempt("t", 2).state()) is None


def test_a_wait_outlives_its_owner() -> None:
    """Returned to its place with what is left of it, and begun with that by the next owner."""
    before = the_delay(waiting().state())
    returned = t.InputReturned(request_id="t", evidence="no attempt had started")
    journal = waiting().crash(2).add(returned, turn="t").restored()
    queued = journal.state().queue["t"]
    assert (queued.delay, queued.retries, queued.attempts) == (before, 1, 1)
    assert delayed(journal.state()) == "t"
    turn = journal.start("t").state().open_turns["t"]
    assert (turn.delay, turn.retries, turn.mode) == (before, 1, "again")


def test_a_person_ends_the_wait() -> None:
    now = t.CommandSettled(request_id="r", command="retry", outcome="done")
    assert the_delay(waiting().add(now, turn="t").state()) is None
    returned = t.InputReturned(request_id="t", evidence="")
    state = waiting().crash(2).add(returned, turn="t").restored().add(now, turn="t").state()
    assert state.queue["t"].delay is None
    refused = t.CommandSettled(request_id="r", command="retry", outcome="refused")
    assert the_delay(waiting().add(refused, turn="t").state()) is not None


@pytest.mark.parametrize(
    "bodies",
    [
        [by_policy()],
        [failed(1), t.TurnParked(reason="held"), by_policy()],
        [failed(1), t.LoopChanged(state="held"), by_policy()],
    ],
)
def test_no_policy_retries_what_no_receipt_planned(bodies: list[t.Body]) -> None:
    journal = JournalBuilder().running("t")
    if len(bodies) == 1:
        journal.fail("t")
    with pytest.raises(IntegrityError, match="planned"):
        journal.add(*bodies, turn="t").state()


@pytest.mark.parametrize(
    ("code", "outcome", "given", "holds_prompts", "mode"),
    [
        ("quota_exhausted", "parked", 1, True, "continue"),
        ("auth_failed", "parked", 1, True, "continue"),
        ("rate_limited", "parked", 1, True, "continue"),
        ("quota_exhausted", "parked", 1, False, "again"),
        ("home_unusable", "parked", 0, True, "again"),
        ("session_corrupt", "parked", 1, True, "again"),
        ("", "parked", 1, True, "again"),
        ("quota_exhausted", "failed", 1, True, "again"),
    ],
)
def test_a_persons_retry_of_a_parked_turn_goes_the_way_of_one_by_itself(
    code: str, outcome: ClosedAs, given: int, holds_prompts: bool, mode: str
) -> None:
    closed = Closed("t", 1, "l", 9, 3, None, outcome, 1, given=given, code=code)
    assert by_person(closed, holds_prompts=holds_prompts) == mode
