"""The rule that back ends hold histories to: every tool call has exactly one result, right after it.

Providers differ in how much of it they check; this is the strictest common reading, so that a history that
passes here passes everywhere. Calls of one reply may be answered in any order.
"""

from __future__ import annotations

from collections.abc import Iterable

from outlast.testing.scripted_model.conversation import Item


def pairing_fault(items: Iterable[Item]) -> str | None:
    """Say in one sentence what is wrong with the calls and results of a history, or return None."""
    open_calls: list[str] = []
    known: set[str] = set()
    answered: set[str] = set()
    answering = False
    for at, item in enumerate(items):
        if item.kind == "result":
            fault = _result_fault(item, open_calls, answered)
            if fault:
                return f"item {at}: {fault}"
            call = item.call or ""
            open_calls.remove(call)
            answered.add(call)
            answering = bool(open_calls)
            continue
        same_reply = item.kind in ("call", "assistant") and not answering
        if open_calls and item.kind != "other" and not same_reply:
            return f"item {at}: no tool output found for call {open_calls[0]} before this {item.kind} item"
        if item.kind == "call":
            if not item.call:
                return f"item {at}: the tool call has no call id"
            if item.call in known:
                return f"item {at}: tool call {item.call} appears twice"
            known.add(item.call)
            open_calls.append(item.call)
    if open_calls:
        return f"no tool output found for call {open_calls[0]}"
    return None


def _result_fault(item: Item, open_calls: list[str], answered: set[str]) -> str | None:
    if not item.call:
        return "the tool output has no call id"
    if item.call in answered:
        return f"tool output for call {item.call} appears twice"
    if item.call not in open_calls:
        return f"no tool call found for the output of call {item.call}"
    return None
