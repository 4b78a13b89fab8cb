"""What dies, and when: the cells of the matrix, what is found in one, and what may be found (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

Who = Literal["agent", "runtime", "both", "shim"]
When = Literal[
    "before the first output", "in the model call", "in a tool call", "in the final text", "asking", "idle"
]

ProviderSession = Literal["same", "verdict", "another"]

WHO: tuple[Who, ...] = ("agent", "runtime", "both", "shim")
WHEN: tuple[When, ...] = (
    "before the first output",
    "in the model call",
    "in a tool call",
    "in the final text",
    "asking",
    "idle",
)


ENDS = ("done", "failed: crashed", "interrupted", "given again, done")
"""How a turn may end of which something was killed."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What was found when `who` was killed `when`, and the session went on."""

    program: str
    version: str
    who: Who
    when: When
    turn: str
    """How the turn ended: `done`, `failed: CODE`, `interrupted`; `given again` before it where it was."""
    ran: int
    """How often its command has run."""
    told: int
    """How often the model was told what became of its command when it was asked the next prompt: by a result
    of the call, or in words of ours; -1: the command was never asked for."""
    session: ProviderSession
    """Whether the provider's session is the same one, or that it is another one was told."""
    answered: bool
    """Whether the next prompt was."""
    refused: int
    """Requests whose history the strict model refused."""


def faults(cell: Cell) -> Iterator[str]:
    """What in a cell is wrong, a sentence each."""
    lived = cell.who == "runtime"
    if cell.turn not in ENDS:
        yield f"it was killed by a signal, and is told as {cell.turn}"
    if cell.ran > 1:
        yield f"its command has run {cell.ran} times"
    if (lived or cell.when == "idle") and (cell.ran, cell.turn) != (1, "done"):
        yield f"its agent lived, and the turn is {cell.turn}, its command ran {cell.ran} times"
    if cell.turn.startswith("given again") and (cell.ran, cell.turn) != (1, "given again, done"):
        yield f"it was given again and is {cell.turn}, its command ran {cell.ran} times"
    if cell.ran and cell.told != 1:
        yield f"the model was told {cell.told} results of a command that had run"
    if cell.told not in (-1, 1):
        yield f"the model was told {cell.told} results of the command"
    if cell.session == "another":
        yield "another provider session took its place without a word"
    if not cell.answered:
        yield "the next prompt was not answered"
    if cell.refused:
        yield f"{cell.refused} requests had a history that was refused"
