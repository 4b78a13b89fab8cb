"""What the adapters of programs that serve many turns in one process have in common: the end of a turn, names
of prompts, and what is told of long or odd output."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from outlast.agents.contract import Failure, GateClosed, Raw
from outlast.records.types import Choice

T = TypeVar("T")

CONTINUE = (
    "The previous turn was interrupted. Go on from where it ended. Commands that had started may have run "
    "wholly or in part: look before you repeat one."
)
"""What a turn that goes on is given in the place of its input."""
TEXT_LIMIT = 64 * 1024
"""Characters kept of a call's input and output; the middle of a longer text is left out."""
GATE_MOST = 512 * 1024
"""Bytes of a gate's choices and payload. What is larger is no gate: nobody could read what is chosen from."""
OFFER_MOST = 64 * 1024
"""Characters of one choice that is made of what a program proposes; a larger one is not offered."""
_RAW_LIMIT = 4 * 1024
_SENT_LIMIT = 2
"""Only the running turn's is ever asked for. All of them are in the record of each turn's end."""
_SHOWN = 3


class Ended(msgspec.Struct, frozen=True):
    """A turn's end, which may be held back until nothing of the turn is open any more."""

    stop_reason: str
    failure: Failure | None = None
    cancelled: bool = False


def failed(failure: Failure) -> Ended:
    """The end of a turn that failed."""
    return Ended("failed", failure)


def prompt_name(request_id: str, attempt: int) -> str:
    """One name for one attempt to send one prompt."""
    return f"{attempt} {request_id}"


def note_sent(sent: list[str], prompt: str) -> None:
    """Remember that a prompt is written."""
    sent.append(prompt)
    del sent[:-_SENT_LIMIT]


def close_gates(gates: dict[str, bool]) -> list[GateClosed]:
    """Close the gates that nobody answered: the program waits for them no more. `gates` says of each whether
    somebody has."""
    unanswered = [gate for gate, answered in gates.items() if not answered]
    gates.clear()
    return [GateClosed(gate) for gate in unanswered]


def raw_line(line: bytes, size: int) -> Raw:
    """The beginning of a line that is not of the protocol. `size` is that of all of it."""
    kept = line[:_RAW_LIMIT].decode(errors="replace")
    return Raw(kept, dropped=max(0, size - _RAW_LIMIT))


def bounded(text: str, limit: int = TEXT_LIMIT) -> str:
    """Keep the beginning and the end of a long text and say how much is left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def distinct(names: Sequence[str]) -> list[str]:
    """The names in their order, with a number at each that stands there before: no two are the same, and one
    that is there as it is stays so."""
    wanted, given = set(names), dict[str, None]()
    for place, name in enumerate(names):
        one, number = name, place
        while one in given or (one != name and one in wanted):
            one, number = f"{name}_{number}", number + 1
        given[one] = None
    return [*given]


def oversize(choices: Sequence[Choice], payload: bytes) -> str:
    """Where a gate is larger than is kept of one, how large it is, in words; else empty."""
    size = sum(len(choice.id) + len(choice.label) for choice in choices) + len(payload)
    return (
        f"its choices and their answers have {size} bytes, and {GATE_MOST} are kept"
        if size > GATE_MOST
        else ""
    )


def places(lost: Sequence[str]) -> str:
    """What is wrong at many places: the first ones, and how many more there are."""
    more = len(lost) - _SHOWN
    return ", ".join(lost[:_SHOWN]) + (f" and {more} more places" if more > 0 else "")


class FirstAndLast(Generic[T]):
    """Of a long row the first and the last ones."""

    def __init__(self) -> None:
        self._first: list[T] = []
        self._last: deque[T] = deque(maxlen=_SHOWN)

    def add(self, one: T) -> None:
        """The next of the row."""
        (self._first if len(self._first) < _SHOWN else self._last).append(one)

    @property
    def kept(self) -> tuple[T, ...]:
        """In their order."""
        return (*self._first, *self._last)
