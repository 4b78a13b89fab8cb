"""What a plan foresees of the commands that wait, in every state that a crash leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.restore.test_plan import agent_facts

from outlast.records.types import Choice, Content, GateOpened
from outlast.restore.facts import AgentFacts, Facts
from outlast.restore.foreseen import Around, foresee
from outlast.restore.plan import looked_ahead, plan
from outlast.state.fold import fold
from outlast.state.model import State
from outlast.store.contract import Entry, EntryKind
from outlast.testing.journals import GeneratedJournal, JournalBuilder, journals
from outlast.turns.requests import (
    AnswerRequest,
    CloseRequest,
    HoldRequest,
    InputRequest,
    Request,
    SettleRequest,
    StopRequest,
    TurnRequest,
    encode,
)

INPUT = InputRequest(content=[Content(text="hi")])


def waiting(*requests: tuple[EntryKind, Request]) -> tuple[Entry, ...]:
    return tuple(
        Entry(place, f"new{place}", kind, encode(request), "me", 0)
        for place, (kind, request) in enumerate(requests)
    )


@st.composite
def commands(draw: st.DrawFn, state: State) -> tuple[Entry, ...]:
    """About what there is, and what there is not."""
    known = [*state.open_turns, *state.parked, *state.queue, *state.retryable, "new0", "nobody's"]
    turns = st.sampled_from(known)
    effects = [effect for closed in state.parked.values() for effect in closed.effects] or ["none"]
    requests = st.one_of(
        st.just(("input", INPUT)),
        st.builds(lambda turn: ("retry", TurnRequest(turn=turn)), turns),
        st.builds(lambda turn: ("retry", TurnRequest(turn=turn, session="fresh")), turns),
        st.builds(lambda turn: ("skip", TurnRequest(turn=turn)), st.none() | turns),
        st.builds(lambda turn: ("cancel", StopRequest(turn=turn)), st.none() | turns),
        st.builds(lambda turn: ("kill", StopRequest(turn=turn)), st.none() | turns),
        st.builds(lambda turn: ("hold", HoldRequest(inputs=[turn], reason="put back")), turns),
        st.builds(
            lambda turn, effect: ("settle", SettleRequest(turn=turn, effect=effect, outcome="done")),
            turns,
            st.sampled_from(effects),
        ),
        st.builds(
            lambda gate, choice: ("answer", AnswerRequest(gate=gate, choice=choice)),
            st.sampled_from([*state.gates, "no gate"]),
            st.sampled_from(["retry", "skip", "fresh", "allow", "yes"]),
        ),
        st.just(("close", CloseRequest())),
    )
    return waiting(*draw(st.lists(requests, max_size=5)))


@given(journals(), st.data())
def test_every_crash_state_has_a_plan_of_what_waits(journal: GeneratedJournal, data: st.DataObject) -> None:
    records = journal.records
    state = fold(journal.session, records[: data.draw(st.integers(0, len(records)))])
    if state.root is None:
        return
    agents = {loop: data.draw(agent_facts()) for loop in state.loops}
    pending = data.draw(commands(state))
    seen = Facts(agents=agents, inbox=len(pending))
    chosen = plan(state, seen)
    after, ahead = foresee(state, seen, chosen, Around(pending=pending))
    told = looked_ahead(chosen, after, seen, ahead)
    assert len(ahead.commands) == sum(entry.kind != "input" for entry in pending)
    assert ahead.inputs == len(state.queue) + sum(entry.kind == "input" for entry in pending)
    assert told.lines()
    assert told.to_json()["runs"] == list(told.ahead.runs if told.ahead else ())


def foreseen(state: State, *requests: tuple[EntryKind, Request]) -> list[tuple[str, str]]:
    """What becomes of each command, and what it leads to."""
    loop = state.root or ""
    seen = Facts(agents={loop: AgentFacts(loop=loop, known=True)})
    _, ahead = foresee(state, seen, plan(state, seen), Around(pending=waiting(*requests)))
    return [(command.result, command.leads_to) for command in ahead.commands]


def test_of_two_retries_the_second_meets_the_turn_that_the_first_runs() -> None:
    state = JournalBuilder().running("a").park("a").running("b", 2).park("b").state()
    assert foreseen(state, ("retry", TurnRequest(turn="a")), ("retry", TurnRequest(turn="b"))) == [
        ("done", "turn a runs again"),
        ("refused", "a turn is running; ask again when it has ended"),
    ]


def test_inputs_that_are_to_be_parked_wait_for_the_turn_that_goes_on() -> None:
    """A turn that was opened again and waits for its agent: no other one can begin, not even to be parked."""
    state = JournalBuilder().running("a").park("a").accept("b").state()
    hold = HoldRequest(inputs=["b"], reason="put back")
    assert foreseen(state, ("retry", TurnRequest(turn="a")), ("hold", hold)) == [
        ("done", "turn a runs again"),
        ("waits", "it waits until turn a has ended"),
    ]


def test_the_same_answer_again_is_settled_as_the_same_and_a_contrary_one_is_told_the_first() -> None:
    question = GateOpened(
        gate="q",
        kind="question",
        question="Which?",
        choices=[Choice(id="left", label="l"), Choice(id="right", label="r")],
        resolver="runtime",
        requested_by="outlast",
    )
    state = JournalBuilder().running("a").park("a").add(question, turn="a").state()
    first, other = (AnswerRequest(gate="q", choice=choice, by="ann") for choice in ("left", "right"))
    (_, _), again, contrary = foreseen(state, ("answer", first), ("answer", first), ("answer", other))
    assert again == ("done", "the question has that answer already")
    assert contrary == ("too_late", "it was answered left by ann first")
