"""What each record does to the state of a session."""

from typing import Literal

import msgspec
import pytest

from outlast.records import types as t
from outlast.records.envelope import Cursor, Draft
from outlast.state.attempt_rules import OPEN_CALLS
from outlast.state.fold import digest
from outlast.state.model import Answered, Launched
from outlast.state.turn_rules import RETRYABLE
from outlast.testing.journals import JournalBuilder, bodies

RETURNED_A = t.InputReturned(request_id="a", evidence="no input frame")


@pytest.fixture
def journal() -> JournalBuilder:
    return JournalBuilder()


# --- inputs and the queue ---


def test_queue_lost(journal: JournalBuilder) -> None:
    """Accepted inputs wait in order, over crashes and restores."""
    state = journal.accept("a", "b", "c").crash(2).restored().state()
    assert list(state.queue) == ["a", "b", "c"]
    assert state.queue["a"].seq == 4


def test_claim_gap(journal: JournalBuilder) -> None:
    """A turn that was taken from the queue and never given to an agent goes back to its old place."""
    state = journal.accept("a", "b").start("a").accept("c").crash(2).add(RETURNED_A).state()
    assert list(state.queue) == ["a", "b", "c"]
    assert not state.open_turns
    assert state.queue["a"].index == 1


def test_identity_drift(journal: JournalBuilder) -> None:
    """A returned input keeps turn id and index, and its attempt does not count."""
    journal.accept("a").start("a").attempt("a").add(RETURNED_A)
    assert journal.state().queue["a"].attempts == 0
    turn = journal.start("a").state().open_turns["a"]
    assert (turn.index, turn.attempts, turn.since_progress, turn.input_seq) == (1, 0, 0, 4)
    assert journal.done("a").running("b", 2).state().turns == 2


def test_a_return_takes_back_the_last_attempt_only(journal: JournalBuilder) -> None:
    journal.running("a").interrupt("a").add(t.TurnRetried(by=t.BY_ON_INTERRUPT, mode="again"), turn="a")
    entry = journal.attempt("a", 2).add(RETURNED_A).state().queue["a"]
    assert (entry.attempts, entry.since_progress, entry.retried) == (1, 1, "again")
    turn = journal.start("a").state().open_turns["a"]
    assert (turn.attempts, turn.since_progress, turn.mode) == (1, 1, "again")


def test_lives_that_were_never_given_the_input_are_no_try_of_it(journal: JournalBuilder) -> None:
    """Agents that ended at their launch, as often as it is: the budget counts what was given alone."""
    journal.accept("a").start("a").attempt("a").attempt("a", 2, "h").attempt("a", 3, "i").add(RETURNED_A)
    entry = journal.state().queue["a"]
    assert (entry.attempts, entry.given, entry.since_progress) == (2, 0, 0)
    turn = journal.start("a").attempt("a", 3, "j").reserve("a", generation="j").state().open_turns["a"]
    assert (turn.attempts, turn.given, turn.since_progress) == (3, 1, 1)
    again = t.TurnRetried(by=t.BY_ON_INTERRUPT, mode="again")
    turn = journal.interrupt("a").add(again, turn="a").attempt("a", 4, "k").state().open_turns["a"]
    assert (turn.attempts, turn.given, turn.since_progress) == (4, 1, 1)


def test_an_input_that_was_reserved_and_never_written_is_no_try_of_it(journal: JournalBuilder) -> None:
    entry = journal.running("a").add(RETURNED_A).state().queue["a"]
    assert (entry.given, entry.since_progress) == (0, 0)


def test_what_a_life_was_launched_with_stays_to_its_end(journal: JournalBuilder) -> None:
    """Whatever it says of the provider's session meanwhile: an owner that comes later reads it with that."""

    def said(session: str, state: Literal["bound", "confirmed", "reseeded"]) -> t.AgentSessionChanged:
        return t.AgentSessionChanged(provider="p", provider_session=session, state=state, source="observed")

    journal.accept("a").start("a").attempt("a").add(said("one", "bound"), turn="a").reserve("a")
    loop = journal.add(said("one", "confirmed"), turn="a").done("a").state().loops["main"]
    assert (loop.provider_session, loop.launched) == ("one", Launched(None, confirmed=False))
    journal.accept("b").start("b", 2).attempt("b")
    assert journal.state().loops["main"].launched == Launched(None, confirmed=False), "the same life"
    journal.reserve("b", seq=2).done("b").accept("c").start("c", 3).attempt("c", generation="h")
    loop = journal.add(said("two", "reseeded"), turn="c").state().loops["main"]
    assert (loop.provider_session, loop.launched) == ("two", Launched("one", confirmed=True, given=True))


