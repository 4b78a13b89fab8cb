"""What a restore decides: a table of the rules, and that every crash state has a plan that closes it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.restores import carried_out

from outlast.agents.contract import ExitInfo
from outlast.records.types import (
    CallObserved,
    InputReserved,
    PlannedTurn,
)
from outlast.restore.facts import AgentFacts, Facts
from outlast.restore.plan import RestorePlan, plan
from outlast.state.attempt_rules import OPEN_CALLS
from outlast.state.fold import digest, fold
from outlast.state.model import State
from outlast.testing.journals import GeneratedJournal, JournalBuilder, journals
from outlast.turns.landing import Landing
from outlast.turns.steering import Unlanded

LOOP = "main"
NOTHING: frozenset[str] = frozenset()
KILLED = ExitInfo(status=None, signal=9)


def facts(state: State, **agent: object) -> Facts:
    loop = state.root or ""
    return Facts(agents={loop: AgentFacts(loop=loop, known=True, **agent)})  # type: ignore[arg-type]


def turn_of(chosen: RestorePlan) -> tuple[str, str]:
    (turn,) = chosen.turns
    return turn.action, turn.then


ALIVE = {"generation": "g", "found": True, "alive": True, "started": True}
DEAD = {"generation": "g", "found": True, "started": True, "exit": KILLED}


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (ALIVE | {"landing": "accepted"}, ("attach", "none")),
        (ALIVE | {"landing": "never_written"}, ("attach", "none")),
        (ALIVE | {"started": False, "landing": "never_written"}, ("return", "none")),
        (DEAD | {"landing": "written", "terminal": "done"}, ("settle", "none")),
        (DEAD | {"landing": "written", "terminal": "failed"}, ("settle", "none")),
        (DEAD | {"landing": "never_written"}, ("return", "none")),
        (DEAD | {"landing": "written"}, ("interrupt", "none")),
        (DEAD | {"landing": "written", "stored": True}, ("interrupt", "none")),
        (DEAD | {"landing": "written", "stored": False}, ("return", "none")),
        (DEAD | {"landing": "written", "stored": False, "gone": False}, ("interrupt", "none")),
        (DEAD | {"landing": "unknown"}, ("interrupt", "none")),
        (DEAD | {"landing": "foreign"}, ("interrupt", "none")),
        (DEAD | {"landing": "written", "on_interrupt": "retry"}, ("interrupt", "retry")),
        (DEAD | {"landing": "written", "on_interrupt": "retry", "gone": False}, ("interrupt", "hold")),
        (DEAD | {"landing": "written", "on_interrupt": "continue"}, ("interrupt", "continue")),
        (DEAD | {"landing": "written", "on_interrupt": "hold"}, ("interrupt", "hold")),
        (DEAD | {"landing": "written", "on_interrupt": "ask"}, ("interrupt", "ask")),
        ({"generation": "g", "found": False, "landing": "unknown"}, ("interrupt", "none")),
    ],
)
def test_an_open_turn_is_closed_by_the_first_rule_that_holds(
    agent: dict[str, object], expected: tuple[str, str]
) -> None:
    state = JournalBuilder().running("t").state()
    assert turn_of(plan(state, facts(state, **agent))) == expected


def test_a_rollout_that_was_rolled_back_is_no_proof_that_the_prompt_never_ran() -> None:
    """Its agent has run a command of it: whatever its transcript lacks, it is not given again."""
    journal = JournalBuilder().running("t")
    for status in ("started", "completed"):
        journal.add(CallObserved(call="1", name="shell", status=status), turn="t")
    state = journal.state()
    assert turn_of(plan(state, facts(state, **DEAD, landing="written", stored=False))) == (
        "interrupt",
        "none",
    )


def test_only_a_queue_that_is_not_empty_is_held() -> None:
    empty = JournalBuilder().running("t").done("t").state()
    chosen = replace(plan(empty, facts(empty)), held=True)
    assert chosen.lines()[-1] == "nothing is queued"
    assert replace(chosen, inbox=1).lines()[-1] == (
        "inputs that wait: 1 (1 not accepted yet): held until a person resumes"
    )


def test_a_turn_that_no_agent_was_given_goes_back_to_its_place() -> None:
    state = JournalBuilder().accept("t").start("t").state()
    assert turn_of(plan(state, facts(state))) == ("return", "none")


def test_a_turns_own_choice_comes_before_the_agents() -> None:
    state = JournalBuilder().accept("t", on_interrupt="retry").start("t").attempt("t").reserve("t").state()
    chosen = plan(state, facts(state, **DEAD, landing="written", on_interrupt="hold"))
    assert turn_of(chosen) == ("interrupt", "retry")


def given_to(turn: str, lives: int) -> JournalBuilder:
    """A turn that as many agent lives were given, one after another."""
    journal = JournalBuilder().running(turn)
    for number in range(2, lives + 1):
        journal.attempt(turn, number).reserve(turn)
    return journal


def test_poison_turn() -> None:
    """A turn whose agent dies without progress is quarantined after its third attempt."""
    state = given_to("t", 3).state()
    chosen = plan(state, facts(state, **DEAD, landing="written", on_interrupt="retry"))
    assert turn_of(chosen) == ("interrupt", "quarantine")


def test_lives_that_ended_before_they_were_given_the_input_poison_nothing() -> None:
    journal = JournalBuilder().accept("t").start("t")
    for number in range(1, 25):
        journal.attempt("t", number)
    state = journal.reserve("t").state()
    chosen = plan(state, facts(state, **DEAD, landing="written", on_interrupt="retry"))
    assert turn_of(chosen) == ("interrupt", "retry")


def test_progress_gives_a_turn_new_attempts() -> None:
    state = given_to("t", 2).say("t", "on it").attempt("t", 3).reserve("t").state()
    chosen = plan(state, facts(state, **DEAD, landing="written", on_interrupt="retry"))
    assert turn_of(chosen) == ("interrupt", "retry")


def test_the_evidence_names_what_was_seen_and_the_calls_without_outcome() -> None:
    builder = JournalBuilder().running("t")
    state = builder.state()
    state.open_turns["t"].open_calls["1"] = "shell"
    (turn,) = plan(state, facts(state, **DEAD, landing="written")).turns
    assert "signal 9" in turn.evidence
    assert "the input was written" in turn.evidence
    assert "shell" in turn.evidence


def test_the_evidence_of_very_many_calls_stays_short() -> None:
    builder = JournalBuilder().running("t")
    names = (f"{n} {'x' * 500}" for n in range(OPEN_CALLS + 7))
    builder.add(*(CallObserved(call=name, name=name, status="started") for name in names), turn="t")
    state = builder.state()
    (turn,) = plan(state, facts(state, **DEAD, landing="written")).turns
    assert "(1007 calls)" in turn.evidence
    assert len(turn.evidence) < 2000


def test_the_evidence_names_the_inputs_that_were_to_join() -> None:
    given = InputReserved(generation="g", seq=2, key="s", digest="d")
    state = JournalBuilder().running("t").accept("s", "q").add(given, turn="t").state()
    (turn,) = plan(state, facts(state, **DEAD, landing="written")).turns
    assert turn.evidence.endswith("it was to be joined by s")
    (turn,) = plan(state, facts(state, **ALIVE, landing="accepted")).turns
    assert "joined" not in turn.evidence


def test_an_idle_agent_that_serves_many_turns_is_adopted() -> None:
    state = JournalBuilder().running("t").done("t").state()
    (loop,) = plan(state, facts(state, **ALIVE, many_turns=True)).loops
    assert loop.action == "attach"


def test_an_agent_of_one_turn_that_outlived_it_is_ended() -> None:
    state = JournalBuilder().running("t").done("t").state()
    (loop,) = plan(state, facts(state, **ALIVE)).loops
    assert loop.action == "end"


def test_gate_dead() -> None:
    """A gate is kept while its agent waits for the answer, and closed with it."""
    state = JournalBuilder().running("t").ask("t", "q").state()
    (kept,) = plan(state, facts(state, **ALIVE, landing="accepted")).gates
    assert kept.action == "keep"
    (closed,) = plan(state, facts(state, **DEAD, landing="written")).gates
    assert closed.action == "close"


def test_a_new_session_has_an_empty_plan() -> None:
    chosen = plan(State("s"), Facts(inbox=2))
    assert chosen.starts
    assert chosen.turns == ()


# --- every crash state ---------------------------------------------------------------------------

LANDINGS: Sequence[Landing] = ("none", "never_written", "accepted", "unknown", "written", "foreign")


@st.composite
def agent_facts(draw: st.DrawFn) -> AgentFacts:
    alive = draw(st.booleans())
    return AgentFacts(
        loop=LOOP,
        known=True,
        many_turns=draw(st.booleans()),
        on_interrupt=draw(st.sampled_from(["skip", "continue", "retry", "hold", "ask"])),
        generation=draw(st.sampled_from(["g", None])),
        found=draw(st.booleans()),
        alive=alive,
        started=draw(st.booleans()),
        exit=None if alive else draw(st.sampled_from([None, KILLED])),
        landing=draw(st.sampled_from(LANDINGS)),
        terminal=None if alive else draw(st.sampled_from([None, "done", "failed", "cancelled"])),
        readable=draw(st.booleans()),
        gone=draw(st.booleans()),
    )


def owes(state: State, turn: PlannedTurn) -> bool:
    """Whether the turn's host step ends as done and effects are to follow it."""
    return turn.action == "settle" and bool(state.open_turns[turn.turn].owed)


