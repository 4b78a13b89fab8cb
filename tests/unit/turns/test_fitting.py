"""An agent's records that the journal has no room for any more are left out, and nothing else."""

import pytest

from outlast.errors import IntegrityError
from outlast.ids import derived_uuid
from outlast.records import types as t
from outlast.records.codec import encode_body, record_of, row_of
from outlast.records.envelope import Draft, Stamp
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.testing.journals import JournalBuilder, bodies
from outlast.turns.fitting import fitting

CLOSED = t.GateResolved(gate="q", reason="abandoned", by="command")
PREPARED = t.GatePrepared(gate="q", name="7", generation="g", payload=b"raw")
OPENED = bodies.permission("q")
ANSWERED = t.GateResolved(gate="q", reason="answered", answer="yes", by="ann")
SAID = t.AgentEventRecorded(kind="message", text="bye")


def running() -> JournalBuilder:
    return JournalBuilder().running("t")


def drafts(*said: t.Body) -> list[Draft]:
    return [Draft(body, loop="main", turn="t") for body in said]


def kept(state: State, *said: t.Body) -> list[t.Body]:
    """What of `said` is appended; the fold takes all of it."""
    fit, after = fitting(state, drafts(*said)), state.copy()
    for draft in fit:
        stamp = Stamp(after.seq + 1, after.epoch, derived_uuid("r", after.seq), 0)
        apply(after, record_of(row_of(draft, encode_body(draft.body), stamp, "s", after.chain), "s"))
    return [draft.body for draft in fit]


def test_a_gate_that_was_answered_is_not_closed_again() -> None:
    answered = running().ask("t", "q").add(ANSWERED, turn="t").state()
    assert kept(answered, SAID, CLOSED) == [SAID]
    with pytest.raises(IntegrityError):
        apply_all(answered, CLOSED)


def apply_all(state: State, *said: t.Body) -> None:
    for draft in drafts(*said):
        stamp = Stamp(state.seq + 1, state.epoch, derived_uuid("r", state.seq), 0)
        apply(state.copy(), record_of(row_of(draft, encode_body(draft.body), stamp, "s", state.chain), "s"))


def test_an_open_gate_is_closed_once() -> None:
    assert kept(running().ask("t", "q").state(), CLOSED, CLOSED) == [CLOSED]


def test_a_gate_that_opens_and_closes_in_one_batch_does_both() -> None:
    said = [PREPARED, OPENED, CLOSED]
    assert kept(running().state(), *said) == said


def test_a_gate_that_is_asked_twice_is_asked_once() -> None:
    assert kept(running().ask("t", "q").state(), PREPARED, OPENED, SAID) == [SAID]
    assert kept(running().state(), PREPARED, OPENED, PREPARED, OPENED) == [PREPARED, OPENED]


def test_a_name_may_be_asked_again_once_its_gate_is_resolved() -> None:
    said = [PREPARED, OPENED, CLOSED, PREPARED, OPENED]
    assert kept(running().state(), *said) == said


def test_an_answer_is_not_given_to_a_later_question_of_the_same_name() -> None:
    answered = running().ask("t", "q").add(ANSWERED, turn="t")
    assert set(answered.state().open_turns["t"].answers) == {"q"}
    assert not answered.add(PREPARED, OPENED, turn="t").state().open_turns["t"].answers


@pytest.mark.parametrize(
    "said", [t.InputJoined(request_id="s"), t.InputReturned(request_id="s", evidence="")]
)
def test_the_landing_of_a_steer_is_said_once(said: t.Body) -> None:
    content = [t.Content(text="and this")]
    given = t.InputReserved(generation="g", seq=2, key="s", digest="d")
    journal = running().add(t.InputAccepted(request_id="s", content=content, joins="t"))
    assert kept(journal.state(), said) == []
    assert kept(journal.add(given, turn="t").state(), said, said) == [said]
