"""Named fault points: where tests kill, stop or fail a process.

They do nothing unless OUTLAST_FAULTS_TESTING is 1: some of them leave out what a guarantee stands on, and a
variable that was left over, or that somebody else set, must not weaken one.

`OUTLAST_FAULTS` is a comma-separated list of `NAME[@N]=ACTION`: at the N-th passage (default 1) of the
point NAME the process does ACTION: `kill` (SIGKILL to itself), `stop` (SIGSTOP to itself), `skip`
(`point` returns True: the caller leaves the step out) or `raise:ERRNO` (an OSError). `skip` and `raise`
without `@` act at every passage.
"""

from __future__ import annotations

import errno
import os
import signal

_plan: dict[str, tuple[int | None, str]] | None = None
_passed: dict[str, int] = {}


def requested() -> str:
    """The plan that this process was given; none outside of tests."""
    return os.environ.get("OUTLAST_FAULTS", "") if os.environ.get("OUTLAST_FAULTS_TESTING") == "1" else ""


def _load() -> dict[str, tuple[int | None, str]]:
    plan: dict[str, tuple[int | None, str]] = {}
    for item in filter(None, requested().split(",")):
        target, _, action = item.partition("=")
        name, at, count = target.partition("@")
        plan[name] = (int(count) if at else None, action)
    return plan


def point(name: str) -> bool:
    """Pass the fault point `name`; True means: leave the step out. Raises OSError when told to."""
    global _plan  # noqa: PLW0603 - read once, at the first point that is passed
    if _plan is None:
        _plan = _load()
    if name not in _plan:
        return False
    _passed[name] = passed = _passed.get(name, 0) + 1
    wanted, action = _plan[name]
    if action in ("kill", "stop"):
        if passed == (wanted or 1):
            os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
        return False
    if wanted is not None and passed != wanted:
        return False
    if action.startswith("raise:"):
        number = getattr(errno, action.removeprefix("raise:"))
        raise OSError(number, os.strerror(number))
    return action == "skip"
