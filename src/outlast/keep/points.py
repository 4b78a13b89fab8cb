"""Fault points inside the shim and the guard: the plan of `outlast.faults`, without its imports.

`OUTLAST_FAULTS` is a comma-separated list of `NAME[@N]=ACTION` with the actions `kill`, `stop`, `skip` and
`raise:ERRNO`, and perhaps `passages=FOLDER`, where all processes count together, and `until=FILE`, whose
file ends all that is raised.
"""

from __future__ import annotations

import errno
import os

_KILL, _STOP = 9, 19
_PASSAGES = "passages"
_UNTIL = "until"
_plan: dict[str, tuple[int | None, str]] = {}
_passed: dict[str, int] = {}


def load(text: str) -> None:
    """Take the plan `text`; called once at the start of the process."""
    for item in filter(None, text.split(",")):
        target, _, action = item.partition("=")
        name, at, count = target.partition("@")
        _plan[name] = (int(count) if at else None, action)


def point(name: str) -> bool:
    """Pass the fault point `name`; True means: leave the step out. Raises OSError when told to."""
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
            os.kill(os.getpid(), _KILL if action == "kill" else _STOP)
        return False
    if wanted is not None and passed != wanted:
        return False
    if action.startswith("raise:") and not _mended():
        number = getattr(errno, action[6:])
        raise OSError(number, os.strerror(number))
    return action == "skip"


def _mended() -> bool:
    until = _plan.get(_UNTIL)
    return until is not None and os.path.exists(until[1])


def _count_in(folder: str, name: str) -> int:
    file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR)
    finally:
        os.close(file)
