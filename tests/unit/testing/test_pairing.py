from __future__ import annotations

import pytest

from outlast.testing.scripted_model import Item, pairing_fault

USER = Item("user", "hi")
ASSISTANT = Item("assistant", "hello")
REASONING = Item("other", "reasoning")


def call(name: str) -> Item:
    return Item("call", "{}", name)


def result(name: str) -> Item:
    return Item("result", "out", name)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [USER, ASSISTANT, USER],
        [USER, call("a"), result("a"), ASSISTANT],
        [USER, call("a"), call("b"), result("b"), result("a"), ASSISTANT],
        [USER, call("a"), result("a"), call("b"), result("b")],
        [USER, REASONING, call("a"), REASONING, result("a")],
        [USER, call("a"), ASSISTANT, result("a"), USER],
    ],
)
def test_histories_whose_calls_and_results_pair_up_are_accepted(items: list[Item]) -> None:
    assert pairing_fault(items) is None


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([USER, call("a")], "no tool output found for call a"),
        ([USER, call("a"), USER, result("a")], "no tool output found for call a before this user item"),
        ([USER, call("a"), call("b"), result("a"), USER], "no tool output found for call b"),
        ([USER, call("a"), call("b"), result("a"), call("c"), result("b"), result("c")], "for call b"),
        ([USER, result("a")], "no tool call found for the output of call a"),
        ([USER, result("a"), call("a")], "no tool call found for the output of call a"),
        ([USER, call("a"), result("a"), result("a")], "tool output for call a appears twice"),
        ([USER, call("a"), result("a"), call("a"), result("a")], "tool call a appears twice"),
        ([USER, Item("call", "{}")], "the tool call has no call id"),
        ([USER, call("a"), Item("result", "out")], "the tool output has no call id"),
    ],
)
def test_histories_whose_calls_and_results_do_not_pair_up_are_named(items: list[Item], fault: str) -> None:
    assert fault in (pairing_fault(items) or "")
