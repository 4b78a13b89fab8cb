"""The real Claude Code asks several questions at once, and ones with several answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import ClaudePlace, claude_place

from outlast.records.types import CallObserved, GateOpened, GateResolved, TurnAttached, TurnDone
from outlast.testing.scripted_model import Conversation, Reply, ToolCall
from outlast.testing.scripted_model.conversation import Json

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]

WAITING = 6
"""Exit code of `outlast run`."""
COLOUR: Json = {
    "question": "Which colour?",
    "header": "colour",
    "options": [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}],
    "multiSelect": False,
}
EXTRAS: Json = {
    "question": "Which extras?",
    "header": "extras",
    "options": [
        {"label": "sun", "description": "light"},
        {"label": "moon", "description": "dark"},
        {"label": "sea", "description": "wet"},
    ],
    "multiSelect": True,
}


def asks(conversation: Conversation) -> Reply:
    if conversation.results:
        return Reply(text=f"it said {conversation.results[-1]}")
    return Reply(calls=(ToolCall("AskUserQuestion", {"questions": [COLOUR, EXTRAS]}),))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        made.model.script = asks
        yield made


def open_gates(place: ClaudePlace) -> list[GateOpened]:
    return place.journal("job").bodies(GateOpened)


def test_second_approve_answers_that_are_given_under_two_owners_are_told_together(place: ClaudePlace) -> None:
    """Each question is a gate of its own; Claude Code is answered once, when both are."""
    left = place.run("ask me").wait()
    assert left.status == WAITING, left
    colour, extras = open_gates(place)
    assert [choice.id for choice in colour.choices] == ["red", "blue"]
    assert "sun, sea" in [choice.id for choice in extras.choices]
    assert place.call("answer", "job", extras.gate, "sun, sea").status == 0
    with place.at_terminal("resume", "job") as owner:
        place.until_recorded("job", "GateResolved")
        assert len(place.model.requests) == 1
        assert place.call("answer", "job", colour.gate, "blue").status == 0
        assert owner.wait() == 0, owner.shown

    journal = place.journal("job")
    assert {body.reason for body in journal.bodies(GateResolved)} == {"answered"}
    assert journal.bodies(TurnAttached)
    journal.the(TurnDone, "one")
    [result] = place.told().of_kind("result")
    assert '"Which colour?"="blue", "Which extras?"="sun, sea"' in result.text
    place.assert_one_session()


def test_never_settles_questions_at_a_terminal_are_answered_one_after_the_other(place: ClaudePlace) -> None:
    with place.at_terminal("run", "-a", "claude", "--session", "job", "--key", "one", "ask") as terminal:
        terminal.until_shown("Which colour?")
        terminal.type(b"red\r")
        terminal.until_shown("Which extras?")
        terminal.type(b"moon\r")
        assert terminal.wait() == 0, terminal.shown
    [result] = place.told().of_kind("result")
    assert '"Which colour?"="red", "Which extras?"="moon"' in result.text


def test_gate_dead_half_an_answer_dies_with_its_program(place: ClaudePlace) -> None:
    """One question was answered, the other was not: neither is asked again, and the session goes on."""
    assert place.run("ask me").wait().status == WAITING
    colour, _ = open_gates(place)
    assert place.call("answer", "job", colour.gate, "blue").status == 0
    place.until_stored('"tool_use"')
    place.kill_claude()
    place.model.script = lambda _: Reply(text="well")
    place.send("job", "what happened?", key="two", agent="claude")
    resumed = place.resume()

    assert (resumed.status, resumed.outcomes) == (1, ["interrupted", "done"]), resumed
    journal = place.journal("job")
    assert len(journal.bodies(GateResolved)) == 2
    assert not [call for call in journal.bodies(CallObserved, "one") if call.status == "completed"]
    journal.assert_every_input_ends_once()
    place.assert_one_session()
