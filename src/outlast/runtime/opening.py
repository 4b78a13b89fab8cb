"""The catalog's first entry of a session, from what its first input says of it."""

from __future__ import annotations

from outlast.clock import now
from outlast.restore.opening import Opening
from outlast.store.contract import CatalogEntry


def first_entry(session: str, opening: Opening) -> CatalogEntry:
    at = now()
    return CatalogEntry(
        session=session,
        seq=0,
        title=opening.title,
        state="new",
        agent=opening.agent,
        workspace=opening.workspace,
        created_at=at,
        last_activity_at=at,
        turns=0,
        queued=0,
        open_gates=0,
        labels=tuple(sorted(opening.labels.items())),
    )
