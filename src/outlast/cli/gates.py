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
    number counted from 1; a question without choices takes any text. What is one choice's name and another
    one's number is neither: then `#N` is the number and `=NAME` the name. Raises UsageError naming the
    choices."""
    wanted = typed.strip()
    named, counted = _named(wanted, choices), _counted(wanted, choices)
    if named is not None and counted not in (None, named):
        why = f"{wanted} is the name of {named!r} and the number of {counted!r}"
        raise UsageError(why, hint=f"write ={wanted} for the name, #{wanted} for the number")
    found = named or counted
    if found is None and wanted[:1] == "=":
        found = _named(wanted[1:], choices)
    if found is None and wanted[:1] == "#":
        found = _counted(wanted[1:], choices)
    if found is not None:
        return found
    known = ", ".join(choice.id for choice in choices)
    raise UsageError(f"{wanted!r} is none of the choices", hint=f"choose one of: {known}")


def _named(wanted: str, choices: Sequence[Choice]) -> str | None:
    found = chosen(wanted, choices)
    if found is not None:
        return found
    by_label = [choice.id for choice in choices if choice.label.casefold() == wanted.casefold()]
    return by_label[0] if len(by_label) == 1 else None


def _counted(wanted: str, choices: Sequence[Choice]) -> str | None:
    short = wanted.isascii() and wanted.isdigit() and len(wanted) < 10
    return choices[int(wanted) - 1].id if short and 1 <= int(wanted) <= len(choices) else None


def find_gate(typed: str, gates: Sequence[str]) -> str | None:
    """The gate whose id is, or alone begins with, what was typed."""
    if typed in gates:
        return typed
    fitting = [gate for gate in gates if typed and gate.startswith(typed)]
    return fitting[0] if len(fitting) == 1 else None
