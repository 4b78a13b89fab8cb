from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.agents.claude.gates import Payload, UnaskableError, gate_requests, response
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
    return next(iter(gates_for(asked)), None)


def gates_for(asked: dict[str, Any]) -> list[GateRequested]:
    return gate_requests("q1", msgspec.Raw(json.dumps(asked).encode()))


def questions(*questions: Any) -> list[GateRequested]:
    asked = {"questions": list(questions), "metadata": 1}
    return gates_for({"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": asked})


def told(gates: list[GateRequested], *choices: str) -> Any:
    """What Claude Code is told when the first ones of these gates are answered so."""
    payloads = [msgspec.json.decode(gate.payload, type=Payload) for gate in gates]
    pairs = zip(payloads, choices, strict=False)
    said = response(dict(zip([gate.gate for gate in gates], pairs, strict=False)), payloads[0])
    return None if said is None else json.loads(bytes(said))


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


COLOUR = {
    "question": "Which?",
    "options": [{"label": "red", "description": "warm"}, {"label": "blue"}],
    "multiSelect": False,
}
EXTRAS = {"question": "Extras?", "options": [{"label": "sun"}, {"label": "sea"}], "multiSelect": True}


def test_a_question_with_options_offers_them_and_answers_by_their_label() -> None:
    [asked] = questions(COLOUR)
    assert (asked.gate, asked.kind, asked.question) == ("q1", "question", "Which?")
    assert [choice.label for choice in asked.choices] == ["red: warm", "blue"]
    assert told([asked], "blue") == {
        "behavior": "allow",
        "updatedInput": {"questions": [COLOUR], "metadata": 1, "answers": {"Which?": "blue"}},
    }


def test_a_question_with_several_answers_offers_each_combination() -> None:
    [asked] = questions(EXTRAS)
    assert [choice.id for choice in asked.choices] == ["sun", "sea", "sun, sea", "none of these"]
    assert told([asked], "sun, sea")["updatedInput"]["answers"] == {"Extras?": "sun, sea"}


def test_several_questions_are_a_gate_each_and_answered_together() -> None:
    both = questions(COLOUR, EXTRAS)
    assert [gate.gate for gate in both] == ["q1/1", "q1/2"]
    assert both[0].question == "Which?\n(question 1 of 2)"
    assert told(both, "red") is None
    assert told(both, "red", "sea")["updatedInput"] == {
        "questions": [COLOUR, EXTRAS],
        "metadata": 1,
        "answers": {"Which?": "red", "Extras?": "sea"},
    }


def test_a_choice_that_was_not_offered_is_no_answer() -> None:
    with pytest.raises(KeyError):
        told(questions(COLOUR), "green")


def test_options_of_the_same_label_stay_apart() -> None:
    [asked] = questions({"question": "Which?", "options": [{"label": "red"}, {"label": "red"}]})
    assert [choice.id for choice in asked.choices] == ["red", "red_1"]
    assert told([asked], "red_1")["updatedInput"]["answers"] == {"Which?": "red"}


@given(st.lists(st.sampled_from(["a", "b", "a_2", "a_1", "a_2_2", "b_3"]), min_size=1, max_size=12))
def test_each_option_is_a_choice_of_its_own_whatever_the_labels(labels: list[str]) -> None:
    [asked] = questions({"question": "Which?", "options": [{"label": label} for label in labels]})
    ids = [choice.id for choice in asked.choices]
    assert len(set(ids)) == len(labels)
    assert [told([asked], name)["updatedInput"]["answers"]["Which?"] for name in ids] == labels
    assert set(labels) <= set(ids), "what is written as a label means that label"


def large(count: int, length: int, questions: int = 1) -> list[Any]:
    options = [{"label": chr(65 + number) * length, "description": ""} for number in range(count)]
    return [
        {"question": f"q{number}", "options": options, "multiSelect": True} for number in range(questions)
    ]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (large(6, 200_000, 4), "it has 48\\d+ bytes, and 262144 are kept"),
        (large(6, 10_000, 4), "its choices would have 7680000 characters, and 65536 are kept"),
        ([{"question": "?", "options": [{"label": str(n)} for n in range(101)]}], "101 options"),
    ],
)
def test_questions_that_would_become_too_large_are_none_and_say_so(asked: list[Any], why: str) -> None:
    with pytest.raises(UnaskableError, match=why):
        questions(*asked)


def test_what_a_question_becomes_is_bounded_by_what_is_asked() -> None:
    """The input, which the answer repeats, is kept once, also where the request has many questions."""
    gates = questions(*large(6, 20, 16))
    asked = len(json.dumps(large(6, 20, 16)))
    made = sum(len(choice.id) + len(choice.label) for gate in gates for choice in gate.choices)
    assert len(gates) == 16
    assert made < 4 * 65_536
    assert sum(len(gate.payload) for gate in gates) < asked + 4 * 65_536
    answers = told(gates, *("none of these" for _ in gates))["updatedInput"]
    assert answers["questions"] == large(6, 20, 16)
    assert len(answers["answers"]) == 16


def test_always_is_not_offered_where_what_it_allows_is_too_long_to_read() -> None:
    rule = {**RULE, "rules": [{"toolName": "Bash", "ruleContent": "x" * 100_000}]}
    assert always(rule) is None


SEVEN = [{"label": str(number)} for number in range(7)]


@pytest.mark.parametrize(
    "asked",
    [
        [],
        [{"question": "Name?", "options": []}],
        [{"question": "", "options": [{"label": "x"}]}],
        [{"question": "Some?", "options": [{"label": ""}]}],
        [{"question": "Some?", "options": SEVEN, "multiSelect": True}],
        [COLOUR, COLOUR],
        [COLOUR, {"question": "Name?"}],
        [{**COLOUR, "question": str(number)} for number in range(17)],
    ],
)
def test_questions_that_no_choice_can_answer_are_no_gates(asked: list[Any]) -> None:
    with pytest.raises(UnaskableError):
        questions(*asked)


def test_a_request_of_an_unknown_shape_is_no_gate() -> None:
    with pytest.raises(UnaskableError, match="shape"):
        gate_requests("q1", msgspec.Raw(b'{"tool_name": 1}'))


def test_a_long_input_is_cut_in_the_question_and_not_kept_in_the_payload() -> None:
    asked = gate(input={"command": "x" * 1_000_000})
    assert asked is not None
    assert len(asked.question) < 9_000
    assert len(asked.payload) < 1_000
