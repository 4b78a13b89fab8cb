"""Which words of a person open a closed turn again, and which of them an owner is unable to carry out."""

from __future__ import annotations

import pytest

from outlast.records import types as t
from outlast.state.model import State
from outlast.store.contract import Entry, EntryKind
from outlast.testing.journals import JournalBuilder, bodies
from outlast.turns.effects import Effects, TurnEffect
from outlast.turns.reopening import reopening, unable
from outlast.turns.requests import AnswerRequest, Request, SettleRequest, StopRequest, TurnRequest, encode

OWED = t.PlannedEffect(name="push", phase="write_back", replay="never")
HERE = Effects([TurnEffect("push", "write_back", print)])
WAYS_ON = [t.Choice(id=each, label=each) for each in ("skip", "continue", "retry", "hold")]


def parked() -> State:
    """A turn that owes an effect, was cut off, and of which a person is asked how it goes on."""
    asked = t.GateOpened(
        gate="g", kind="question", question="?", choices=WAYS_ON, resolver="runtime", requested_by="outlast"
    )
    return (
        JournalBuilder()
        .accept("t")
        .add(t.TurnStarted(index=1, request_id="t", effects=[OWED]), bodies.attempt(1, "g1"), turn="t")
        .interrupt("t")
        .park("t")
        .add(asked, turn="t")
        .state()
    )


def entry(kind: EntryKind, request: Request) -> Entry:
    return Entry(1, kind, kind, encode(request), None, 0)


def answer(choice: str) -> Entry:
    return entry("answer", AnswerRequest(gate="g", choice=choice))


@pytest.mark.parametrize("word", [answer("retry"), answer("continue"), entry("retry", TurnRequest(turn="t"))])
def test_a_word_that_opens_a_turn_again_needs_what_the_turn_owes(word: Entry) -> None:
    state = parked()
    assert reopening(state, [word]) == "t"
    assert [(found.entry, found.turn, found.missing) for found in unable(state, [word], {})] == [
        (word, "t", ("push",))
    ]
    assert not list(unable(state, [word], HERE))


@pytest.mark.parametrize(
    "word",
    [
        *(answer("skip"), answer("hold"), answer("no such choice")),
        *(entry("skip", TurnRequest(turn="t")), entry("cancel", StopRequest(turn="t"))),
        *(entry("retry", TurnRequest(turn="another")), Entry(1, "x", "retry", b"{", None, 0)),
        entry("settle", SettleRequest(turn="t", effect="no such effect", outcome="done")),
    ],
)
def test_any_other_word_needs_nothing(word: Entry) -> None:
    state = parked()
    assert reopening(state, [word]) is None
    assert not list(unable(state, [word], {}))
