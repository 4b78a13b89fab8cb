"""Events to records: merged, bounded, in order, each with a lasting id."""

from outlast.agents.contract import (
    GateRequested,
    Landed,
    Message,
    NotLanded,
    Raw,
    SessionConfirmed,
    SessionLost,
    SessionObserved,
    ToolCall,
    TurnEnded,
)
from outlast.records.envelope import Cursor, Draft
from outlast.records.types import (
    AgentEventRecorded,
    AgentSessionChanged,
    CallObserved,
    Choice,
    GateOpened,
    GatePrepared,
    InputJoined,
    InputReturned,
    ReplyInterrupted,
)
from outlast.state.model import Loop
from outlast.turns.intake import Located
from outlast.turns.merge import CALL_LIMIT, RAW_CAP, TEXT_LIMIT, Merger, Place

ALLOW = Choice(id="yes", label="Yes", kind="allow_once")


def merger(provider: str | None = None, state: str | None = None) -> Merger:
    loop = Loop("main", "main", "a", "command", provider_session=provider, provider_state=state)
    return Merger(Place("main", "t", "command"), loop)


def put(into: Merger, *events: object, start: int = 0) -> None:
    for offset, event in enumerate(events, start=start + 1):
        into.add(Located(event, Cursor("g", offset * 100, offset * 10, 1)))  # type: ignore[arg-type]


def texts(drafts: list[Draft]) -> list[tuple[str, bool]]:
    return [(d.body.text, d.body.more) for d in drafts if isinstance(d.body, AgentEventRecorded)]


def test_messages_that_follow_each_other_share_a_record() -> None:
    into = merger()
    put(into, Message("assistant", "one"), Message("assistant", "two"), Message("thought", "hm"))
    drafts = into.take()
    assert texts(drafts) == [("one\ntwo", False), ("hm", False)]
    assert [d.body.count for d in drafts if isinstance(d.body, AgentEventRecorded)] == [2, 1]


def test_a_message_over_the_limit_goes_on_in_the_next_record() -> None:
    into = merger()
    put(into, Message("assistant", "x" * (TEXT_LIMIT + 5)))
    pieces = texts(into.take())
    assert [more for _, more in pieces] == [True, False]
    assert "".join(text for text, _ in pieces) == "x" * (TEXT_LIMIT + 5)


def test_pieces_of_one_message_are_joined_without_a_break() -> None:
    into = merger()
    put(into, Message("assistant", "Hel", more=True), Message("assistant", "lo"))
    assert texts(into.take()) == [("Hello", False)]


def test_a_reply_that_was_cut_off_is_kept_apart_from_messages() -> None:
    into = merger()
    put(
        into,
        Message("assistant", "one"),
        Message("assistant", "two is ha", cut=True),
        Message("assistant", "3"),
    )
    before, cut, after = (draft.body for draft in into.take())
    assert cut == ReplyInterrupted(text="two is ha")
    assert (before, after) == (
        AgentEventRecorded(kind="message", text="one"),
        AgentEventRecorded(kind="message", text="3"),
    )


def test_a_long_reply_that_was_cut_off_is_bounded() -> None:
    into = merger()
    put(into, Message("assistant", "x" * (TEXT_LIMIT + 5), cut=True))
    (cut,) = (draft.body for draft in into.take())
    assert isinstance(cut, ReplyInterrupted)
    assert cut.text.endswith("(5 more characters)")


def test_a_steer_that_landed_joins_and_one_that_did_not_goes_back_each_once() -> None:
    into = merger()
    into.steered = {"s1", "s2"}.__contains__
    put(into, Landed("s1"), Landed("s1"), NotLanded("s2", "refused"), NotLanded("s1", "ended"))
    assert [draft.body for draft in into.take()] == [
        InputJoined(request_id="s1"),
        InputReturned(request_id="s2", evidence="refused"),
    ]


def test_the_landing_of_the_turns_own_prompt_is_no_record() -> None:
    into = merger()
    put(into, Landed("t"), Landed("an older one"), NotLanded("another", "refused"))
    assert into.take() == []


