"""The catalog entry of a session: a projection of its state, for listing and finding."""

from __future__ import annotations

from outlast.state.delays import delayed
from outlast.state.model import State
from outlast.store.contract import CatalogEntry

_CUT_OFF = ("failed", "interrupted")
"""How a turn ended of which a person has to know; that a person cancelled it is known."""


def catalog_entry(state: State) -> CatalogEntry:
    """What listing needs of the session, as of `state.seq`. Whether an owner lives is not in the journal:
    readers join that in."""
    root = state.loops.get(state.root or "")
    return CatalogEntry(
        state.session,
        state.seq,
        state.title,
        status(state),
        root.agent if root is not None else state.manifest.agent if state.manifest else "",
        state.workspace,
        state.created_at,
        state.last_activity_at,
        state.turns,
        len(state.queue),
        len(state.gates),
        tuple(sorted(state.labels.items())) if state.labels else (),
    )


def status(state: State) -> str:
    """new, running (or waiting: it has an open gate; retrying: it failed and waits for its next attempt),
    stopped, parked (a held queue with inputs in it needs a person, or a turn does and nothing else is left to
    do), retrying (what waits so is back in the queue), failed (the last turn failed or was interrupted, and
    nothing is queued) or idle; the first that holds."""
    if not state.lineage:
        return "new"
    if state.open_turns:
        return _at_work(state)
    if state.stopped is not None:
        return "stopped"
    held = any(loop.held for loop in state.loops.values())
    if held if state.queue else state.parked:
        return "parked"
    if delayed(state) is not None:
        return "retrying"
    if not state.queue and any(closed.outcome in _CUT_OFF for closed in state.last_unsuccessful.values()):
        return "failed"
    return "idle"


def _at_work(state: State) -> str:
    if any(gate.turn in state.open_turns for gate in state.gates.values()):
        return "waiting"
    return "running" if delayed(state) is None else "retrying"
