"""What becomes of an input that was to join a turn, when the turn ends before it is known."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from outlast.agents.contract import ExitInfo, Failure, TurnEnded
from outlast.errors import IntegrityError
from outlast.ids import derived_uuid
from outlast.records import types as t
from outlast.records.codec import encode_body, record_of, row_of
from outlast.records.envelope import Draft, Stamp
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.testing.journals import JournalBuilder
from outlast.turns.steering import Unlanded, reservations
from outlast.turns.terminal import AfterFailure, Ending, Stop, close

GIVEN = t.InputReserved(generation="g", seq=2, key="s", digest="d")
KILLED = ExitInfo(status=None, signal=9)
LOST = frozenset({"s"})
NOTHING: frozenset[str] = frozenset()

ENDINGS: dict[str, Callable[[Unlanded], Ending]] = {
    "done": lambda unlanded: Ending(ended=TurnEnded("t"), unlanded=unlanded),
    "failed": lambda unlanded: Ending(exit=KILLED, unlanded=unlanded),
    "killed": lambda unlanded: Ending(exit=KILLED, stop=Stop("killed"), unlanded=unlanded),
    "crash": lambda unlanded: Ending(interrupted="it died", unlanded=unlanded),
    "crash, then retry": lambda unlanded: Ending(interrupted="it died", then="retry", unlanded=unlanded),
    "crash, then hold": lambda unlanded: Ending(interrupted="it died", then="hold", unlanded=unlanded),
}


def accepted(joins: str | None = "t") -> JournalBuilder:
    """Turn `t` runs, and input `s` waits that is to join it."""
    content = [t.Content(text="and this")]
    return JournalBuilder().running("t").add(t.InputAccepted(request_id="s", content=content, joins=joins))


def given() -> State:
    """The agent of turn `t` was given `s`, as the journal says."""
    return accepted().add(GIVEN, turn="t").state()


def after(state: State, drafts: tuple[Draft, ...]) -> State:
    """The drafts appended, each checked by the fold as the journal does."""
    state = state.copy()
    for draft in drafts:
        stamp = Stamp(state.seq + 1, state.epoch, derived_uuid(state.session, state.seq), 0)
        row = row_of(draft, encode_body(draft.body), stamp, state.session, state.chain)
        apply(state, record_of(row, state.session))
    return state


def test_the_reservation_of_a_steer_leaves_the_turns_own_alone() -> None:
    own = accepted().state().open_turns["t"].reserved
    state = given()
    assert state.open_turns["t"].reserved == own
    assert state.queue["s"].reserved == GIVEN


def test_a_reservation_that_the_journal_has_is_not_made_again() -> None:
    state = given()
    turn = state.open_turns["t"]
    assert reservations(state, turn, ("g", 2), GIVEN) == []
    another = t.InputReserved(generation="g", seq=3, key="s", digest="d")
    drafts = reservations(state, turn, ("g", 3), another)
    assert after(state, tuple(drafts)).queue["s"].reserved == another


@pytest.mark.parametrize("named", [None, t.InputReserved(generation="g", seq=1, key="s", digest="e")])
def test_an_input_makes_way_for_a_line_that_is_written_in_its_place_first(
    named: t.InputReserved | None,
) -> None:
    """An owner that comes after a kill may have something else to say before it, an answer for instance: what
    stands there then is no proof against the input."""
    state = accepted().state()
    own = state.open_turns["t"].reserved
    assert own is not None
    drafts = reservations(state, state.open_turns["t"], ("g", own.seq), named)
    moved = after(state, tuple(drafts))
    assert moved.open_turns["t"].reserved == replace(own, seq=own.seq + 1)
    assert moved.queue["s"].reserved == named
    assert reservations(moved, moved.open_turns["t"], ("g", own.seq), named) == []
    assert reservations(moved, moved.open_turns["t"], ("g", own.seq + 1), replace(own, seq=own.seq + 1)) == []


def test_a_joined_input_waits_no_more() -> None:
    joined = accepted().add(GIVEN, t.InputJoined(request_id="s"), turn="t").state()
    assert joined.queue == {}
    assert after(joined, close(joined, "t", Ending(ended=TurnEnded("t"))).drafts).turns == 1


def test_a_refused_steer_waits_for_a_turn_of_its_own_and_is_not_offered_again() -> None:
    back = t.InputReturned(request_id="s", evidence="refused")
    queued = accepted().add(GIVEN, back, turn="t").state().queue["s"]
    assert (queued.joins, queued.reserved) == (None, None)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_input_that_was_never_written_stays_in_the_queue(ending: str) -> None:
    state = given()
    closed = after(state, close(state, "t", ENDINGS[ending](NOTHING)).drafts)
    assert closed.queue["s"].reserved is None
    assert closed.parked.keys() <= {"t"}


@pytest.mark.parametrize("unlanded", [LOST, None])
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_input_of_unknown_landing_is_parked_as_a_turn_of_its_own(ending: str, unlanded: Unlanded) -> None:
    state = given()
    drafts = close(state, "t", ENDINGS[ending](unlanded)).drafts
    (interrupted,) = [d.body for d in drafts if d.turn == "s" and isinstance(d.body, t.TurnInterrupted)]
    assert interrupted.evidence.startswith("steered into turn t, landing unknown")
    closed = after(state, drafts)
    assert closed.queue == {}
    assert closed.parked["s"].index == 2
    assert closed.parked["s"].input_seq == state.queue["s"].seq


def test_the_turn_that_was_steered_stays_the_one_that_a_retry_means() -> None:
    state = given()
    closed = after(state, close(state, "t", Ending(interrupted="it died")).drafts)
    assert closed.last_unsuccessful["main"].turn == "t"


def test_an_input_that_was_not_given_yet_is_left_alone() -> None:
    state = accepted().state()
    closing = close(state, "t", Ending(interrupted="it died"))
    assert [type(draft.body) for draft in closing.drafts] == [t.TurnInterrupted]
    assert list(after(state, closing.drafts).queue) == ["s"]


@pytest.mark.parametrize(("unlanded", "withdrawn"), [(LOST, ["q"]), (NOTHING, ["s", "q"])])
def test_a_withdrawn_queue_holds_what_was_never_written_only(
    unlanded: Unlanded, withdrawn: list[str]
) -> None:
    rule: AfterFailure = "withdraw"
    state = accepted().add(GIVEN, turn="t").accept("q").state()
    ending = Ending(failure=Failure("unknown", "no"), unlanded=unlanded)
    drafts = close(state, "t", ending, rule).drafts
    cancelled = [d.body.request_id for d in drafts if isinstance(d.body, t.InputCancelled)]
    assert cancelled == withdrawn
    assert after(state, drafts).queue == {}


def test_a_turn_whose_steer_is_undecided_cannot_be_closed() -> None:
    with pytest.raises(IntegrityError, match="not decided"):
        after(given(), (Draft(t.TurnDone(stop_reason="end_turn"), loop="main", turn="t"),))
