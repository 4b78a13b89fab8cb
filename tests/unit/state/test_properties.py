"""What holds of every journal: the invariants of records.md, over generated and over cut journals."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import IntegrityError
from outlast.records import types as t
from outlast.records.codec import chain_of
from outlast.records.envelope import Record
from outlast.state.catalog import catalog_entry, status
from outlast.state.fold import apply, digest, fold
from outlast.state.history import History
from outlast.state.model import Closed, OpenTurn, Queued, State
from outlast.state.snapshot import snapshot_of
from outlast.testing.journals import Expected, ExpectedTurn, GeneratedJournal, journals, random_journal


def replayed(records: Sequence[Record]) -> History:
    history = History()
    for record in records:
        history.apply(record)
    return history


def refused(state: State, record: Record) -> IntegrityError | None:
    try:
        apply(state, record)
    except IntegrityError as error:
        return error
    return None


STATUSES = ("new", "idle", "running", "waiting", "retrying", "parked", "failed", "stopped")


def queued(turn: ExpectedTurn) -> tuple[object, ...]:
    return (
        turn.request,
        turn.on_interrupt,
        turn.index or None,
        turn.attempts,
        turn.tries,
        turn.since_progress,
        None if turn.mode == "first" else turn.mode,
        turn.given,
        turn.retries,
        turn.delayed,
    )


def check_open(state: State, expected: Expected) -> None:
    """The open things of the state are those of the model."""
    assert [
        (
            q.request_id,
            q.on_interrupt,
            q.index,
            q.attempts,
            q.given,
            q.since_progress,
            q.retried,
            q.reserved is not None,
            q.retries,
            q.delay is not None,
        )
        for q in state.queue.values()
    ] == [queued(turn) for turn in expected.queue]
    turn = expected.running
    assert [
        (
            *(o.turn, o.index, o.attempts, o.since_progress, o.mode, o.attempt, o.reserved is not None),
            *(o.given, o.retries, o.delay is not None),
        )
        for o in state.open_turns.values()
    ] == [
        (
            *(x.request, x.index, x.attempts, x.since_progress, x.mode, x.attempt, x.reserved),
            *(x.tries, x.retries, x.delayed),
        )
        for x in ([] if turn is None else [turn])
    ]
    if turn is not None and state.running is not None:
        assert set(state.running.open_calls) >= set(turn.calls)
    assert {gate.gate: gate.turn for gate in state.gates.values()} == expected.gates
    assert not state.prepared


def check_closed(state: State, expected: Expected) -> None:
    """What a person could still reopen is what the model says."""
    assert set(state.parked) == set(expected.parked)
    last = state.last_unsuccessful.get("main")
    if expected.unsuccessful is None:
        assert last is None
    else:
        assert last is not None
        assert (last.turn, last.outcome) == (expected.unsuccessful.request, expected.outcome)
        assert last.attempts == expected.unsuccessful.attempts


@given(journals())
def test_the_fold_of_a_journal_is_what_the_session_did(journal: GeneratedJournal) -> None:
    state, expected = fold(journal.session, journal.records), journal.expected
    check_open(state, expected)
    check_closed(state, expected)
    loop = state.loops["main"]
    assert state.epoch == expected.epoch
    assert state.turns == loop.turns == expected.turns
    assert loop.held == expected.held
    assert (state.stopped is not None) == expected.stopped
    assert state.restoring == expected.restoring
    assert loop.provider_session == expected.provider_session
    assert (loop.confirmed, loop.decided, loop.untold) == (
        expected.confirmed,
        expected.decided,
        expected.untold,
    )
    held = [
        [] if captured is None else [piece.digest for piece in captured.pieces]
        for captured in (loop.captured, loop.accepted)
    ]
    assert held == [expected.captured, expected.accepted]
    assert loop.cursor == expected.cursor
    launched = None if loop.launched is None else (loop.launched.provider_session, loop.launched.confirmed)
    assert launched == expected.launched


@given(journals())
def test_the_history_gives_every_accepted_input_its_outcome(journal: GeneratedJournal) -> None:
    history = replayed(journal.records)
    assert {turn.turn: turn.outcome for turn in history.turns} == journal.expected.outcomes
    msgspec.json.encode(history.to_json())


@given(journals(), st.data())
def test_a_journal_folded_in_pieces_gives_the_same_state(
    journal: GeneratedJournal, data: st.DataObject
) -> None:
    """Invariant 7: from any cut on, and whatever was copied on the way."""
    whole = fold(journal.session, journal.records)
    cut = data.draw(st.integers(0, len(journal.records)))
    first = fold(journal.session, journal.records[:cut])
    before = digest(first)
    second = first.copy()
    for record in journal.records[cut:]:
        apply(second, record)
    assert second == whole
    assert digest(second) == digest(whole)
    assert digest(first) == before, "a copy shares something with its original"


@given(journals())
def test_every_prefix_of_a_journal_is_a_state(journal: GeneratedJournal) -> None:
    """Invariant 8, as far as the fold goes: each prefix folds, and has a status and an entry in lists."""
    state, history = State(journal.session), History()
    for record in journal.records:
        apply(state, record)
        history.apply(record)
        entry = catalog_entry(state)
        assert entry.seq == record.seq
        assert "\n" not in entry.title
        assert status(state) in STATUSES
        queue = {turn.turn for turn in history.queue}
        assert queue == set(state.queue)
        assert set(history.gates) == set(state.gates)


@given(journals())
def test_the_chain_of_a_journal_holds(journal: GeneratedJournal) -> None:
    """Invariant 1."""
    chain = b""
    for number, row in enumerate(journal.rows, start=1):
        assert row.seq == number
        chain = chain_of(chain, journal.session, row)
        assert chain == row.chain


@given(journals(), st.data())
def test_a_refused_record_leaves_no_trace(journal: GeneratedJournal, data: st.DataObject) -> None:
    """Any record of any journal, put where it does not belong, is taken or refused as a whole."""
    cut = data.draw(st.integers(0, len(journal.records)))
    state = fold(journal.session, journal.records[:cut])
    stray = data.draw(st.sampled_from(journal.records))
    misplaced = msgspec.structs.replace(stray, seq=cut + 1)
    before = digest(state)
    refusal = refused(state, misplaced)
    if refusal is not None:
        assert (refusal.seq, refusal.session_id) == (cut + 1, journal.session)
        assert digest(state) == before


@given(journals(), st.data())
def test_a_missing_or_repeated_record_is_refused(journal: GeneratedJournal, data: st.DataObject) -> None:
    """Invariant 1: seq is contiguous."""
    at = data.draw(st.integers(0, len(journal.records) - 2))
    missing = [*journal.records[:at], *journal.records[at + 1 :]]
    repeated = [*journal.records[: at + 1], *journal.records[at:]]
    for records, seq in ((missing, at + 2), (repeated, at + 1)):
        with pytest.raises(IntegrityError) as caught:
            fold(journal.session, records)
        assert caught.value.seq == seq


@given(journals())
def test_a_second_end_of_a_turn_is_refused_everywhere(journal: GeneratedJournal) -> None:
    """Invariant 2, at every place of the journal and for every turn that is not open there."""
    state = State(journal.session)
    turns: set[str] = set()
    for record in journal.records:
        apply(state, record)
        if isinstance(record.body, t.TurnStarted):
            turns.add(record.body.request_id)
        for turn in turns - state.open_turns.keys():
            again = msgspec.structs.replace(
                record,
                seq=state.seq + 1,
                type="TurnDone",
                turn=turn,
                cursor=None,
                body=t.TurnDone(stop_reason="e"),
            )
            with pytest.raises(IntegrityError, match="is not open"):
                apply(state.copy(), again)


def open_things(state: State) -> list[Queued | OpenTurn | Closed]:
    return [
        *state.queue.values(),
        *state.open_turns.values(),
        *state.parked.values(),
        *state.last_unsuccessful.values(),
    ]


def size(state: State) -> int:
    return len(snapshot_of(state).body)


def test_the_size_of_a_state_follows_what_is_open() -> None:
    """The state of a session with thousands of turns is as small as that of a young one."""
    journal = random_journal(seed=7, moves=30_000)
    assert journal.expected.turns > 1_000
    state = State(journal.session)
    for record in journal.records:
        apply(state, record)
        assert len(open_things(state)) <= 4 + 4 + 1 + 1
    assert size(state) < 10_000


@pytest.mark.parametrize("seed", range(20))
def test_long_journals_fold_to_what_the_session_did(seed: int) -> None:
    journal = random_journal(seed, moves=400)
    state = fold(journal.session, journal.records)
    check_open(state, journal.expected)
    check_closed(state, journal.expected)
    history = replayed(journal.records)
    assert {turn.turn: turn.outcome for turn in history.turns} == journal.expected.outcomes


def test_the_generated_journals_hold_every_record_type() -> None:
    """Else the properties above would be empty for some."""
    from outlast.records.registry import REGISTRY

    seen = {record.type for seed in range(60) for record in random_journal(seed, moves=100).records}
    assert seen == set(REGISTRY.names)
