"""How the contract's values are laid out in the tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast, get_args

from outlast.store.contract import CatalogEntry, Entry, EntryKind, admission_digest
from outlast.store.sqlite.packing import Value

RECORD_COLUMNS = "seq, epoch, id, at, type, v, loop, turn, cause, actor, cursor, body, chain"
CATALOG_COLUMNS = (
    "seq, title, state, agent, workspace, created_at, last_activity_at, turns, queued, open_gates, labels"
)
# As bytes what may be text no more: one damaged entry must not keep the others from being read.
ENTRY_COLUMNS = (
    "n, request, CAST(kind AS BLOB), CAST(body AS BLOB), CAST(actor AS BLOB), at, CAST(opening AS BLOB),"
    " opening_body, digest"
)


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


def only_moved(entry: CatalogEntry, before: CatalogEntry | None) -> bool:
    """Whether nothing of it but `seq` and `last_activity_at` is another than before."""
    return before is not None and entry[2:7] == before[2:7] and entry[8:] == before[8:]


def catalog_entry(session: str, values: Sequence[Value]) -> CatalogEntry:
    """From values in the order of CATALOG_COLUMNS."""
    *plain, labels = values
    pairs = tuple((str(k), str(v)) for k, v in json.loads(cast(str, labels))) if labels else ()
    return CatalogEntry(session, *plain, pairs)  # type: ignore[call-arg, arg-type]


def packed_opening(entry: CatalogEntry | None) -> str | None:
    return None if entry is None else json.dumps(catalog_values(entry), ensure_ascii=False)


def inbox_entry(session: str, values: Sequence[Value]) -> Entry:
    """From values in the order of ENTRY_COLUMNS."""
    n, request, stored_kind, stored_body, actor, at, opening, opening_body, digest = values
    body = cast(bytes, stored_body)
    kind = _kind(_text(stored_kind), body, digest)
    damaged = kind is None
    return Entry(
        order=cast(int, n),
        request_id=cast(str, request),
        kind=kind or "input",
        body=b"" if damaged else body,
        actor=None if actor is None else _text(actor),
        admitted_at=cast(int, at),
        opening=_opening(session, opening),
        opening_body=cast("bytes | None", opening_body),
        damaged=damaged,
    )


def _kind(stored: str, body: bytes, digest: Value) -> EntryKind | None:
    """The one that was admitted with this body; None where it was none of them."""
    first = sorted(get_args(EntryKind), key=lambda kind: bool(kind != stored))
    return next((kind for kind in first if admission_digest(kind, body) == digest), None)


def _text(value: Value) -> str:
    return cast(bytes, value).decode("utf-8", "replace")


def _opening(session: str, value: Value) -> CatalogEntry | None:
    """None where there is none, or none that can be read: the list shows the session all the same."""
    if not value:
        return None
    try:
        return catalog_entry(session, json.loads(cast(bytes, value)))
    except (ValueError, TypeError):
        return None
