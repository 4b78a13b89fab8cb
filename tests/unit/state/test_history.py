"""The journal as people read it."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.records import types as t
from outlast.records.agent_state import AgentStateRestored
from outlast.state.history import History
from outlast.state.turn_ends import BEGINNINGS, TurnText
from outlast.testing.journals import GeneratedJournal, JournalBuilder, bodies, journals

RETURNED_A = t.InputReturned(request_id="a", evidence="no input frame")
RETRIED = t.TurnRetried(by="alice", mode="again")


def history(journal: JournalBuilder) -> History:
    result = History()
    for record in journal.records():
        result.apply(record)
    return result


def shown(journal: JournalBuilder) -> list[tuple[object, ...]]:
    """The messages: their kind and what they say."""
    lines = []
    for message in history(journal).messages:
        plain = message.to_json()
        lines.append((plain["kind"], *(plain[k] for k in ("text", "name", "status", "reason") if k in plain)))
    return lines


def text_of(journal: JournalBuilder, turn: str) -> str:
    """The text of the turn's last attempt, as a reader joins it that knows where that began."""
    records = [record for record in journal.records() if record.turn == turn]
    begun = max((record.seq for record in records if isinstance(record.body, BEGINNINGS)), default=0)
    text = TurnText(turn)
    return "".join(text.piece(record) for record in records if record.seq >= begun)


@pytest.fixture
def journal() -> JournalBuilder:
    return JournalBuilder()


# --- messages ---


def test_a_conversation_is_shown_in_its_order(journal: JournalBuilder) -> None:
    journal.running("a").accept("b")
    journal.add(t.AgentEventRecorded(kind="thought", text="hm"), turn="a")
    journal.add(t.CallObserved(call="c", name="sh", status="started", input="ls"), turn="a").say(
        "a", "I look"
    )
    journal.add(t.CallObserved(call="c", name="sh", status="completed", output="x"), turn="a")
    journal.done("a").start("b", 2)
    assert shown(journal) == [
        ("user", "text of a"),
        ("thought", "hm"),
        ("tool", "sh", "completed"),
        ("assistant", "I look"),
        ("user", "text of b"),
    ]
    tool = history(journal).messages[2].to_json()
    assert (tool["input"], tool["output"]) == ("ls", "x")


