"""Who decides a question that a session waits for: a rule, a person, or somebody later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outlast.errors import UsageError
from outlast.records.types import Choice
from outlast.state.choices import chosen

Approve = Literal["ask", "never", "all"]
_WANTED = {"all": "allow_once", "never": "reject_once"}


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A gate that waits for its answer."""

    gate: str
    kind: str
    question: str
    choices: tuple[Choice, ...]
    requested_by: str = ""
    parked: bool = False
    """Its turn is parked: the queue goes on without the answer."""


def decided_by_rule(question: OpenQuestion, approve: Approve) -> str | None:
    """The choice that `--approve` makes for a permission; None where a person has to choose."""
    wanted = _WANTED.get(approve)
    if wanted is None or question.kind != "permission":
        return None
    return next((choice.id for choice in question.choices if choice.kind == wanted), None)


def choice_of(typed: str, choices: Sequence[Choice]) -> str:
    """The id of the choice that was typed: an id, else a kind that fits one choice, else a label, else a
    number counted from 1; a question without choices takes any text. Raises UsageError naming the choices."""
    wanted = typed.strip()
    found = chosen(wanted, choices)
    if found is not None:
        return found
    by_label = [choice.id for choice in choices if choice.label.casefold() == wanted.casefold()]
    if len(by_label) == 1:
        return by_label[0]
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= len(choices):
        return choices[int(wanted) - 1].id
    known = ", ".join(choice.id for choice in choices)
    raise UsageError(f"{wanted!r} is none of the choices", hint=f"choose one of: {known}")


def find_gate(typed: str, gates: Sequence[str]) -> str | None:
    """The gate whose id is, or alone begins with, what was typed."""
    if typed in gates:
        return typed
    fitting = [gate for gate in gates if typed and gate.startswith(typed)]
    return fitting[0] if len(fitting) == 1 else None
