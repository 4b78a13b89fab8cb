from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from outlast.agents.claude.gates import gate_request
from outlast.agents.contract import GateRequested

RULE = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "ls *"}, {"toolName": "Read"}],
    "behavior": "allow",
    "destination": "localSettings",
}
FOLDER = {"type": "addDirectories", "directories": ["/a", "/b"], "destination": "session"}
MODE = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}


def gate(tool: str = "Bash", **fields: Any) -> GateRequested | None:
    asked = {"subtype": "can_use_tool", "tool_name": tool, "input": {"command": "ls"}, **fields}
    return gate_request("q1", msgspec.Raw(json.dumps(asked).encode()))


def responses(gate: GateRequested) -> dict[str, Any]:
    payload = json.loads(gate.payload)
    assert payload["id"] == "q1"
    return dict(payload["responses"])


def always(*suggestions: Any) -> tuple[str, Any] | None:
    """What `allow_always` says and does, if it is offered."""
    asked = gate(permission_suggestions=list(suggestions))
    assert asked is not None
    label = next((choice.label for choice in asked.choices if choice.id == "allow_always"), None)
    return None if label is None else (label, responses(asked)["allow_always"]["updatedPermissions"])


def test_a_permission_offers_once_and_a_rejection() -> None:
    asked = gate(decision_reason="Path is outside")
    assert asked is not None
    assert asked.question == 'Use Bash?\nPath is outside\n{"command": "ls"}'
    assert [(choice.id, choice.kind) for choice in asked.choices] == [
        ("allow_once", "allow_once"),
        ("reject_once", "reject_once"),
    ]
    assert responses(asked) == {
        "allow_once": {"behavior": "allow"},
        "reject_once": {"behavior": "deny", "message": "The user rejected this."},
    }


def test_always_takes_the_proposed_rules_and_nothing_wider() -> None:
    told = always(RULE, FOLDER, MODE)
    assert told is not None
    assert told[0] == (
        "Always allow: Bash(ls *), Read (kept in the project's local settings);"
        " work in /a, /b (for this session)"
    )
    assert told[1] == [RULE, FOLDER]


def test_without_a_rule_always_is_what_is_proposed() -> None:
    told = always(MODE)
    assert told == ("Always allow: the mode acceptEdits (for this session)", [MODE])


@pytest.mark.parametrize("unknown", [{"type": "addRules"}, {"type": "something", "destination": "session"}])
def test_what_cannot_be_named_is_not_offered(unknown: dict[str, Any]) -> None:
    assert always(unknown) is None
    assert always() is None


def test_a_question_with_options_offers_them_and_answers_by_their_label() -> None:
    question = {
        "question": "Which?",
        "options": [{"label": "red", "description": "warm"}, {"label": "blue"}],
        "multiSelect": False,
    }
    asked = gate("AskUserQuestion", input={"questions": [question], "metadata": 1})
    assert asked is not None
    assert (asked.kind, asked.question) == ("question", "Which?")
    assert [choice.label for choice in asked.choices] == ["red: warm", "blue"]
    assert responses(asked)["blue"]["updatedInput"] == {
        "questions": [question],
        "metadata": 1,
        "answers": {"Which?": "blue"},
    }


@pytest.mark.parametrize(
    "questions",
    [
        [],
        [{"question": "Name?", "options": []}],
        [{"question": "Some?", "options": [{"label": "x"}], "multiSelect": True}],
        [{"question": "A?", "options": [{"label": "x"}]}, {"question": "B?", "options": [{"label": "x"}]}],
    ],
)
def test_questions_that_no_choice_can_answer_are_no_gates(questions: list[Any]) -> None:
    assert gate("AskUserQuestion", input={"questions": questions}) is None


def test_a_request_of_an_unknown_shape_is_no_gate() -> None:
    assert gate_request("q1", msgspec.Raw(b'{"tool_name": 1}')) is None


def test_a_long_input_is_cut_in_the_question_and_not_kept_in_the_payload() -> None:
    asked = gate(input={"command": "x" * 1_000_000})
    assert asked is not None
    assert len(asked.question) < 9_000
    assert len(asked.payload) < 1_000
