"""What a resume comes to beyond its restore, as a plan shows it. Data; `restore.foreseen` finds it out."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Literal

import msgspec

from outlast.turns.decided import WaitingCommand

TURNS_NAMED = 10
"""Of the turns that run then; the others are counted."""


@dataclass(frozen=True, slots=True)
class PlannedCommand:
    """A command that waits in the inbox. `result` as it is told to who gave it, `waits`: it goes on waiting;
    `leads_to`: what it leads to, or why it does not, in words."""

    asked: WaitingCommand
    result: Literal["done", "too_late", "refused", "waits"]
    leads_to: str

    @property
    def line(self) -> str:
        """For people."""
        by = f" by {self.asked.by}" if self.asked.by else ""
        kept = "" if self.result in ("done", "waits") else "not carried out, "
        return f"decided, and not yet carried out: {self.asked.typed}{by}: {kept}{self.leads_to}"

    def to_json(self) -> dict[str, object]:
        told: dict[str, object] = msgspec.to_builtins(self.asked)
        return told | {"result": self.result, "leads_to": self.leads_to}


@dataclass(frozen=True, slots=True)
class StaysParked:
    """A turn with which a resume does not go on."""

    turn: str
    reason: str

    def line(self, session: str) -> str:
        """For people."""
        which = f"{quote(session)} {quote(self.turn)}"
        why = f": {self.reason}" if self.reason else ""
        return (
            f"turn {self.turn}: parked{why}; `outlast retry {which}` runs it again, "
            f"`outlast skip {which}` leaves it"
        )


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a resume comes to once it has carried out what waits in the inbox, and before it begins a turn."""

    commands: tuple[PlannedCommand, ...] = ()
    parked: tuple[StaysParked, ...] = ()
    """Those that stay so, or become it."""
    inputs: int = 0
    """Inputs that wait now, accepted or not."""
    runs: tuple[str, ...] = ()
    """The turns that go on or begin then, in their order, as long as each ends well."""
    stays: Literal["", "held", "held_by_loss", "closed"] = ""
    """Why inputs that wait then do not run."""
    lacks: tuple[str, ...] = ()
    """Effects for want of which this process is refused the resume."""

    @property
    def run_line(self) -> str:
        """Which turns run then, for people."""
        if not self.runs:
            return "then no turn runs"
        more = len(self.runs) - TURNS_NAMED
        named = ", then ".join(self.runs[:TURNS_NAMED])
        return f"then these turns run: {named}" + (f", and {more} more" if more > 0 else "")

    def to_json(self) -> dict[str, object]:
        """Keys of `outlast plan --json`."""
        return {
            "commands": [command.to_json() for command in self.commands],
            "parked": [{"turn": parked.turn, "reason": parked.reason} for parked in self.parked],
            "inputs": self.inputs,
            "runs": list(self.runs),
            "stays": self.stays,
            "lacks": list(self.lacks),
        }
