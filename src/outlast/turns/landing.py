"""What an agent's spool proves of the turn's input (pure). The living owner and a restore judge by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from outlast.keep import GenerationFacts, landing
from outlast.keep import Landing as KeepLanding
from outlast.records.envelope import Cursor
from outlast.state.model import OpenTurn

Landing = Literal["none", "never_written", "never_read", "accepted", "unknown", "written", "foreign"]
"""What the spool says of the reserved input (shim.md, "Cursor"): `none` = nothing was reserved."""

_LANDING: Mapping[KeepLanding, Landing] = {
    KeepLanding.ACCEPTED: "accepted",
    KeepLanding.SEND_NOW: "never_written",
    KeepLanding.NEVER_WRITTEN: "never_written",
    KeepLanding.NEVER_READ: "never_read",
    KeepLanding.PERHAPS_WRITTEN: "unknown",
    KeepLanding.WRITTEN: "written",
    KeepLanding.OTHER_WRITER: "foreign",
}


def landing_of(turn: OpenTurn | None, seen: GenerationFacts, cursor: Cursor | None) -> Landing:
    """What the spool of `seen` shows of the open turn's input. `cursor`: what the journal took from it."""
    found = _landing_here(turn, seen, cursor)
    if turn is not None and seen.copied and seen.exit is None and found in ("none", "never_written"):
        return "unknown"  # What is not in the copy may have come to the original since.
    return found


def _landing_here(turn: OpenTurn | None, seen: GenerationFacts, cursor: Cursor | None) -> Landing:
    if turn is None or turn.reserved is None or turn.reserved.generation != seen.generation.name:
        return "none"
    found = _LANDING[landing(seen, turn.reserved.seq, bytes.fromhex(turn.reserved.digest))]
    if found == "never_written" and _spool_is_short(seen, turn.reserved.seq, cursor):
        return "unknown"
    return found


def _spool_is_short(seen: GenerationFacts, reserved: int, cursor: Cursor | None) -> bool:
    """Whether the spool of a dead agent holds less than is known to have been in it: then that the input is
    not there proves nothing. Known by its exit, by what the journal took from it, or by there being none."""
    if seen.shim_alive and seen.exit is None:
        return False
    by_exit = seen.exit is not None and (seen.exit.last_input or 0) >= reserved
    taken = cursor is not None and cursor.generation == seen.generation.name
    by_journal = taken and cursor is not None and (cursor.last_input >= reserved or cursor.frame > seen.tip)
    return by_exit or by_journal or (seen.tip == 0 and seen.shim is not None)
