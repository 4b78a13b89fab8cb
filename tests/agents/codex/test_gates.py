from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.agents.codex.gates import gate_request
from outlast.agents.contract import GateRequested


def gate(method: str, params: dict[str, Any], changes: str = "") -> GateRequested | None:
    return gate_request(5, method, msgspec.Raw(json.dumps(params).encode()), changes)


def results(gate: GateRequested) -> dict[str, Any]:
    payload = json.loads(gate.payload)
    assert payload["id"] == 5
    return dict(payload["results"])


def test_a_command_offers_what_codex_allows_and_always_a_rejection() -> None:
    amendment = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["ls"]}}
    network = [
        {
            "applyNetworkPolicyAmendment": {
                "network_policy_amendment": {"host": "a.example", "action": "allow"}
            }
        },
        {
            "applyNetworkPolicyAmendment": {
                "network_policy_amendment": {"host": "b.example", "action": "deny"}
            }
        },
    ]
    decisions = ["accept", "acceptForSession", amendment, *network, {"new": 1}, "cancel"]
    asked = gate("item/commandExecution/requestApproval", {"command": "ls", "availableDecisions": decisions})
    assert asked is not None
    assert [(choice.id, choice.kind) for choice in asked.choices] == [
        ("allow_once", "allow_once"),
        ("allow_always", "allow_always"),
        ("allow_always_2", "allow_always"),
        ("allow_always_3", "allow_always"),
        ("reject_always", "reject_always"),
        ("reject_once", "reject_once"),
    ]
    answers = results(asked)
    assert answers["allow_once"] == {"decision": "accept"}
    assert answers["allow_always_2"] == {"decision": amendment}
    assert answers["reject_always"] == {"decision": network[1]}
    assert answers["reject_once"] == {"decision": "decline"}


def test_permissions_are_granted_as_asked_or_not_at_all() -> None:
    wanted = {"network": {"enabled": True}, "fileSystem": None}
    asked = gate("item/permissions/requestApproval", {"permissions": wanted, "reason": "to fetch"})
    assert asked is not None
    assert asked.question == 'Grant these permissions: {"network":{"enabled": true}}?\nto fetch'
    assert results(asked) == {
        "allow_once": {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
        "allow_always": {"permissions": {"network": {"enabled": True}}, "scope": "session"},
        "reject_once": {"permissions": {}, "scope": "turn"},
    }


def test_a_file_change_names_the_root_that_it_would_open() -> None:
    asked = gate("item/fileChange/requestApproval", {"itemId": "c", "grantRoot": "/etc"}, "add /etc/x")
    assert asked is not None
    assert asked.question == "Apply these changes and allow writes under /etc?\nadd /etc/x"


def test_an_mcp_server_is_answered_when_it_asks_for_no_form() -> None:
    params = {"mode": "form", "serverName": "git", "message": "Push?", "requestedSchema": {"type": "object"}}
    asked = gate("mcpServer/elicitation/request", params)
    assert asked is not None
    assert (asked.kind, asked.question) == ("permission", "git: Push?")
    assert results(asked)["allow_once"] == {"action": "accept", "content": {}, "_meta": None}
    params["requestedSchema"] = {"type": "object", "required": ["name"]}
    assert gate("mcpServer/elicitation/request", params) is None


@pytest.mark.parametrize(
    "questions",
    [
        [],
        [{"id": "q", "question": "Name?", "options": None}],
        [{"id": "q", "question": "A?", "options": [{"label": "x"}]}, {"id": "r", "question": "B?"}],
    ],
)
def test_questions_that_no_choice_can_answer_are_no_gates(questions: list[Any]) -> None:
    assert gate("item/tool/requestUserInput", {"questions": questions}) is None


@pytest.mark.parametrize(
    "method",
    [
        "item/commandExecution/requestApproval",
        "item/fileChange/requestApproval",
        "item/permissions/requestApproval",
        "item/tool/requestUserInput",
        "mcpServer/elicitation/request",
        "something/else",
    ],
)
def test_a_request_of_an_unknown_shape_is_no_gate(method: str) -> None:
    assert gate(method, {"permissions": 1, "command": 1, "itemId": 1, "questions": 1, "mode": 1}) is None


def test_a_long_command_is_cut_in_the_question() -> None:
    asked = gate("item/commandExecution/requestApproval", {"command": "x" * 1_000_000})
    assert asked is not None
    assert len(asked.question) < 9_000


@given(st.lists(st.sampled_from(["a", "b", "a_2", "a_1", "b_3"]), min_size=1, max_size=12))
def test_each_option_is_a_choice_of_its_own_whatever_the_labels(labels: list[str]) -> None:
    options = [{"label": label} for label in labels]
    asked = gate(
        "item/tool/requestUserInput", {"questions": [{"id": "x", "question": "?", "options": options}]}
    )
    assert asked is not None
    ids = [choice.id for choice in asked.choices]
    answers = results(asked)
    assert [answers[name]["answers"]["x"]["answers"] for name in ids] == [[label] for label in labels]


def test_what_would_become_too_large_is_no_gate_or_not_offered() -> None:
    options = [{"label": str(number) + "x" * 100_000} for number in range(6)]
    params = {"questions": [{"id": "x", "question": "?", "options": options}]}
    assert gate("item/tool/requestUserInput", params) is None
    amendment = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["x" * 100_000]}}
    asked = gate(
        "item/commandExecution/requestApproval",
        {"command": "ls", "availableDecisions": ["accept", amendment]},
    )
    assert asked is not None
    assert [choice.id for choice in asked.choices] == ["allow_once", "reject_once"]
