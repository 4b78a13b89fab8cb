"""Whether the provider session that a turn is gone on with was given the turn's input: else it gets that."""

from __future__ import annotations

import pytest

from outlast.records import agent_state as a
from outlast.records import types as t
from outlast.state.model import State
from outlast.testing.journals import JournalBuilder

CONTINUE = t.TurnRetried(by="me", mode="continue")


def said(session: str, state: str = "bound", source: str = "observed") -> t.AgentSessionChanged:
    return t.AgentSessionChanged(provider="p", provider_session=session, state=state, source=source)  # type: ignore[arg-type]


def cut_off() -> JournalBuilder:
    """A turn that was given to session `one`, was interrupted and is to be continued."""
    journal = JournalBuilder().accept("a").start("a").attempt("a").add(said("one"), turn="a").reserve("a")
    return journal.interrupt("a").add(CONTINUE, turn="a")


def restored(through: int) -> a.AgentStateRestored:
    return a.AgentStateRestored(provider="p", provider_session="one", through_seq=through)


def goes_on(state: State) -> bool:
    return state.loops["main"].goes_on(state.open_turns["a"])


def given_at(journal: JournalBuilder) -> int:
    return next(r.seq for r in journal.records() if isinstance(r.body, t.InputReserved))


def test_the_same_session_is_asked_to_go_on() -> None:
    assert goes_on(cut_off().attempt("a", 2, "h").state())


def test_a_turn_that_no_agent_was_given_gets_its_input() -> None:
    journal = JournalBuilder().accept("a").start("a").attempt("a").add(said("one"), turn="a")
    journal.interrupt("a").add(CONTINUE, turn="a")
    assert not goes_on(journal.attempt("a", 2, "h").state())


@pytest.mark.parametrize(("through", "holds"), [(0, True), (-1, False)])
def test_put_back_what_was_captured_holds_the_input_or_not(through: int, holds: bool) -> None:
    journal = cut_off()
    journal.add(restored(given_at(journal) + through))
    assert goes_on(journal.attempt("a", 2, "h").state()) == holds


@pytest.mark.parametrize("choice", ["fresh", "reseed"])
def test_a_session_that_is_begun_anew_gets_the_input(choice: a.LostChoice) -> None:
    """Before it has said its name, and after."""
    decided = a.AgentSessionDecided(provider_session="one", choice=choice, by="me")
    journal = cut_off().add(decided, turn="a").attempt("a", 2, "h")
    assert not goes_on(journal.state())
    assert not goes_on(journal.add(said("two", "reseeded"), turn="a").state())
    assert not goes_on(journal.reserve("a", generation="h").state()), "the same however often it is asked"
    journal.interrupt("a")
    assert goes_on(journal.add(CONTINUE, turn="a").attempt("a", 3, "i").state())


def test_an_agent_that_says_its_session_after_it_was_given_the_input_has_it_there() -> None:
    journal = JournalBuilder().running("a").add(said("one"), turn="a").interrupt("a").add(CONTINUE, turn="a")
    assert goes_on(journal.attempt("a", 2, "h").state())


def test_one_that_was_asked_to_go_on_and_did_so_in_another_session_has_not() -> None:
    journal = (
        cut_off()
        .attempt("a", 2, "h")
        .reserve("a", generation="h", continues=True)
        .add(said("two", "reseeded"), turn="a")
    )
    journal.interrupt("a").add(CONTINUE, turn="a")
    assert not goes_on(journal.attempt("a", 3, "i").state())


def test_an_input_that_was_returned_was_not_given() -> None:
    """And where it was given before, that stays."""
    back = t.InputReturned(request_id="a", evidence="never written")
    journal = (
        cut_off().add(said("two", "reseeded"), turn="a").attempt("a", 2, "h").reserve("a", generation="h")
    )
    journal.add(back, turn="a").start("a").attempt("a", 2, "i")
    assert not goes_on(journal.state())
    kept = (
        cut_off()
        .attempt("a", 2, "h")
        .reserve("a", generation="h", continues=True)
        .add(back, turn="a")
        .start("a")
    )
    assert goes_on(kept.attempt("a", 2, "i").state())
    lost = cut_off().attempt("a", 2, "h").reserve("a", generation="h", continues=True).add(back, turn="a")
    assert not goes_on(lost.add(said("two", "reseeded")).start("a").attempt("a", 2, "i").state())


def test_a_parked_turn_of_a_session_that_is_gone_gets_its_input() -> None:
    journal = JournalBuilder().accept("a").start("a").attempt("a").add(said("one"), turn="a").reserve("a")
    journal.interrupt("a").park("a").add(said("two", "reseeded")).add(CONTINUE, turn="a")
    assert not goes_on(journal.attempt("a", 2, "h").state())


def test_what_an_agent_was_given_on_a_session_is_counted_for_its_launch() -> None:
    """An input that provably never came to it is none, and another session has been given nothing."""
    journal = JournalBuilder().accept("a").start("a").attempt("a").add(said("one"), turn="a")
    assert not journal.state().loops["main"].launches.given
    journal.reserve("a")
    assert journal.state().loops["main"].launches.given
    back = t.InputReturned(request_id="a", evidence="never written")
    assert not journal.add(back, turn="a").state().loops["main"].launches.given
    assert not cut_off().add(said("two", "reseeded")).state().loops["main"].launches.given
