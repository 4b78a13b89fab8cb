"""How the contract's values are laid out in the tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from outlast.store.contract import CatalogEntry, Entry, EntryKind
from outlast.store.sqlite.packing import Value

RECORD_COLUMNS = "seq, epoch, id, at, type, v, loop, turn, cause, actor, cursor, body, chain"
CATALOG_COLUMNS = (
    "seq, title, state, agent, workspace, created_at, last_activity_at, turns, queued, open_gates, labels"
)
ENTRY_COLUMNS = "n, request, kind, body, actor, at, opening, opening_body"


def catalog_values(entry: CatalogEntry) -> tuple[Value, ...]:
    """In the order of CATALOG_COLUMNS."""
    return (
        entry.seq,
        entry.title,
        entry.state,
        entry.agent,
        entry.workspace,
        entry.created_at,
        entry.last_activity_at,
        entry.turns,
        entry.queued,
        entry.open_gates,
        json.dumps(entry.labels, ensure_ascii=False) if entry.labels else "",
    )


def catalog_entry(session: str, values: Sequence[Value]) -> CatalogEntry:
    """From values in the order of CATALOG_COLUMNS."""
    *plain, labels = values
    pairs = tuple((str(k), str(v)) for k, v in json.loads(cast(str, labels))) if labels else ()
    return CatalogEntry(session, *plain, pairs)  # type: ignore[call-arg, arg-type]


def packed_opening(entry: CatalogEntry | None) -> str | None:
    return None if entry is None else json.dumps(catalog_values(entry), ensure_ascii=False)


def inbox_entry(session: str, values: Sequence[Value]) -> Entry:
    """From values in the order of ENTRY_COLUMNS."""
    n, request, kind, body, actor, at, opening, opening_body = values
    return Entry(
        cast(int, n),
        cast(str, request),
        cast(EntryKind, kind),
        cast(bytes, body),
        cast("str | None", actor),
        cast(int, at),
        catalog_entry(session, json.loads(cast(str, opening))) if opening else None,
        cast("bytes | None", opening_body),
    )