def test_a_life_in_a_folder_made_anew_has_the_name_of_an_earlier_one_alone(journal: JournalBuilder) -> None:
    """Else its first words would be taken for read, and its input for given."""
    cursor = Cursor("g", 700, 70, 5)
    heard = t.AgentEventRecorded(kind="raw", text="noise")
    folded = t.AgentStateFolded(generation="g", offset=9, stdout=8, last_input=1, state=b"{}")
    journal.running("a").add(heard, turn="a", cursor=cursor).add(folded).done("a").accept("b").start("b", 2)
    loop = journal.attempt("b").state().loops["main"]
    assert (loop.cursor, loop.folded) == (cursor, folded)
    another = bodies.attempt(2, "g")
    shim = t.Process(role="shim", pid=10, start_ticks=8)
    journal.add(msgspec.structs.replace(another, processes=[shim]), turn="b")
    loop = journal.state().loops["main"]
    assert (loop.cursor, loop.folded) == (None, None)
    journal.reserve("b", 1).reserve("b", 2).state()


def test_a_joined_or_cancelled_input_leaves_the_queue(journal: JournalBuilder) -> None:
    journal.running("a").accept("b", "c", "d").add(t.InputJoined(request_id="b"), turn="a")
    journal.add(t.InputCancelled(request_id="c", reason="withdrawn"))
    assert list(journal.state().queue) == ["d"]


def test_an_input_refused_because_busy_needs_no_acceptance(journal: JournalBuilder) -> None:
    journal.running("a").add(t.InputCancelled(request_id="b", reason="busy"))
    assert list(journal.state().open_turns) == ["a"]


def test_a_stopped_session_reopens_with_the_next_input(journal: JournalBuilder) -> None:
    assert journal.add(t.SessionStopped(reason="closed")).state().stopped == "closed"
    assert journal.accept("a").state().stopped is None


def test_a_held_queue_stays_held_over_a_restore(journal: JournalBuilder) -> None:
    """After a person's cancel the queue is held until somebody lets it go on; a restore does not."""
    journal.running("a").accept("b").interrupt("a", "cancelled")
    journal.add(t.LoopChanged(state="held", reason="cancelled by alice"))
    loop = journal.crash(2).restored().state().loops["main"]
    assert loop.held
    loop = journal.add(t.LoopChanged(state="active")).state().loops["main"]
    assert not loop.held


# --- turns ---


def test_a_turn_holds_what_restore_asks_of_it(journal: JournalBuilder) -> None:
    state = journal.accept("a", on_interrupt="retry").start("a").attempt("a").reserve("a", seq=3).state()
    turn = state.running
    assert turn is not None
    assert (turn.turn, turn.index, turn.loop, turn.epoch) == ("a", 1, "main", 1)
    assert (turn.input_seq, turn.seq, turn.attempt_seq, turn.reserved_seq) == (4, 5, 6, 7)
    assert turn.on_interrupt == "retry"
    assert turn.attempt == bodies.attempt(1, "g")
    assert turn.reserved is not None
    assert turn.reserved.seq == 3
    assert state.loops["main"].attempt == turn.attempt


def test_a_new_attempt_has_nothing_reserved_yet(journal: JournalBuilder) -> None:
    turn = journal.running("a").attempt("a", 2, "h").state().open_turns["a"]
    assert (turn.attempts, turn.reserved, turn.reserved_seq) == (2, None, 0)


