"""A listed session as people and programs see it. Light to import: `outlast ls` needs it at every start."""

from __future__ import annotations

from outlast.clock import isoformat
from outlast.store.contract import Listed

_SEEN = {"new": "idle", "retrying": "running"}


def status_of(row: Listed) -> str:
    """The status that people see: derived from the journal *and* the live lease. Work without a living
    owner is `detached`, whatever the journal last said of it; so is what a person has decided (a retry, an
    answer) and nobody carries out."""
    state = _SEEN.get(row.entry.state, row.entry.state)
    unfinished = state in ("running", "waiting") or row.pending or row.entry.queued
    if state == "parked" and row.pending and not row.entry.open_gates:
        state = "running"  # A new input lets a held queue go on, whoever takes it.
    if row.owner is None and (row.decisions or (unfinished and state != "parked")):
        return "detached"
    return state


def listed_json(row: Listed) -> dict[str, object]:
    """One row of `ls --json`: a contract."""
    entry = row.entry
    return {
        "id": entry.session,
        "title": entry.title,
        "status": status_of(row),
        "agent": entry.agent,
        "workspace": entry.workspace,
        "created_at": isoformat(entry.created_at),
        "last_activity_at": isoformat(entry.last_activity_at),
        "turns": entry.turns,
        "queued": entry.queued + row.pending,
        "open_gates": entry.open_gates,
        "owner": None if row.owner is None else row.owner.label,
    }
