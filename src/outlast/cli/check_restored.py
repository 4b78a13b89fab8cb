"""What waits in a store that is accepted as it is: nobody knows whether it was carried out since."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlast.cli.contact import open_client
from outlast.cli.findings import Finding
from outlast.cli.verify import all_sessions
from outlast.errors import OutlastError, StoreBusyError
from outlast.ids import new_id

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.store.contract import Admission, Store

_SHOWN = 10
"""Inputs of a session that are named."""
_UNDER_WAY = ("running", "waiting", "retrying")
_WHY = "it waited in a store that was put back: whether it has been carried out is not known"


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


@dataclass(frozen=True, slots=True)
class Held:
    """What nobody may carry out in a store that is accepted, before a person has decided."""

    admissions: list[Admission]
    findings: list[Finding]


async def held_back(config: Config) -> Held:
    """For each session with inputs that its next owner would carry out: the command that has them parked.
    None where the store is not behind what this machine has seen of it."""
    held = Held([], [])
    try:
        async with open_client(config) as client:
            if client.store.read_only:
                await _look_for(client.store, held)
    except OutlastError as error:  # of a store that is damaged as well: its own findings say how
        message = f"what waits in the store cannot be told: {error.message}"
        held.findings.append(Finding("restored", "warning", message, error.hint))
    return held


async def _look_for(store: Store, held: Held) -> None:
    for session in await all_sessions(store):
        row = await store.listed(session)
        if row is None or not (row.pending or row.entry.queued or row.entry.state in _UNDER_WAY):
            continue
        try:
            requests = await _requests(store, session)
        except OutlastError as error:
            message = f"session {session}: what waits there cannot be told, and is not held: {error.message}"
            held.findings.append(Finding("restored", "warning", message, error.hint, session))
            continue
        if requests:
            held.admissions.append(_hold(session, requests))
            held.findings.append(_finding(session, requests))


async def _requests(store: Store, session: str) -> list[str]:
    """Inputs that wait or are under way, in their order."""
    from outlast.journal import load_state

    state = await load_state(store, session)
    waiting = [entry.request_id for entry in await store.pending(session) if entry.kind == "input"]
    return list(dict.fromkeys([*state.open_turns, *state.queue, *waiting]))


def _hold(session: str, requests: list[str]) -> Admission:
    from outlast.store.contract import Admission
    from outlast.turns.requests import HoldRequest, encode

    return Admission(session, new_id(), "hold", encode(HoldRequest(inputs=requests, reason=_WHY)))


def _finding(session: str, requests: list[str]) -> Finding:
    from shlex import quote

    named = ", ".join(requests[:_SHOWN]) + (", …" if len(requests) > _SHOWN else "")
    message = (
        f"session {session}: what waited or was under way when the store was as it is now may have been"
        f" carried out since, and is held until you decide: {named}"
    )
    which = quote(requests[0]) if len(requests) == 1 else "INPUT"
    of = quote(session)
    remedy = f"`outlast retry {of} {which}` runs it, `outlast skip {of} {which}` leaves it"
    return Finding("restored", "warning", message, remedy, session)
