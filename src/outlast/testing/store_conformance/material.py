"""What checks store: small, and sound for whoever reads the store afterwards. A journal here begins each
epoch with its Fence, and then says only that it was stopped."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from outlast import clock
from outlast.errors import OutlastError
from outlast.ids import new_uuid
from outlast.records.codec import chain_of, encode_body, row_of
from outlast.records.envelope import Draft, Stamp
from outlast.records.types import Fence, SessionStopped
from outlast.store.contract import (
    Admission,
    Admitted,
    Append,
    CatalogEntry,
    EntryKind,
    Lease,
    Row,
    Settlement,
    Snapshot,
    Store,
    Tip,
)

MIB = 1 << 20


def rows(lease: Lease, tip: Tip, count: int = 1, *, size: int = 0) -> tuple[Row, ...]:
    """`count` records that follow on `tip`, each with a text of `size` characters."""
    made: list[Row] = []
    seq, chain, fenced = tip.seq, tip.chain, tip.epoch == lease.epoch
    for _ in range(count):
        text = "x" * size
        body = SessionStopped(reason=text) if fenced else Fence(epoch=lease.epoch, holder=text)
        stamp = Stamp(seq + 1, lease.epoch, new_uuid(), clock.now())
        row = row_of(Draft(body), encode_body(body), stamp, lease.name, chain)
        made.append(row)
        seq, chain, fenced = row.seq, row.chain, True
    return tuple(made)


def odd_row(name: str, lease: Lease, seq: int, previous: bytes, body: bytes, text: str | None) -> Row:
    """A record of a type that nobody knows, with bytes and texts that no record has."""
    bare = Row(seq, lease.epoch, os.urandom(16), 0, "Odd", 7, None, text, "", text, body[:40], body, b"")
    return bare._replace(chain=chain_of(previous, name, bare))


def batch(lease: Lease, tip: Tip, count: int = 1, *, settle: Iterable[str] = (), **given: Any) -> Append:
    """An append of `count` records at `tip`; the first one settles the named requests. `given`: `catalog`,
    `blobs`, and `size` of the records."""
    made = rows(lease, tip, count, size=given.pop("size", 0))
    settled = tuple(Settlement(request, tip.seq + 1) for request in settle)
    return Append(lease.name, made, tip.seq, lease, settled, **given)


def writes(store: Store, lease: Lease, tip: Tip) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every way in which an owner writes to a session in which the request `r` waits."""
    name, seq = lease.name, tip.seq + 1
    snapshot = Snapshot(name, tip.seq, tip.chain, 1, b"d" * 32, b"stale")
    return {
        "an append": lambda: store.append(batch(lease, tip)),
        "a settlement": lambda: store.append(batch(lease, tip, settle=("r",))),
        "a catalog row": lambda: store.append(batch(lease, tip, catalog=entry(name, seq, title="stale"))),
        "a snapshot": lambda: store.put_snapshot(snapshot, lease),
    }


WAYS = ("an append", "a settlement", "a catalog row", "a snapshot")


async def append(store: Store, lease: Lease, count: int = 1, **given: Any) -> int:
    """`count` more records at the tip, as `batch`; the new tip."""
    return await store.append(batch(lease, await store.tip(lease.name), count, **given))


def entry(name: str, seq: int = 0, **changes: Any) -> CatalogEntry:
    given: dict[str, Any] = {
        "title": "store conformance",
        "state": "stopped",
        "agent": "none",
        "workspace": "/conformance",
        "created_at": 1,
        "last_activity_at": 1,
        "turns": 0,
        "queued": 0,
        "open_gates": 0,
    }
    return CatalogEntry(session=name, seq=seq, **(given | changes))


async def admit(
    store: Store, name: str, request: str, body: bytes = b"hi", kind: EntryKind = "input"
) -> Admitted:
    admission = Admission(name, request, kind, body, "me", opening=entry(name), opening_body=b"{}")
    return await store.admit(admission)


async def pending(store: Store, name: str) -> list[str]:
    """The ids of what waits."""
    return [waiting.request_id for waiting in await store.pending(name)]


async def read_all(store: Store, name: str, limit: int = 1000) -> list[Row]:
    found: list[Row] = []
    while page := await store.read(name, found[-1].seq if found else 0, limit):
        found += page
    return found


async def seqs(store: Store, name: str) -> list[int]:
    return [row.seq for row in await read_all(store, name)]


async def outcome_of(work: Any) -> Any:
    """What it gives, or the refusal."""
    try:
        return await work
    except OutlastError as error:
        return error
