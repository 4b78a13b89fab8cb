"""The invariants checked apart from the fold: nothing in journals that are right, each kind of wrong by its
number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.state.test_invariants import VIOLATIONS

from outlast.errors import IntegrityError
from outlast.ids import derived_uuid
from outlast.records import types as t
from outlast.records.codec import encode_body, record_of, row_of
from outlast.records.envelope import Cursor, Stamp
from outlast.state.fold import apply, fold
from outlast.state.invariants import Invariants, violations
from outlast.testing.journals import GeneratedJournal, JournalBuilder, journals
from outlast.turns.steering import reservations

LEFT_TO_THE_FOLD = {
    "a session that starts twice",
    "a loop that starts twice",
    "a second root loop",
    "a loop of a parent that is not there",
    "a turn that leaves an index out",
    "a turn that repeats an index",
    "a turn that starts while another runs",
    "a retry while another turn runs",
    "a turn that ends while a steer is undecided",
    "a turn that is parked while a steer is undecided",
    "a gate prepared again while it is open",
    "a retry of a turn that was done",
    "a retry of an older turn that was done",
    "a skip of a turn that was done",
    "a turn that is done while it asks",
    "a turn that fails while it asks",
    "a turn that is interrupted while it asks",
    "a turn that is parked while it asks",
    "a turn that is returned while it asks",
    "a park of a turn that was done",
}
"""Rules of the state's shape, beyond the list."""


@given(journals())
def test_a_journal_that_is_right_breaks_nothing(journal: GeneratedJournal) -> None:
    checker = Invariants()
    found = [violation for record in journal.records for violation in checker.feed(record)]
    assert found == []
    state = fold("session", journal.records)
    assert set(checker.waiting) == set(state.queue)
    assert set(checker.open_turns) == set(state.open_turns)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_what_the_fold_refuses_is_found_apart_from_it(name: str) -> None:
    spell, _ = VIOLATIONS[name]
    records = spell(JournalBuilder()).records()
    found = violations(records)
    assert [violation.seq for violation in found[:1]] == ([] if name in LEFT_TO_THE_FOLD else [len(records)])


def test_an_input_that_was_given_is_not_given_again_in_the_same_opening() -> None:
    again = JournalBuilder().running("a").attempt("a")
    assert [violation.invariant for violation in violations(again.records())] == [4]
    heard = t.AgentEventRecorded(kind="raw", text="noise")
    twice = JournalBuilder().running("a").add(heard, turn="a", cursor=Cursor("g", 9, 9, 1)).reserve("a", 2)
    assert [violation.invariant for violation in violations(twice.records())] == [4]


def test_another_line_may_be_named_in_the_place_of_one_that_was_never_written() -> None:
    """As an owner does that came after a kill between the two, and has another line."""
    heard = t.AgentEventRecorded(kind="raw", text="noise")
    anew = JournalBuilder().running("a").add(heard, turn="a", cursor=Cursor("g", 9, 9, 0)).reserve("a")
    assert violations(anew.reserve("a", 2).records()) == []


@given(journals(), st.data())
def test_what_the_fold_takes_of_what_is_reserved_breaks_nothing(
    journal: GeneratedJournal, data: st.DataObject
) -> None:
    """At any point of a journal, for whatever line an adapter wants written next."""
    cut = data.draw(st.integers(0, len(journal.records)))
    state, checker = fold("session", journal.records[:cut]), Invariants()
    for record in journal.records[:cut]:
        assert checker.feed(record) == []
    turn = state.running
    if turn is None or turn.attempt is None:
        return
    generation, seq = turn.attempt.generation, data.draw(st.integers(1, 4))
    key = data.draw(st.sampled_from([None, turn.turn, *state.queue]))
    named = None
    if key is not None:
        named = t.InputReserved(generation=generation, seq=seq, key=key, digest="f" * 64)
    for draft in reservations(state, turn, (generation, seq), named):
        stamp = Stamp(state.seq + 1, state.epoch, derived_uuid("session", state.seq), 0)
        record = record_of(row_of(draft, encode_body(draft.body), stamp, "session", state.chain), "session")
        try:
            apply(state, record)
        except IntegrityError:
            return
        assert checker.feed(record) == []


def test_an_input_is_given_only_to_an_agent_that_the_journal_names() -> None:
    unnamed = JournalBuilder().accept("a").start("a").reserve("a")
    assert [violation.invariant for violation in violations(unnamed.records())] == [4]


def test_it_goes_on_after_a_violation() -> None:
    journal = JournalBuilder().running("a").done("a").done("a").add(t.Fence(epoch=1, holder="x"))
    assert [(found.invariant, str(found).split(":")[0]) for found in violations(journal.records())] == [
        (2, f"record {len(journal.records()) - 1} breaks invariant 2"),
        (1, f"record {len(journal.records())} breaks invariant 1"),
    ]