@pytest.mark.parametrize(
    ("progress", "since"),
    [
        (t.AgentEventRecorded(kind="message", text="m"), 0),
        (t.CallObserved(call="c", name="sh", status="completed"), 0),
        (t.CallObserved(call="c", name="sh", status="started"), 1),
        (t.CallObserved(call="c", name="sh", status="failed"), 1),
        (t.AgentEventRecorded(kind="thought", text="m"), 1),
        (t.AgentEventRecorded(kind="raw", text="m"), 1),
    ],
)
def test_attempts_count_from_the_last_progress(journal: JournalBuilder, progress: t.Body, since: int) -> None:
    turn = journal.running("a").add(progress, turn="a").state().open_turns["a"]
    assert (turn.attempts, turn.since_progress) == (1, since)


def test_attempts_without_progress_add_up_over_restores(journal: JournalBuilder) -> None:
    """Attempts without progress add up over restores that retry by themselves; a person's retry clears that
    count, and no retry clears the total."""
    journal.running("a")
    by_itself = t.TurnRetried(by=t.BY_ON_INTERRUPT, mode="again")
    for epoch in (2, 3):
        journal.crash(epoch).interrupt("a").add(by_itself, turn="a").attempt("a", epoch).reserve(
            "a"
        ).restored()
    turn = journal.state().open_turns["a"]
    assert (turn.attempts, turn.since_progress, turn.mode) == (3, 3, "again")
    journal.interrupt("a").park("a").add(t.TurnRetried(by="alice", mode="continue"), turn="a")
    turn = journal.state().open_turns["a"]
    assert (turn.attempts, turn.since_progress, turn.mode) == (3, 0, "continue")
    assert turn.attempt is None


def test_no_trace_call(journal: JournalBuilder) -> None:
    """A call that started and has no outcome is known by name, also to the owner after a crash."""
    journal.running("a")
    for call in ("c1", "c2"):
        journal.add(t.CallObserved(call=call, name="sh", status="started"), turn="a")
    journal.add(t.CallObserved(call="c1", name="sh", status="failed"), turn="a").crash(2)
    assert journal.state().open_turns["a"].open_calls == {"c2": "sh"}


def test_a_turn_knows_many_calls_by_name_and_very_many_by_their_count(journal: JournalBuilder) -> None:
    journal.running("a")
    for n in range(OPEN_CALLS + 5):
        journal.add(t.CallObserved(call=str(n), name="sh", status="started"), turn="a")
    turn = journal.state().open_turns["a"]
    assert (len(turn.open_calls), turn.more_calls) == (OPEN_CALLS, 5)
    for n in range(OPEN_CALLS + 5):
        journal.add(t.CallObserved(call=str(n), name="sh", status="completed"), turn="a")
    turn = journal.state().open_turns["a"]
    assert (turn.open_calls, turn.more_calls) == ({}, 0)


def test_an_attached_turn_is_the_new_owners(journal: JournalBuilder) -> None:
    attached = t.TurnAttached(attempt=1, generation="g", spool_offset=10)
    journal.running("a").crash(2).add(attached, turn="a").restored()
    assert journal.state().open_turns["a"].epoch == 2


def test_output_after_the_end_of_a_turn_moves_the_cursor_only(journal: JournalBuilder) -> None:
    journal.running("a").done("a")
    before = journal.state()
    cursor = Cursor("g", 9, 8, 1)
    event = t.AgentEventRecorded(kind="message", text="late")
    after = journal.add(event, turn="a", cursor=cursor).state()
    assert after.loops["main"].cursor == cursor
    assert (after.open_turns, after.last_unsuccessful) == (before.open_turns, before.last_unsuccessful)


@pytest.mark.parametrize("body", [t.TurnDone(stop_reason="e"), t.InputJoined(request_id="b")])
def test_every_record_made_from_output_moves_the_cursor(journal: JournalBuilder, body: t.Body) -> None:
    cursor = Cursor("g", 9, 8, 1)
    state = journal.running("a").accept("b").add(body, turn="a", cursor=cursor).state()
    assert state.loops["main"].cursor == cursor


def test_the_folded_state_of_the_adapter_is_kept_for_the_next_owner(journal: JournalBuilder) -> None:
    folded = t.AgentStateFolded(generation="g", offset=5, stdout=4, last_input=1, state=b"s")
    assert journal.running("a").done("a").add(folded).state().loops["main"].folded == folded