def unlanded_of(state: State) -> st.SearchStrategy[Unlanded]:
    """Any of the inputs that were given to an agent, all of them, or a spool that cannot tell."""
    given = [entry.request_id for entry in state.queue.values() if entry.reserved is not None]
    some = st.just(NOTHING) if not given else st.frozensets(st.sampled_from(given))
    return st.one_of(st.none(), some)


@given(journals(40), agent_facts(), st.data())
def test_every_prefix_has_a_plan_that_leaves_no_turn_of_an_earlier_owner_open(
    journal: GeneratedJournal, agent: AgentFacts, data: st.DataObject
) -> None:
    end = data.draw(st.integers(0, len(journal.records)))
    state = fold(journal.session, journal.records[:end])
    seen = Facts(agents=dict.fromkeys(state.loops, agent))
    chosen = plan(state, seen)
    if chosen.starts:
        return
    inputs_before = set(state.queue) | set(state.open_turns) | set(state.parked)
    after = carried_out(state, seen, chosen, data.draw(unlanded_of(state))).state
    attached = {turn.turn for turn in chosen.turns if turn.action == "attach"}
    reopened = {turn.turn for turn in chosen.turns if turn.then in ("retry", "continue")}
    # A turn whose host step is done, now or before, goes on with what it owes.
    goes_on = {turn.turn for turn in chosen.turns if turn.action == "resume" or owes(state, turn)}
    assert set(after.open_turns) == attached | reopened | goes_on
    unsuccessful = {closed.turn for closed in after.last_unsuccessful.values()} | set(after.retryable)
    settled = {turn.turn for turn in chosen.turns if turn.action == "settle"}
    known_after = set(after.queue) | set(after.open_turns) | set(after.parked) | unsuccessful | settled
    assert inputs_before <= known_after
    # Whether a steer landed is decided, unless its turn goes on.
    undecided = {entry.joins for entry in after.queue.values() if entry.reserved is not None}
    assert undecided <= attached
    # What the restore wrote needs no second one: with the same facts nothing is closed again.
    again = plan(after, seen)
    assert {t.turn for t in again.turns if t.action != "return"} <= attached | goes_on
    assert digest(fold(journal.session, journal.records[:end])) == digest(state)


@given(journals(30), agent_facts())
def test_restoring_twice_repairs_once(journal: GeneratedJournal, agent: AgentFacts) -> None:
    """Cut off before RestoreDone, the next restore finds nothing left of what the first one closed."""
    state = fold(journal.session, journal.records)
    if state.root is None:
        return
    seen = Facts(agents=dict.fromkeys(state.loops, agent))
    first = plan(state, seen)
    after = carried_out(state, seen, first).state
    ended = [t for t in first.turns if t.action in ("settle", "interrupt") and t.then == "none"]
    closed = {t.turn for t in ended if not owes(state, t)}
    second = plan(after, seen)
    assert closed.isdisjoint({t.turn for t in second.turns})
    assert not any(gate.action == "close" for gate in second.gates)


def test_a_gate_that_is_closed_by_the_turns_end_is_not_closed_twice() -> None:
    state = JournalBuilder().running("t").ask("t", "q").state()
    seen = facts(state, **DEAD, landing="written")
    after = carried_out(state, seen, plan(state, seen)).state
    assert after.gates == {}
