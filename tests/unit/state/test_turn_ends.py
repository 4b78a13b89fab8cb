"""Where turns end and where their text lies."""

import pytest

from outlast.records import types as t
from outlast.state.fold import fold
from outlast.state.turn_ends import End, Ends, begun_in
from outlast.testing.journals import JournalBuilder

RETRIED = t.TurnRetried(by="alice", mode="again")


@pytest.fixture
def journal() -> JournalBuilder:
    return JournalBuilder()


def ends_of(journal: JournalBuilder, after: int = 0) -> dict[str, End]:
    """The ends of a stream that begins after the record `after`."""
    records = journal.records()
    ends = Ends(begun_in(fold(journal.session, records[:after])))
    for record in records[after:]:
        ends.apply(record)
    return ends.take()


def seqs(journal: JournalBuilder, kind: type) -> list[int]:
    return [record.seq for record in journal.records() if isinstance(record.body, kind)]


def test_an_end_names_where_the_last_attempt_began(journal: JournalBuilder) -> None:
    journal.accept("a").start("a").attempt("a").say("a", "hi").done("a")
    end = ends_of(journal)["a"]
    assert (end.begun, end.seq) == (seqs(journal, t.TurnAttemptStarted)[-1], seqs(journal, t.TurnDone)[-1])


def test_a_turn_that_is_sent_again_has_no_end_until_it_ends_again(journal: JournalBuilder) -> None:
    journal.accept("a").start("a").attempt("a").interrupt("a").add(RETRIED, turn="a")
    assert ends_of(journal) == {}
    journal.say("a", "again").done("a")
    end = ends_of(journal)["a"]
    assert (type(end.body), end.begun) == (t.TurnDone, seqs(journal, t.TurnRetried)[-1])


def test_a_turn_that_is_parked_as_it_ends_has_one_end(journal: JournalBuilder) -> None:
    journal.accept("a").start("a").attempt("a").interrupt("a").park("a")
    end = ends_of(journal)["a"]
    assert (type(end.body), end.begun) == (t.TurnParked, seqs(journal, t.TurnAttemptStarted)[-1])


def test_who_comes_late_knows_the_beginning_of_a_turn_from_the_state(journal: JournalBuilder) -> None:
    journal.accept("a").start("a").attempt("a").say("a", "hi")
    late = len(journal.drafts)
    journal.say("a", "more").done("a")
    assert ends_of(journal, after=late)["a"].begun == seqs(journal, t.TurnAttemptStarted)[-1]


def test_a_beginning_that_was_not_seen_is_unknown(journal: JournalBuilder) -> None:
    journal.accept("a").start("a").attempt("a").interrupt("a")
    late = len(journal.drafts)
    journal.park("a")
    assert ends_of(journal, after=late)["a"].begun is None


def test_an_end_is_taken_once(journal: JournalBuilder) -> None:
    journal.accept("a").start("a").done("a")
    ends = Ends()
    for record in journal.records():
        ends.apply(record)
    assert "a" in ends
    assert list(ends.take()) == ["a"]
    assert not ends
    assert ends.take() == {}