# --- ends ---


def test_a_done_turn_leaves_nothing_behind(journal: JournalBuilder) -> None:
    state = journal.running("a").fail("a").running("b", 2).done("b").state()
    assert not state.open_turns
    assert not state.last_unsuccessful
    assert not state.parked
    assert state.turns == 2


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("crash", "interrupted"),
        ("closed", "interrupted"),
        ("cancelled", "cancelled"),
        ("killed", "cancelled"),
    ],
)
def test_the_reason_of_an_interruption_says_the_outcome(
    journal: JournalBuilder, reason: str, outcome: str
) -> None:
    journal.running("a").add(t.TurnInterrupted(index=1, reason=reason), turn="a")  # type: ignore[arg-type]
    closed = journal.state().last_unsuccessful["main"]
    assert (closed.outcome, closed.reason, closed.turn, closed.input_seq) == (outcome, reason, "a", 4)


def test_stranded_turn(journal: JournalBuilder) -> None:
    """A failed turn can be retried; a parked one also after later turns; skip is a way out of both."""
    journal.running("a").fail("a").park("a").running("b", 2).done("b")
    state = journal.state()
    assert state.parked["a"].outcome == "parked"
    assert not state.last_unsuccessful
    retried = journal.add(t.TurnRetried(by="alice", mode="again"), turn="a").state()
    assert retried.open_turns["a"].index == 1
    assert not retried.parked


@pytest.mark.parametrize("parked", [True, False])
def test_skip_takes_a_turn_out(journal: JournalBuilder, parked: bool) -> None:
    journal.running("a").fail("a")
    if parked:
        journal.park("a")
    late = t.CommandSettled(request_id="c", command="skip", outcome="too_late")
    state = journal.add(late, turn="a").state()
    assert (len(state.parked), len(state.last_unsuccessful)) == ((1, 0) if parked else (0, 1))
    done = t.CommandSettled(request_id="d", command="skip", outcome="done")
    state = journal.add(done, turn="a").state()
    assert not state.parked
    assert not state.last_unsuccessful
    assert set(state.retryable) == {"a"}, "a person may think better of it"
    again = journal.add(t.TurnRetried(by="ann", mode="again"), turn="a").state()
    assert (set(again.open_turns), again.retryable) == ({"a"}, {})


def test_a_park_can_stand_in_the_place_of_an_end(journal: JournalBuilder) -> None:
    state = journal.running("a").park("a").state()
    assert not state.open_turns
    assert (state.parked["a"].attempts, state.parked["a"].reason) == (1, "held")


# --- gates ---


def test_gate_reasked_never(journal: JournalBuilder) -> None:
    """An open gate is still there, with all that an answer needs, for the owner after a crash."""
    gate = journal.running("a").ask("a", "q").crash(2).state().gates["q"]
    assert (gate.turn, gate.name, gate.generation, gate.payload) == ("a", "7", "g", b"raw")
    assert [choice.id for choice in gate.choices] == ["yes"]


def test_an_answer_is_kept_until_the_turn_ends_so_that_a_later_owner_can_give_it(
    journal: JournalBuilder,
) -> None:
    answer = t.GateResolved(gate="q", reason="answered", answer="yes", by="alice")
    journal.running("a").ask("a", "q").add(answer, turn="a").crash(2)
    assert journal.state().open_turns["a"].answers == {"q": Answered("7", "g", b"raw", "yes")}
    assert not journal.state().gates


def test_a_question_about_a_parked_turn_stays_open_while_others_run(journal: JournalBuilder) -> None:
    """The runtime asks it after the turn's end; a retry that decides otherwise closes it."""
    journal.running("a").park("a").add(bodies.permission("q"), turn="a").running("b", 2).done("b")
    assert list(journal.state().gates) == ["q"]
    journal.add(
        t.TurnRetried(by="alice", mode="again"), t.GateResolved(gate="q", reason="abandoned"), turn="a"
    )
    assert not journal.done("a").state().gates


