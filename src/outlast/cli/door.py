"""The door that an agent may not use: its own session's.

An agent runs as the same user as outlast. Without this, a tool call of it could answer its own permission
question, or send itself inputs. What was started by an agent descends from its guard, which collects every
orphan of the tree; docs/security.md says what this check is worth.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from outlast.errors import UsageError
from outlast.keep import proc

if TYPE_CHECKING:
    from outlast.records.types import Process
    from outlast.store.contract import Store


async def refuse_from_inside(store: Store, session: str) -> None:
    """Raises UsageError when this process descends from the session's own agent."""
    if not _suspicious():
        return
    from outlast.journal import load_state

    state = await load_state(store, session)
    for loop in state.loops.values():
        if loop.attempt is not None and _descends(loop.attempt.processes):
            raise UsageError(
                "this command was started by the session's own agent, which may not answer, send or attach",
                hint="run it from outside of the agent",
                session_id=session,
            )


def _suspicious() -> bool:
    """Whether some process above this one may be an agent: it carries the marker, or does not let it be
    seen. The session's journal is read only then."""
    pid = os.getpid()
    while pid > 1:
        if _may_carry_marker(pid):
            return True
        parent = proc.parent(pid)
        if parent is None:
            return True
        pid = parent
    return False


def _may_carry_marker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - read while the process may vanish
            names = file.read().split(b"\0")
    except PermissionError:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116
    except OSError:
        return False
    return any(name.startswith(proc.MARKER + b"=") for name in names)


def _descends(processes: list[Process]) -> bool:
    living = tuple(p.pid for p in processes if proc.is_alive(p.pid, p.start_ticks))
    return bool(living) and proc.descends(os.getpid(), living) is not False