def test_attachment_lost(journal: JournalBuilder) -> None:
    """All blocks of an input stay, also while it waits."""
    content = [t.Content(text="one"), t.Content(text="two\r\n\0")]
    journal.add(t.InputAccepted(request_id="a", content=content))
    assert history(journal).queue[0].content == content
    said = history(journal.start("a")).messages[0].to_json()
    assert said["content"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two\r\n\0"}]


def test_a_returned_input_is_not_shown_as_sent(journal: JournalBuilder) -> None:
    """A returned input is shown in the queue and not as sent, and once when it then runs."""
    journal.accept("a").start("a").attempt("a").add(RETURNED_A)
    assert shown(journal) == []
    assert [turn.turn for turn in history(journal).queue] == ["a"]
    assert shown(journal.start("a")) == [("user", "text of a")]


def test_a_long_message_in_several_records_is_one(journal: JournalBuilder) -> None:
    journal.running("a")
    journal.add(t.AgentEventRecorded(kind="message", text="one ", more=True), turn="a")
    journal.add(t.AgentEventRecorded(kind="thought", text="hm"), turn="a")
    journal.add(t.AgentEventRecorded(kind="message", text="text"), turn="a").say("a", "another")
    assert shown(journal) == [
        ("user", "text of a"),
        ("assistant", "one text"),
        ("thought", "hm"),
        ("assistant", "another"),
    ]


def test_placeholder_imitated(journal: JournalBuilder) -> None:
    """That a turn was cut off is said beside the agent's words, never in them."""
    journal.running("a").add(t.CallObserved(call="c", name="sh", status="started"), turn="a")
    journal.add(t.AgentEventRecorded(kind="message", text="I ", more=True), turn="a")
    journal.add(t.ReplyInterrupted(text="half a repl"), turn="a").interrupt("a", "cancelled")
    assert shown(journal) == [
        ("user", "text of a"),
        ("tool", "sh", "unknown"),
        ("assistant", "I "),
        ("assistant", "half a repl"),
        ("interrupted", "cancelled"),
    ]
    assert [m.to_json().get("cut") for m in history(journal).messages] == [None, None, True, True, None]


def test_a_joined_input_stands_where_the_turn_took_it_in(journal: JournalBuilder) -> None:
    journal.running("a").say("a", "one").accept("b").add(t.InputJoined(request_id="b"), turn="a")
    journal.say("a", "two").done("a")
    assert [line[1] for line in shown(journal)] == ["text of a", "one", "text of b", "two"]
    assert history(journal).messages[2].to_json()["turn"] == "a"
    assert [turn.turn for turn in history(journal).turns] == ["a"]


def test_a_new_owner_is_a_line_of_its_own(journal: JournalBuilder) -> None:
    journal.running("a").crash(2)
    owner = history(journal).messages[-1].to_json()
    assert (owner["kind"], owner["epoch"], owner["holder"]) == ("owner", 2, "owner 2")
    assert len(shown(journal)) == 2


def test_a_retry_shows_both_attempts(journal: JournalBuilder) -> None:
    journal.running("a").say("a", "one").fail("a").add(RETRIED, turn="a").attempt("a", 2).say("a", "two")
    assert shown(journal) == [
        ("user", "text of a"),
        ("assistant", "one"),
        ("failed", "crashed"),
        ("retried", "again"),
        ("assistant", "two"),
    ]
    assert [m.to_json().get("attempt") for m in history(journal).messages] == [None, 1, None, None, 2]


def test_an_input_that_was_sent_once_stays_said_when_its_retry_is_returned(journal: JournalBuilder) -> None:
    journal.running("a").say("a", "one").fail("a").add(RETRIED, turn="a").add(RETURNED_A)
    assert shown(journal)[0] == ("user", "text of a")
    (turn,) = history(journal).turns
    assert (turn.outcome, turn.attempts, turn.started_at is not None) == ("queued", 1, True)
    assert shown(journal.start("a")).count(("user", "text of a")) == 1


def test_a_call_of_an_attempt_that_was_given_up_has_an_unknown_outcome(journal: JournalBuilder) -> None:
    started = t.CallObserved(call="c", name="sh", status="started")
    completed = t.CallObserved(call="c", name="sh", status="completed")
    journal.running("a").add(started, turn="a").attempt("a", 2).add(started, completed, turn="a")
    assert shown(journal)[1:] == [("tool", "sh", "unknown"), ("tool", "sh", "completed")]


# --- turns ---

OUTCOMES = {
    "queued": (JournalBuilder().accept("a"), "queued", 0),
    "running": (JournalBuilder().running("a"), "running", 1),
    "done": (JournalBuilder().running("a").done("a"), "done", 1),
    "failed": (JournalBuilder().running("a").fail("a"), "failed", 1),
    "interrupted": (JournalBuilder().running("a").interrupt("a"), "interrupted", 1),
    "cancelled": (JournalBuilder().running("a").interrupt("a", "cancelled"), "cancelled", 1),
    "killed": (JournalBuilder().running("a").interrupt("a", "killed"), "cancelled", 1),
    "withdrawn": (
        JournalBuilder().accept("a").add(t.InputCancelled(request_id="a", reason="withdrawn")),
        "cancelled",
        0,
    ),
    "parked": (JournalBuilder().running("a").fail("a").park("a"), "parked", 1),
    "parked in mid turn": (JournalBuilder().running("a").park("a"), "parked", 1),
    "retried": (JournalBuilder().running("a").fail("a").add(RETRIED, turn="a"), "running", 1),
    "retried and done": (
        JournalBuilder().running("a").park("a").add(RETRIED, turn="a").attempt("a", 2).done("a"),
        "done",
        2,
    ),
    "returned": (JournalBuilder().accept("a").start("a").attempt("a").add(RETURNED_A), "queued", 0),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_turn_has_its_outcome_and_attempts(name: str) -> None:
    journal, outcome, attempts = OUTCOMES[name]
    (turn,) = history(journal).turns
    assert (turn.outcome, turn.attempts) == (outcome, attempts)
    ended = outcome not in ("queued", "running")
    assert (turn.ended_at is not None) == ended


@pytest.mark.parametrize(("before", "after"), [("failed", "failed"), ("", "cancelled")])
def test_a_skipped_turn_keeps_the_outcome_it_had(journal: JournalBuilder, before: str, after: str) -> None:
    journal.running("a")
    if before:
        journal.fail("a")
    journal.park("a").add(t.CommandSettled(request_id="c", command="skip", outcome="done"), turn="a")
    assert history(journal).turns[0].outcome == after


def test_the_shape_of_show(journal: JournalBuilder) -> None:
    bound = t.AgentSessionChanged(provider="codex", provider_session="thr", state="bound", source="observed")
    confirmed = t.AgentSessionChanged(
        provider="codex", provider_session="thr", state="confirmed", source="observed"
    )
    journal.running("a").add(bound, confirmed, turn="a").done("a").running("b", 2).accept("c").ask("b", "q")
    plain = history(journal).to_json()
    assert plain["turns"] == [
        {
            "turn": "a",
            "index": 1,
            "input": "text of a",
            "outcome": "done",
            "attempts": 1,
            "started_at": "2023-11-14T22:13:20.005000Z",
            "ended_at": "2023-11-14T22:13:20.010000Z",
        },
        {
            "turn": "b",
            "index": 2,
            "input": "text of b",
            "outcome": "running",
            "attempts": 1,
            "started_at": "2023-11-14T22:13:20.012000Z",
            "ended_at": None,
        },
        {
            "turn": "c",
            "index": None,
            "input": "text of c",
            "outcome": "queued",
            "attempts": 0,
            "started_at": None,
            "ended_at": None,
        },
    ]
    assert plain["queue"] == [
        {"request_id": "c", "input": "text of c", "accepted_at": "2023-11-14T22:13:20.015000Z"}
    ]
    assert plain["gates"] == [
        {
            "id": "q",
            "turn": "b",
            "kind": "permission",
            "question": "May I?",
            "choices": [{"id": "yes", "label": "Yes", "kind": "allow_once"}],
            "opened_at": "2023-11-14T22:13:20.017000Z",
        }
    ]
    assert plain["agent_sessions"] == [
        {
            "loop": "main",
            "provider": "codex",
            "provider_session": "thr",
            "confirmed": True,
            "current": True,
            "lost": False,
            "instead_of": None,
        }
    ]
    assert plain["restores"] == []


def test_a_lost_agent_session_is_confirmed_no_more(journal: JournalBuilder) -> None:
    for session, state in (("one", "confirmed"), ("one", "bound"), ("two", "confirmed"), ("two", "lost")):
        body = t.AgentSessionChanged(
            provider="codex",
            provider_session=session,
            state=state,  # type: ignore[arg-type]
            source="observed",
        )
        journal.add(body)
    sessions = history(journal).agent_sessions
    assert [(s.provider_session, s.confirmed) for s in sessions] == [("one", True), ("two", False)]


def changed(session: str, state: Literal["bound", "confirmed", "lost", "reseeded"]) -> t.AgentSessionChanged:
    return t.AgentSessionChanged(provider="codex", provider_session=session, state=state, source="observed")


def test_an_agent_session_that_was_lost_and_is_resumed_is_confirmed_as_it_was(
    journal: JournalBuilder,
) -> None:
    """Its agent was told that it is, and so does not say it again."""
    put_back = AgentStateRestored(
        provider="codex", provider_session="one", through_turn="t", reason="a person chose it"
    )
    journal.add(changed("one", "confirmed"), changed("one", "lost"), put_back, changed("one", "bound"))
    state = journal.state()
    (session,) = history(journal).agent_sessions
    assert session.confirmed
    assert state.loops["main"].confirmed
    assert session.went_back is not None
    assert (session.went_back.through_turn, session.went_back.reason) == ("t", "a person chose it")


def test_of_two_agent_sessions_it_is_told_which_is_used_and_what_became_of_the_other(
    journal: JournalBuilder,
) -> None:
    journal.add(changed("one", "confirmed"), changed("one", "lost"), changed("two", "reseeded"))
    one, two = history(journal).agent_sessions
    assert (one.current, one.lost, one.instead_of) == (False, True, None)
    assert (two.current, two.lost, two.instead_of) == (True, False, "one")
    journal.add(changed("two", "confirmed"))
    assert history(journal).agent_sessions[1].confirmed


def test_every_restore_has_an_end(journal: JournalBuilder) -> None:
    journal.crash(2).crash(3).add(t.RestoreErrored(kind="agent", message="no answer")).crash(4).restored()
    journal.crash(5)
    restores = history(journal).restores
    assert [(r.epoch, r.holder, r.outcome) for r in restores] == [
        (2, "owner 2", "cut"),
        (3, "owner 3", "errored"),
        (4, "owner 4", "done"),
        (5, "owner 5", "running"),
    ]
    assert restores[1].error == "agent: no answer"
    assert restores[2].took_ms == 1


# --- the text of an outcome ---


def test_the_text_of_a_turn_is_what_the_agent_said(journal: JournalBuilder) -> None:
    journal.running("a")
    journal.add(t.AgentEventRecorded(kind="thought", text="hm"), turn="a").say("a", "one")
    journal.add(t.AgentEventRecorded(kind="message", text="tw", more=True), turn="a")
    journal.add(t.AgentEventRecorded(kind="message", text="o"), turn="a").done("a")
    journal.running("b", 2).say("b", "three")
    assert text_of(journal, "a") == "one\ntwo"
    assert text_of(journal, "b") == "three"
    assert text_of(journal, "c") == ""


def test_the_text_of_a_turn_is_that_of_its_last_attempt(journal: JournalBuilder) -> None:
    journal.running("a").say("a", "one").fail("a").add(RETRIED, turn="a")
    assert text_of(journal, "a") == ""
    assert text_of(journal.attempt("a", 2).say("a", "two"), "a") == "two"


def test_a_message_that_was_cut_off_does_not_run_into_the_next_attempt(journal: JournalBuilder) -> None:
    journal.running("a").add(t.AgentEventRecorded(kind="message", text="on", more=True), turn="a")
    journal.fail("a").add(RETRIED, turn="a").attempt("a", 2).say("a", "two", "three")
    assert text_of(journal, "a") == "two\nthree"
    assert [line for line in shown(journal) if line[0] == "assistant"] == [
        ("assistant", "on"),
        ("assistant", "two"),
        ("assistant", "three"),
    ]


# --- any journal ---


@given(journals(), st.data())
def test_looking_at_a_history_on_the_way_changes_nothing(
    journal: GeneratedJournal, data: st.DataObject
) -> None:
    """So that it can be read in pages."""
    cut = data.draw(st.integers(0, len(journal.records)))
    whole, paged = History(), History()
    for record in journal.records:
        whole.apply(record)
    for page in (journal.records[:cut], journal.records[cut:]):
        for record in page:
            paged.apply(record)
        paged.to_json()
    assert paged.to_json() == whole.to_json()
    assert paged.seq == len(journal.records)


@given(journals())
def test_an_ended_turn_leaves_no_call_without_an_outcome(journal: GeneratedJournal) -> None:
    history = History()
    for record in journal.records:
        history.apply(record)
    running = {turn.turn for turn in history.turns if turn.outcome == "running"}
    for message in history.messages:
        plain = message.to_json()
        if plain["kind"] == "tool" and plain["turn"] not in running:
            assert plain["status"] in ("completed", "failed", "unknown")


def test_internal_records_are_not_shown(journal: JournalBuilder) -> None:
    journal.running("a").ask("a", "q")
    assert "raw" not in str(history(journal).to_json())
    assert bodies.permission("q").question in str(history(journal).to_json())
