"""Exit codes: a contract with scripts."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the command's exit status means."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    REJECTED = 5
    WAITING = 6
    INTERRUPTED = 130


_OF_OUTCOME = {
    "done": Exit.OK,
    "failed": Exit.FAILED,
    "interrupted": Exit.FAILED,
    "parked": Exit.FAILED,
    "cancelled": Exit.INTERRUPTED,
}


def exit_of_outcome(outcome: str) -> Exit:
    """What `run`, `resume` and `wait` exit with when a turn ended so."""
    return _OF_OUTCOME[outcome]