def test_text_stands_before_the_call_that_came_after_it() -> None:
    into = merger()
    put(into, Message("assistant", "now"), ToolCall("1", "sh", "started"), Message("assistant", "then"))
    kinds = [type(draft.body) for draft in into.take()]
    assert kinds == [AgentEventRecorded, CallObserved, AgentEventRecorded]


def test_huge_output() -> None:
    """A flood outside the protocol is one bounded record and a count."""
    into = merger()
    put(into, *(Raw("y" * 1000) for _ in range(500)))
    drafts = into.take()
    kept = sum(len(text) for text, _ in texts(drafts))
    assert kept <= RAW_CAP + 1000
    events = [d.body for d in drafts if isinstance(d.body, AgentEventRecorded)]
    assert sum(event.count for event in events) == 500
    assert sum(event.dropped for event in events) >= 500_000 - RAW_CAP


def test_what_is_cut_from_a_call_or_question_is_said() -> None:
    into = merger()
    put(
        into,
        ToolCall("1", "sh", "completed", output="z" * (CALL_LIMIT + 7)),
        GateRequested("q", "permission", "q" * (TEXT_LIMIT + 9), (ALLOW,)),
    )
    call, _, gate = (draft.body for draft in into.take())
    assert isinstance(call, CallObserved)
    assert call.output.endswith("(7 more characters)")
    assert isinstance(gate, GateOpened)
    assert gate.question.endswith("(9 more characters)")


def test_a_gate_keeps_what_the_agent_needs_apart_from_what_is_shown() -> None:
    into = merger()
    put(into, GateRequested("q", "permission", "ok?", (ALLOW,), b"secret"))
    prepared, opened = (draft.body for draft in into.take())
    assert isinstance(prepared, GatePrepared)
    assert not prepared.PUBLIC
    assert prepared.payload == b"secret"
    assert isinstance(opened, GateOpened)
    assert opened.gate == prepared.gate


def test_a_session_that_is_known_is_not_announced_again() -> None:
    into = merger("p1", "confirmed")
    put(into, SessionObserved("p1", "resumed"), SessionConfirmed("p1"))
    assert into.take() == []


def test_silent_fresh() -> None:
    """Another session than the one that was known is told as a new beginning, never as the old one."""
    for known, state in ((None, "bound"), ("p1", "reseeded")):
        into = merger(known, known and "confirmed")
        put(into, SessionObserved("p2"))
        (changed,) = into.take()
        assert isinstance(changed.body, AgentSessionChanged)
        assert (changed.body.state, changed.body.provider_session) == (state, "p2")


def test_a_session_that_the_agent_goes_back_to_is_told() -> None:
    """Also within one turn: the journal ends with the session that the agent is in."""
    into = merger("A", "confirmed")
    put(into, SessionLost("A", "gone on"), SessionObserved("B"))
    first = into.take()
    put(into, SessionLost("B", "gone back"), SessionObserved("A"), SessionConfirmed("A"), start=4)
    changed = [d.body for d in first + into.take() if isinstance(d.body, AgentSessionChanged)]
    said = [(body.provider_session, body.state) for body in changed]
    assert said == [("A", "lost"), ("B", "reseeded"), ("B", "lost"), ("A", "reseeded"), ("A", "confirmed")]


def test_result_twice() -> None:
    """An end that is said twice is one end, and one of another turn is none of ours."""
    into = merger()
    put(into, TurnEnded("other"), TurnEnded("t", "first"), TurnEnded("t", "second"))
    assert into.ended is not None
    assert into.ended.stop_reason == "first"


def test_a_replayed_line_makes_records_with_the_same_ids() -> None:
    ids = []
    for _ in range(2):
        into = merger()
        put(into, Message("assistant", "a"), ToolCall("1", "sh", "started"))
        ids.append([draft.id for draft in into.take()])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_records_of_different_lines_never_share_an_id() -> None:
    into = merger()
    ids = []
    for start in range(0, 6, 2):
        put(into, ToolCall("1", "sh", "started"), ToolCall("1", "sh", "completed"), start=start)
        ids += [draft.id for draft in into.take()]
    assert len(set(ids)) == 6
