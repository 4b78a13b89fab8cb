"""Owners that do not answer: a stopped one (Ctrl-Z, a debugger) keeps its session and does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from outlast.cli.output import Screen, visible
from outlast.errors import OwnershipError

if TYPE_CHECKING:
    from outlast.store.contract import Holder, Store

T = TypeVar("T")

NOTICED_AFTER = 2.0
"""Seconds without an answer after which the owner is looked at, again and again."""
GIVES_UP_AFTER = 10.0
"""Seconds after which nobody waits any longer for an owner that is stopped all the time."""


class OwnerStoppedError(OwnershipError):
    """The session's owner is stopped and answers nobody; what was asked of it is kept."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stopped owner, for people."""

    message: str
    remedy: str


def stopped(session: str, owner: Holder) -> Stopped | None:
    """What is to be said of the session's owner if it is stopped; None if it runs, or cannot be seen."""
    from shlex import quote

    if owner.pid is None or process_state(owner.pid) not in ("T", "t"):
        return None
    return Stopped(
        f"{owner.label} owns session {session} and is stopped",
        f"kill -CONT {owner.pid}, or outlast resume {quote(session)} --take-over",
    )


def process_state(pid: int) -> str | None:
    """The state letter of /proc/PID/stat; None where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]


async def next_owner(store: Store, session: str) -> str:
    """Who carries out what is kept for the session's next owner, and how to bring that about. No command has
    the effects that a turn may owe."""
    from outlast.journal import load_state
    from outlast.turns.reopening import unable

    pending = await store.pending(session)
    waiting = next(unable(await load_state(store, session), pending, {}), None)
    if waiting is None:
        return f"kept for the session's next owner: {await way_on(store, session)}"
    names = ", ".join(waiting.missing)
    return f"kept for the program that has {names}, which turn {waiting.turn} owes: start that"


async def needed(store: Store, session: str) -> tuple[str, ...]:
    """Names of the effects without which nobody goes on with the session, and which no command has: only the
    program that has them restores it. Asked on the way out: not knowing is none."""
    from outlast.errors import OutlastError
    from outlast.journal import load_state
    from outlast.turns.reopening import needs

    try:
        pending = await store.pending(session)
        return needs(await load_state(store, session), pending, {})
    except (OutlastError, OSError):
        return ()


async def way_on(store: Store, session: str) -> str:
    """What goes on with a session that nobody runs, for people."""
    from outlast.cli.present import way_back_words

    return way_back_words(session, needs=await needed(store, session))


async def heard(store: Store, session: str, work: Awaitable[T], screen: Screen, *, waits: bool = False) -> T:
    """The result of work that the session's owner has to do. That the owner is stopped is said once; raises
    OwnerStoppedError if it stays so, unless one `waits` whatever happens."""
    task = asyncio.ensure_future(work)
    told, silent = False, 0.0
    try:
        while True:
            done, _ = await asyncio.wait([task], timeout=NOTICED_AFTER)
            if done:
                return await task
            owner = await store.holder(session)
            found = None if owner is None else stopped(session, owner)
            silent = 0.0 if found is None else silent + NOTICED_AFTER
            if found is None:
                continue
            if silent >= GIVES_UP_AFTER and not waits:
                kept = f"{found.message}; what was asked is kept until it goes on"
                raise OwnerStoppedError(kept, hint=found.remedy, session_id=session)
            if not told:
                told = True
                screen.note(visible(f"{found.message}: {found.remedy}"))
    finally:
        task.cancel()
