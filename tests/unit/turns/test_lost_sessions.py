"""What a failed turn tells of its agent's lost session, and the choice that it leaves."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outlast.agents.contract import Failure, TurnEnded
from outlast.journal import Proposal
from outlast.records.agent_state import AgentSessionDecided, AgentStateCaptured, StatePiece
from outlast.records.types import (
    AgentSessionChanged,
    GateOpened,
    GateResolved,
    LoopChanged,
    TurnFailed,
    TurnParked,
    TurnRetried,
)
from outlast.state.model import OpenGate, State
from outlast.testing.journals import JournalBuilder
from outlast.turns.lost import OnLost, by_itself, held_by_loss, waits_for_choice, with_loss
from outlast.turns.receipt import receipt
from outlast.turns.terminal import Ending, close

GONE = Failure("session_missing", "no such thread.")
CORRUPT = Failure("session_corrupt", "line 4 cannot be read")
UNREADABLE = Failure("session_corrupt", "/a/b: it cannot be read: Is a directory")


def running(*, confirmed: bool = True, captured: bool = False, session: str | None = "thr") -> State:
    state = JournalBuilder().running("t").state()
    loop = state.loops[state.root or ""]
    loop.provider, loop.provider_session, loop.confirmed = "codex", session, confirmed
    loop.provider_state = "confirmed" if confirmed else "bound"
    if captured:
        loop.captured = AgentStateCaptured(
            provider="codex",
            provider_session="thr",
            name="x",
            pieces=[StatePiece(digest="d" * 64, size=1)],
            through_turn="before",
        )
    return state


def failed_of_loss() -> TurnFailed:
    return TurnFailed(receipt=receipt(1, "host_launch", GONE))


def closing(state: State, failure: Failure = GONE) -> Proposal:
    return close(state, "t", Ending(failure=failure, phase="host_launch"))


def told(state: State, failure: Failure, on_lost: OnLost = "ask") -> list[object]:
    return [draft.body for draft in with_loss(state, "t", closing(state, failure), on_lost).drafts]


def test_a_person_is_asked_and_the_queue_waits() -> None:
    lost, failed, parked, asked, held = told(running(), GONE)
    assert isinstance(lost, AgentSessionChanged)
    assert (lost.state, lost.provider_session, lost.reason) == ("lost", "thr", "no such thread.")
    assert isinstance(failed, TurnFailed)
    assert isinstance(parked, TurnParked)
    assert isinstance(asked, GateOpened)
    assert asked.resolver == "runtime"
    assert "no such thread. What now?" in asked.question
    assert isinstance(held, LoopChanged)
    assert held.state == "held"


@pytest.mark.parametrize(
    ("failure", "captured", "choices"),
    [
        (GONE, False, ["reseed", "fresh", "refuse"]),
        (GONE, True, ["put_back", "reseed", "fresh", "refuse"]),
        (CORRUPT, False, ["as_is", "reseed", "fresh", "refuse"]),
        (CORRUPT, True, ["put_back", "as_is", "reseed", "fresh", "refuse"]),
        (UNREADABLE, False, ["reseed", "fresh", "refuse"]),
        (UNREADABLE, True, ["put_back", "reseed", "fresh", "refuse"]),
    ],
)
def test_only_what_can_be_done_is_offered(failure: Failure, captured: bool, choices: list[str]) -> None:
    (asked,) = [b for b in told(running(captured=captured), failure) if isinstance(b, GateOpened)]
    assert [choice.id for choice in asked.choices] == choices


def test_refused_without_a_question() -> None:
    kinds = [type(body) for body in told(running(), GONE, "refuse")]
    assert kinds == [AgentSessionChanged, TurnFailed, LoopChanged]


@pytest.mark.parametrize("on_lost", ["fresh", "reseed"])
def test_on_lost_decides_for_the_next_turn(on_lost: OnLost) -> None:
    _, decided, failed = told(running(), GONE, on_lost)
    assert isinstance(decided, AgentSessionDecided)
    assert (decided.choice, decided.by) == (on_lost, "on_lost")
    assert isinstance(failed, TurnFailed)


def test_unconfirmed_id() -> None:
    """What the agent never acknowledged is begun anew without a question, and told what happened."""
    state = running(confirmed=False)
    decided = by_itself(state.loops["main"], state.open_turns["t"], "ask")
    assert decided is not None
    assert decided.choice == "reseed"


def test_nothing_is_decided_twice() -> None:
    state = running()
    state.loops["main"].decided = "fresh"
    assert by_itself(state.loops["main"], state.open_turns["t"], "reseed") is None


@pytest.mark.parametrize(("confirmed", "on_lost"), [(False, "ask"), (True, "fresh"), (True, "reseed")])
def test_endless_launches_a_turn_has_one_session_begun_anew_by_itself(
    confirmed: bool, on_lost: OnLost
) -> None:
    """The next loss is a verdict: a program that knows no session that it began would be begun for ever."""
    journal = JournalBuilder().running("t")
    session = AgentSessionChanged(provider="p", provider_session="a", state="bound", source="chosen")
    journal.add(session, turn="t")
    if confirmed:
        journal.add(replace(session, state="confirmed"), turn="t")
    state = journal.state()
    decided = by_itself(state.loops["main"], state.open_turns["t"], on_lost)
    assert decided is not None
    state = journal.add(decided, replace(session, provider_session="b"), turn="t").state()
    assert state.loops["main"].decided is None
    assert by_itself(state.loops["main"], state.open_turns["t"], on_lost) is None
    kinds = [type(body) for body in told(state, GONE, on_lost)]
    assert kinds == [AgentSessionChanged, TurnFailed, TurnParked, GateOpened, LoopChanged]
    again = [failed_of_loss(), TurnRetried(by="me", mode="again")]
    state = journal.add(*again, turn="t").state()
    assert by_itself(state.loops["main"], state.open_turns["t"], on_lost) is not None


@pytest.mark.parametrize("failure", [Failure("crashed", "gone"), Failure("unknown", "who knows")])
def test_other_failures_are_no_loss(failure: Failure) -> None:
    assert [type(body) for body in told(running(), failure)] == [TurnFailed]


def test_an_agent_without_a_session_has_lost_none() -> None:
    assert [type(body) for body in told(running(session=None), GONE)] == [TurnFailed]


def test_a_turn_that_was_done_tells_nothing() -> None:
    state = running()
    done = close(state, "t", Ending(ended=TurnEnded("t")))
    assert with_loss(state, "t", done, "ask") == done


def test_one_question_at_a_time() -> None:
    """Another turn that fails of the same loss is held, and asks nothing new."""
    state = running()
    (asked,) = [body for body in told(state, GONE) if isinstance(body, GateOpened)]
    assert not waits_for_choice(state, "main")
    state.gates["g"] = OpenGate(
        gate="g",
        loop="main",
        turn="another",
        seq=1,
        opened_at=0,
        opened=asked,
        name="",
        generation="",
        payload=b"",
        choices=tuple(asked.choices),
    )
    assert waits_for_choice(state, "main")
    assert [type(body) for body in told(state, GONE)] == [AgentSessionChanged, TurnFailed, LoopChanged]


@pytest.mark.parametrize("on_lost", ["ask", "refuse"])
def test_the_queue_waits_for_the_choice_and_for_nothing_else(on_lost: OnLost) -> None:
    """Neither a new input nor a resume lets it go on; a choice does, and so does a person who skips."""
    journal = JournalBuilder().running("t")
    session = AgentSessionChanged(provider="p", provider_session="a", state="confirmed", source="chosen")
    state = journal.add(session, turn="t").state()
    bodies = [draft.body for draft in with_loss(state, "t", closing(state), on_lost).drafts]
    gate = next((body for body in bodies if isinstance(body, GateOpened)), None)
    state = journal.add(*bodies, turn="t").state()
    assert held_by_loss(state, "main")
    if gate is not None:
        state = journal.add(
            GateResolved(gate=gate.gate, reason="answered", answer="refuse"), turn="t"
        ).state()
        assert held_by_loss(state, "main"), "it was answered that it is left so"
    chosen = AgentSessionDecided(provider_session="a", choice="put_back", by="me")
    assert not held_by_loss(journal.add(chosen).state(), "main")


PARKED = TurnParked(reason="held", detail="by a person")
OTHER = TurnFailed(receipt=receipt(1, "host_execute", Failure("unknown", "gone")))


@pytest.mark.parametrize("failed", [failed_of_loss(), OTHER], ids=["of the loss", "of another fault"])
def test_a_parked_turn_holds_the_queue_by_what_it_failed_of_and_not_by_its_words(failed: TurnFailed) -> None:
    """The record of the loss says it in other words than the turn, or another fault in the same ones."""
    session = AgentSessionChanged(
        provider="p", provider_session="a", state="lost", source="observed", reason="gone, and more"
    )
    journal = JournalBuilder().running("t").add(session, failed, PARKED, turn="t")
    state = journal.add(LoopChanged(state="held", reason="x")).state()
    assert held_by_loss(state, "main") == (failed is not OTHER)


def test_a_turn_that_was_parked_for_an_earlier_loss_says_nothing_of_this_one() -> None:
    session = AgentSessionChanged(
        provider="p", provider_session="a", state="lost", source="observed", reason="no such thread."
    )
    journal = JournalBuilder().running("t").add(session, failed_of_loss(), PARKED, turn="t")
    journal.add(replace(session, provider_session="b"), LoopChanged(state="held", reason="x"))
    assert not held_by_loss(journal.state(), "main")


def test_a_queue_that_is_held_for_another_reason_goes_on_when_a_person_wants_it() -> None:
    """Also where the agent's session was lost before."""
    journal = JournalBuilder().running("t")
    session = AgentSessionChanged(
        provider="p", provider_session="a", state="lost", source="observed", reason="gone"
    )
    other = TurnFailed(receipt=receipt(1, "host_execute", Failure("unknown", "who knows")))
    held = LoopChanged(state="held", reason="cancelled")
    state = journal.add(session, other, held, turn="t").state()
    assert not held_by_loss(state, "main")
