"""What waits in a store that was just accepted as it is: nobody knows whether it was carried out since."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from outlast.cli.contact import open_client
from outlast.cli.findings import Finding
from outlast.cli.verify import all_sessions
from outlast.errors import OutlastError, StoreBusyError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.store.contract import Store

_SHOWN = 10
"""Inputs of a session that are named."""
_UNDER_WAY = ("running", "waiting")


def refuse_while_agents_live(config: Config) -> None:
    """Raises StoreBusyError where an agent from before lives beside the store: nothing in the store's folder
    tells of it, so its session would be given another one."""
    from outlast.cli.check_agents import strays_of, where
    from outlast.store.sqlite.layout import Layout
    from outlast.store.url import database_path

    layout = Layout.of(database_path(config.store_url, os.environ))
    found = strays_of(layout) if layout.exists() else []
    if found:
        named = ", ".join(f"pid {stray.pid} in {where(stray)}" for stray in found)
        pids = " ".join(str(stray.pid) for stray in found)
        raise StoreBusyError(
            f"agents of this store still live beside it, and their sessions would be given others: {named}",
            hint=f"`kill {pids}` ends them in order; then `outlast doctor --after-restore` again",
        )


async def check_restored(config: Config) -> list[Finding]:
    """For each session with inputs that its next owner may carry out."""
    found: list[Finding] = []
    try:
        async with open_client(config) as client:
            async for one in _waiting(client.store):
                found.append(one)
    except OutlastError as error:  # of a store that is damaged as well: its own findings say how
        message = f"what waits in the store cannot be told: {error.message}"
        found.append(Finding("restored", "warning", message, error.hint))
    return found


async def _waiting(store: Store) -> AsyncIterator[Finding]:
    for session in await all_sessions(store):
        row = await store.listed(session)
        if row is None or not (row.pending or row.entry.queued or row.entry.state in _UNDER_WAY):
            continue
        try:
            requests = await _requests(store, session)
        except OutlastError as error:
            message = f"session {session}: what waits there cannot be told: {error.message}"
            yield Finding("restored", "warning", message, error.hint, session)
            continue
        if requests:
            yield _finding(session, requests)


async def _requests(store: Store, session: str) -> list[str]:
    """Inputs that wait or are under way, in their order."""
    from outlast.journal import load_state

    state = await load_state(store, session)
    waiting = [entry.request_id for entry in await store.pending(session) if entry.kind == "input"]
    return list(dict.fromkeys([*state.open_turns, *state.queue, *waiting]))


def _finding(session: str, requests: list[str]) -> Finding:
    from shlex import quote

    named = ", ".join(requests[:_SHOWN]) + (", …" if len(requests) > _SHOWN else "")
    message = (
        f"session {session}: what waited or was under way when the store was as it is now may have been"
        f" carried out since, and the next owner may carry it out again: {named}"
    )
    which = quote(requests[0]) if len(requests) == 1 else "INPUT"
    remedy = (
        f"outlast cancel {quote(session)} {which}, before anything resumes it, for what must not run again"
    )
    return Finding("restored", "warning", message, remedy, session)
