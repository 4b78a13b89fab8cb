"""Whether a turn of an agent that died is known to have been read by nobody, and what goes back then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outlast.agents.contract import AgentEvent, ExitInfo, Failure, TurnEnded
from outlast.records import types as t
from outlast.records.envelope import Cursor
from outlast.state.model import Loop
from outlast.testing.journals import JournalBuilder
from outlast.turns.intake import Located
from outlast.turns.merge import Merger, Place
from outlast.turns.terminal import Ending, Stop
from outlast.turns.unread import back_to_its_place, proof

DIED = ExitInfo(status=None, signal=9, last_input=2, read_input=1)
LATE = "its agent had ended before it could be given it"
UNREAD = "its agent had ended before it had read any of it"
ENDED = TurnEnded("t", failure=Failure("unknown", "no"))


def named(seq: int) -> JournalBuilder:
    """Turn `t` runs, its input is named as input `seq` of its agent's life."""
    journal = JournalBuilder().accept("t").start("t").attempt("t")
    return journal.add(t.InputReserved(generation="g", seq=seq, key="t", digest="d"), turn="t")


def merger(*events: AgentEvent, by_exit: bool = False) -> Merger:
    made = Merger(Place("main", "t", "command"), Loop("main", "main", "a", "command"))
    for event in events:
        made.add(Located(event, Cursor("g", 1, 1, 0), by_exit=by_exit))
    return made


@pytest.mark.parametrize(
    ("last", "read", "seq", "expected"),
    [
        (1, 1, 2, LATE),
        (1, None, 2, LATE),
        (2, 1, 2, UNREAD),
        (2, 0, 2, UNREAD),
        (0, 0, 1, LATE),
        (None, 1, 2, UNREAD),
        (2, 2, 2, ""),
        (2, None, 2, ""),
        (None, None, 2, ""),
        (None, 2, 2, ""),
        (3, 1, 1, ""),
    ],
)
def test_an_exit_proves_what_was_not_written_and_what_was_not_read(
    last: int | None, read: int | None, seq: int, expected: str
) -> None:
    turn = named(seq).state().open_turns["t"]
    ended = replace(DIED, last_input=last, read_input=read)
    assert proof(turn, Ending(exit=ended), merger()) == expected


def test_an_input_that_was_not_even_named_was_not_read() -> None:
    turn = JournalBuilder().accept("t").start("t").attempt("t").state().open_turns["t"]
    nothing_known = ExitInfo(status=3, signal=None)
    assert proof(turn, Ending(exit=nothing_known), merger()) == "its agent had ended before it was given it"


@pytest.mark.parametrize(
    "ending",
    [
        Ending(),
        Ending(exit=replace(DIED, killed=True)),
        Ending(exit=DIED, stop=Stop("cancelled")),
        Ending(exit=DIED, failure=Failure("timeout_idle", "nothing came")),
    ],
    ids=["its shim died", "it was ended", "somebody stopped the turn", "the runtime saw it fail"],
)
@pytest.mark.parametrize("given", [True, False])
def test_a_turn_that_something_else_ended_is_closed(ending: Ending, given: bool) -> None:
    """Also where nobody read its input: another agent would only be ended in the same way."""
    journal = named(2) if given else JournalBuilder().accept("t").start("t").attempt("t")
    assert proof(journal.state().open_turns["t"], ending, merger()) == ""


def test_what_the_agent_said_of_the_turns_end_counts_and_what_its_exit_says_does_not() -> None:
    turn = named(2).state().open_turns["t"]
    assert proof(turn, Ending(exit=DIED), merger(ENDED)) == ""
    assert proof(turn, Ending(exit=DIED), merger(ENDED, by_exit=True)) == UNREAD


def test_an_input_goes_back_when_all_that_was_asked_in_its_turn_is_closed() -> None:
    """A gate of another turn's stays open."""
    state = named(2).ask("t", "q").ask(None, "other").state()
    back = back_to_its_place(state, "t", UNREAD)
    assert back is not None
    assert [draft.body for draft in back.drafts] == [
        t.GateResolved(gate="q", reason="abandoned", by="runtime"),
        t.InputReturned(request_id="t", evidence=UNREAD),
    ]
    assert {(draft.loop, draft.turn) for draft in back.drafts} == {("main", "t")}


@pytest.mark.parametrize("given", [True, False])
def test_a_turn_that_others_were_given_to_join_is_closed_and_not_taken_back(given: bool) -> None:
    journal = named(2).add(t.InputAccepted(request_id="s", content=[], joins="t"))
    if given:
        journal.add(t.InputReserved(generation="g", seq=3, key="s", digest="d"), turn="t")
    assert (back_to_its_place(journal.state(), "t", UNREAD) is None) == given


def test_a_turn_that_has_ended_meanwhile_stays_ended() -> None:
    assert back_to_its_place(named(2).done("t").state(), "t", UNREAD) is None
