"""Named fault points: where tests kill, stop or fail a process.

They do nothing unless OUTLAST_FAULTS_TESTING is 1: some of them leave out what a guarantee stands on, and a
variable that was left over, or that somebody else set, must not weaken one.

`OUTLAST_FAULTS` is a comma-separated list of `NAME[@N]=ACTION`: at the N-th passage (default 1) of the
point NAME the process does ACTION: `kill` (SIGKILL to itself), `stop` (SIGSTOP to itself), `skip`
(`point` returns True: the caller leaves the step out) or `raise:ERRNO` (an OSError). `skip` and `raise`
without `@` act at every passage.

Each process counts its own passages. With `passages=FOLDER` in the list all of them count together, guards
and shims too: every passage of any point is one byte more in the file FOLDER/NAME. With `until=FILE` in the
list nothing is raised any more once FILE exists: the disk has space again.
"""

from __future__ import annotations

import errno
import os
import signal

_PASSAGES = "passages"
_UNTIL = "until"

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
    if not _plan:
        return False
    folder = _plan.get(_PASSAGES)
    if folder is not None:
        _passed[name] = _count_in(folder[1], name)
    if name not in _plan:
        return False
    if folder is None:
        _passed[name] = _passed.get(name, 0) + 1
    passed = _passed[name]
    wanted, action = _plan[name]
    if action in ("kill", "stop"):
        if passed == (wanted or 1):
            os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
        return False
    if wanted is not None and passed != wanted:
        return False
    if action.startswith("raise:") and not _mended(_plan.get(_UNTIL)):
        number = getattr(errno, action.removeprefix("raise:"))
        raise OSError(number, os.strerror(number))
    return action == "skip"


def _mended(until: tuple[int | None, str] | None) -> bool:
    return until is not None and os.path.exists(until[1])  # noqa: PTH110 - as the shim's twin has it


def _count_in(folder: str, name: str) -> int:
    """The number of this passage among those of all processes: an append is atomic, and its end is ours."""
    file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR)
    finally:
        os.close(file)
