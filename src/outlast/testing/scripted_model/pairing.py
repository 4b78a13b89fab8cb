"""The rule that back ends hold histories to: every tool call has exactly one result, right after it.

Providers differ in how much of it they check; this is the strictest common reading, so that a history that
passes here passes everywhere. Calls of one reply may be answered in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from outlast.testing.scripted_model.conversation import Item

FaultKind: TypeAlias = Literal["unanswered", "orphan", "result_twice", "call_twice", "nameless"]


@dataclass(frozen=True, slots=True)
class PairingFault:
    """What is wrong with the calls and results of a history: its kind, the call's id ("" when it has none),
    and one sentence."""

    kind: FaultKind
    call: str
    sentence: str

    def at(self, index: int) -> PairingFault:
        """The same, with the item's place in the sentence."""
        return PairingFault(self.kind, self.call, f"item {index}: {self.sentence}")


def pairing_fault(items: Iterable[Item]) -> str | None:
    """Say in one sentence what is wrong with the calls and results of a history, or return None."""
    fault = find_pairing_fault(items)
    return fault.sentence if fault else None


def find_pairing_fault(items: Iterable[Item]) -> PairingFault | None:
    """The first place where the calls and results of a history don't pair up, or None."""
    open_calls: list[str] = []
    known: set[str] = set()
    answered: set[str] = set()
    answering = False
    for at, item in enumerate(items):
        if item.kind == "result":
            fault = _result_fault(item, open_calls, answered)
            if fault:
                return fault.at(at)
            call = item.call or ""
            open_calls.remove(call)
            answered.add(call)
            answering = bool(open_calls)
            continue
        same_reply = item.kind in ("call", "assistant") and not answering
        if open_calls and item.kind not in ("other", "image") and not same_reply:
            return _unanswered(open_calls[0], f" before this {item.kind} item").at(at)
        if item.kind == "call":
            fault = _call_fault(item, known)
            if fault:
                return fault.at(at)
            known.add(item.call or "")
            open_calls.append(item.call or "")
    return _unanswered(open_calls[0]) if open_calls else None


def _unanswered(call: str, where: str = "") -> PairingFault:
    return PairingFault("unanswered", call, f"no tool output found for call {call}{where}")


def _call_fault(item: Item, known: set[str]) -> PairingFault | None:
    if not item.call:
        return PairingFault("nameless", "", "the tool call has no call id")
    if item.call in known:
        return PairingFault("call_twice", item.call, f"tool call {item.call} appears twice")
    return None


def _result_fault(item: Item, open_calls: list[str], answered: set[str]) -> PairingFault | None:
    if not item.call:
        return PairingFault("nameless", "", "the tool output has no call id")
    if item.call in answered:
        return PairingFault("result_twice", item.call, f"tool output for call {item.call} appears twice")
    if item.call not in open_calls:
        sentence = f"no tool call found for the output of call {item.call}"
        return PairingFault("orphan", item.call, sentence)
    return None