def test_a_steer_of_unknown_landing_is_parked_before_its_turn_ends(journal: JournalBuilder) -> None:
    reserved = t.InputReserved(generation="g", seq=2, key="b", digest="d")
    journal.running("a").accept("b").add(reserved, turn="a").start("b", 2).interrupt("b").park("b").done("a")
    assert list(journal.state().parked) == ["b"]
    assert not journal.state().open_turns


def test_a_gate_that_was_only_prepared_can_be_closed(journal: JournalBuilder) -> None:
    journal.running("a").add(t.GatePrepared(gate="q", name="7", generation="g", payload=b""), turn="a")
    assert list(journal.state().prepared) == ["q"]
    closed = journal.add(t.GateResolved(gate="q", reason="abandoned"), turn="a").state()
    assert not closed.prepared


# --- owners, restores, loops, the session ---


def test_restores_that_were_cut_off_are_followed_by_one_that_is_done(journal: JournalBuilder) -> None:
    journal.crash(2).crash(3).add(t.RestoreErrored(kind="agent", message="m")).crash(4)
    assert journal.state().restoring
    state = journal.restored().state()
    assert (state.epoch, state.holder, state.restoring) == (4, "owner 4", False)


def test_how_far_an_agent_session_is_known_is_kept(journal: JournalBuilder) -> None:
    """How far an agent's own session is known: bound, confirmed, lost."""
    journal.running("a")
    for state in ("bound", "confirmed", "lost"):
        body = t.AgentSessionChanged(
            provider="codex",
            provider_session="thr",
            state=state,
            source="observed",
        )
        loop = journal.add(body).state().loops["main"]
        assert (loop.provider, loop.provider_session) == ("codex", "thr")
        assert loop.provider_state == state


def test_what_an_owner_does_by_itself_is_no_activity(journal: JournalBuilder) -> None:
    before = journal.accept("a").state().last_activity_at
    assert journal.crash(2).restored().state().last_activity_at == before
    assert journal.accept("b").state().last_activity_at > before


def test_a_session_without_a_title_takes_that_of_its_first_input() -> None:
    journal = JournalBuilder()
    started = bodies.session_started("lineage")
    journal.drafts[1] = Draft(
        t.SessionStarted(
            lineage="l",
            manifest=started.manifest,
            fingerprint="f",
            title="",
            workspace="/w",
            labels={"k": "v"},
        )
    )
    state = journal.accept("a", "b").state()
    assert (state.title, state.labels, state.workspace) == ("text of a", {"k": "v"}, "/w")


def test_a_copy_shares_nothing_that_can_change(journal: JournalBuilder) -> None:
    journal.running("a").park("a").running("b", 2).fail("b").running("c", 3).accept("d").ask("c", "q")
    journal.add(t.CallObserved(call="c", name="sh", status="started"), turn="c")
    journal.add(t.GatePrepared(gate="p", name="8", generation="g", payload=b""), turn="c")
    state = journal.state()
    state.labels["k"] = "v"
    before = digest(state)
    twin = state.copy()
    assert twin == state
    twin.open_turns["c"].open_calls.clear()
    twin.open_turns["c"].answers["q"] = Answered("7", "g", b"", "yes")
    twin.open_turns["c"].attempts += 1
    twin.loops["main"].held = True
    kept = (twin.labels, twin.queue, twin.parked, twin.last_unsuccessful, twin.gates, twin.prepared)
    for container in (*kept, twin.open_turns, twin.loops):
        assert container
        container.clear()
    assert digest(state) == before


def test_an_older_turn_that_did_not_succeed_can_still_be_retried() -> None:
    journal = JournalBuilder().running("a").fail("a").running("b", 2).done("b")
    assert set(journal.state().retryable) == {"a"}
    again = journal.add(t.TurnRetried(by="ann", mode="again"), turn="a").state()
    assert again.retryable == {}
    assert (again.open_turns["a"].index, again.open_turns["a"].input_seq) == (1, 4)


def test_only_the_newest_of_the_older_ones_are_kept() -> None:
    journal = JournalBuilder()
    for number in range(1, 40):
        journal.running(f"t{number}", number).fail(f"t{number}")
    kept = list(journal.state().retryable)
    assert kept == [f"t{number}" for number in range(39 - RETRYABLE, 39)]
