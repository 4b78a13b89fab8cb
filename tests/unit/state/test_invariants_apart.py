"""The invariants checked apart from the fold: nothing in journals that are right, each kind of wrong by its
number."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.unit.state.test_invariants import VIOLATIONS

from outlast.records import types as t
from outlast.state.fold import fold
from outlast.state.invariants import Invariants, violations
from outlast.testing.journals import GeneratedJournal, JournalBuilder, journals

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
    given_to = t.InputReserved(generation="g", seq=1, key="a", digest="d")
    again = JournalBuilder().running("a").add(given_to, turn="a").attempt("a")
    assert [violation.invariant for violation in violations(again.records())] == [4]
    twice = JournalBuilder().running("a").add(given_to, given_to, turn="a")
    assert [violation.invariant for violation in violations(twice.records())] == [4]


def test_an_input_is_given_only_to_an_agent_that_the_journal_names() -> None:
    given_to = t.InputReserved(generation="g", seq=1, key="a", digest="d")
    unnamed = JournalBuilder().accept("a").start("a").add(given_to, turn="a")
    assert [violation.invariant for violation in violations(unnamed.records())] == [4]


def test_it_goes_on_after_a_violation() -> None:
    journal = JournalBuilder().running("a").done("a").done("a").add(t.Fence(epoch=1, holder="x"))
    assert [(found.invariant, str(found).split(":")[0]) for found in violations(journal.records())] == [
        (2, f"record {len(journal.records()) - 1} breaks invariant 2"),
        (1, f"record {len(journal.records())} breaks invariant 1"),
    ]
