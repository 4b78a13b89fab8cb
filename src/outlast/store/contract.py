"""What a store is: ledger, leases, inbox, blobs, catalog behind one address.

Guarantee for every store: no record of epoch e is stored after a `Fence` of a higher epoch. An
acknowledgement is durable as docs/durability.md says for the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:  # `outlast ls` starts without asyncio
    import asyncio
    from collections.abc import Awaitable
    from contextlib import AbstractContextManager

Scope = Literal["process", "machine", "cluster"]
"""Where those are who can share the store, now or ever."""

PAGE_BYTES = 8 << 20
"""A page of records ends after the one that passes this many bytes of bodies: memory stays bounded."""

DAY = 86_400.0
"""Seconds."""


class Row(NamedTuple):
    """One stored record: the envelope of records.md as the bytes and integers that are stored."""

    seq: int
    epoch: int
    id: bytes
    """16 bytes of a UUID."""
    at: int
    """UTC, microseconds."""
    type: str
    v: int
    loop: str | None
    turn: str | None
    cause: str | None
    actor: str | None
    cursor: bytes | None
    body: bytes
    chain: bytes
    """First 16 bytes of SHA-256 over the previous chain and every other stored byte."""


class Tip(NamedTuple):
    """The end of a journal: (0, 0, b"") where it is empty."""

    seq: int
    epoch: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class Holder:
    """A living owner of a lease."""

    incarnation: str
    epoch: int
    pid: int | None
    label: str
    """For people: host, pid and command."""


LossReason = Literal["fenced", "agent_taken", "released", "closed", "writer_ended", "outdated"]
"""`fenced`: another owner, or this process was declared dead. `agent_taken`: the agent's shim serves another
owner. `released`, `closed`: this process gave it back, or closed the store. `writer_ended`: this process can
write no more. `outdated`: a newer outlast has brought the store up to date."""


class Lease(Protocol):
    """Ownership of one name. `lost` is set the moment this process learns that it owns it no more;
    the first refusal by any part of the store sets it, for good."""

    name: str
    epoch: int
    lost: asyncio.Event
    reason: LossReason | None
    """Why it is owned no more."""

    def lose(self, reason: LossReason) -> None:
        """Shut it for every part of the process. The first reason stays."""

    async def release(self) -> None:
        """Give it back; a stale release frees nobody."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The inbox entry `request_id` is settled by the record at `seq` of the same append."""

    request_id: str
    seq: int


class CatalogEntry(NamedTuple):
    """What listing needs of one session; a projection of its journal up to `seq`."""

    session: str
    seq: int
    title: str
    state: str
    """Journal status: new idle running waiting parked failed stopped. `detached` is derived by the
    reader from the live lease."""
    agent: str
    workspace: str
    created_at: int
    last_activity_at: int
    turns: int
    queued: int
    """Accepted inputs that wait in the journal's queue; unsettled inbox inputs come on top."""
    open_gates: int
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """A catalog entry joined with what is live: what waits in the inbox, and the living owner."""

    entry: CatalogEntry
    pending: int
    """Inputs."""
    decisions: int
    """Retries, skips and answers. What only ends something (cancel, kill, close) is no work that is left."""
    owner: Holder | None


class Append(NamedTuple):
    """One atomic batch for one session."""

    name: str
    rows: tuple[Row, ...]
    expected_seq: int
    lease: Lease
    settle: tuple[Settlement, ...] = ()
    catalog: CatalogEntry | None = None
    blobs: tuple[str, ...] = ()
    """Digests that the rows refer to."""
    released: tuple[str, ...] = ()
    """Digests that no row of the session refers to any more as something that it needs."""


EntryKind = Literal["input", "cancel", "kill", "close", "answer", "retry", "skip", "hold", "adopt", "settle"]
DECISIONS: tuple[EntryKind, ...] = ("answer", "retry", "skip", "settle")
"""Those that `Listed.decisions` counts."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A command to a session, durable before it is acknowledged. Everything but an input names its
    target in `body`. `opening` is stored by the first admission: it inserts the catalog row."""

    session: str
    request_id: str
    kind: EntryKind
    body: bytes
    actor: str | None = None
    opening: CatalogEntry | None = None
    opening_body: bytes | None = None
    """Manifest and configuration for the session's first owner; kept with the first entry only."""

    @property
    def digest(self) -> bytes:
        """What makes two admissions of one request id the same: kind and body."""
        return admission_digest(self.kind, self.body)


def admission_digest(kind: str, body: bytes) -> bytes:
    import hashlib  # noqa: PLC0415 - `outlast ls`, which admits nothing, starts without it

    return hashlib.sha256(len(kind).to_bytes(8, "big") + kind.encode() + body).digest()


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a settled entry: it answers later admissions for as long as the session lives."""

    request_id: str
    digest: bytes
    """Empty where it is not known any more: made anew from the journal, it is that of any admission."""
    seq: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """`created` is false when the same request was admitted before; then `settled` tells whether, and
    by which record, it has been settled."""

    created: bool
    settled: Tombstone | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An unsettled inbox entry. `order` is its place in admission order. One that is `damaged` is not what
    was admitted: nobody may carry it out. It counts as an input without a body."""

    order: int
    request_id: str
    kind: EntryKind
    body: bytes
    actor: str | None
    admitted_at: int
    opening: CatalogEntry | None = None
    opening_body: bytes | None = None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The folded state of the session `name` after record `seq`, so that reading can begin there. A cache and
    never the truth: whoever reads it holds it against the journal first (`state.snapshot`)."""

    name: str
    seq: int
    chain: bytes
    """Of record `seq`."""
    fold_version: int
    """Of the fold that made it."""
    digest: bytes
    """SHA-256 over everything else here."""
    body: bytes


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """Filters are joined by AND. `prefix` matches session ids."""

    workspace: str | None = None
    prefix: str | None = None
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class AcquireOptions:
    """`wait` in seconds; `take_over` ends a living holder first: a process by SIGKILL, verified."""

    wait: float = 0.0
    take_over: bool = False
    damaged: bool = False
    """Also where the journal is not as long as it was: to repair it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a damaged journal: what comes after record `keep` goes, `append` takes its place. `lost`
    names settled requests whose record goes, each with the record that tells of it now."""

    keep: int
    append: Append
    last: int
    """The last record that is known to have been stored."""
    reason: str
    lost: tuple[Settlement, ...] = ()

    @property
    def name(self) -> str:
        return self.append.name


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection of blobs has deleted."""

    blobs: int = 0
    bytes: int = 0


class Store(Protocol):
    """All methods raise StoreError subclasses; those that write raise StoreFullError when there is no
    space and StoreBusyError past the deadline: then nothing was stored."""

    url: str
    store_id: str
    scope: Scope
    read_only: bool
    folder: Path
    """Files of this machine that belong to the store: agent folders and the like."""
    incarnation: str
    """This process's life as an owner; leases name it."""
    label: str
    """This process, for people."""

    # ledger
    def append(self, batch: Append) -> Awaitable[int]:
        """The new tip; awaiting it raises ConflictError, FencedError, AmbiguousAppendError. Not to be
        cancelled: `journal.Journal` shields it."""
        ...

    async def read(self, name: str, after: int, limit: int = 1000) -> list[Row]:
        """Rows with after < seq <= after + limit, in order; fewer when they are large (`PAGE_BYTES`), and
        none only where there is nothing after `after`."""
        ...

    async def tip(self, name: str) -> Tip:
        """Raises IntegrityError when the journal is known to have been longer."""
        ...

    def changes(self, name: str | None = None) -> AbstractContextManager[asyncio.Event]:
        """A doorbell: the event is set whenever the journal or inbox of `name` (any session if None) may
        have changed, in this or another process. The waiter clears it *before* it reads."""
        ...

    # snapshots
    async def put_snapshot(self, snapshot: Snapshot, lease: Lease) -> None:
        """Keep it and the newest one before it; every other snapshot of the session goes, also one that is
        ahead of it. Raises FencedError, which shuts the lease."""
        ...

    async def snapshots(self, name: str) -> list[Snapshot]:
        """Those that are kept, newest first."""
        ...

    # leases
    async def acquire(self, name: str, options: AcquireOptions = AcquireOptions()) -> Lease:
        """Raises LeaseHeldError naming the holder."""
        ...

    async def holder(self, name: str) -> Holder | None:
        """The living owner, if any."""
        ...

    # inbox
    async def admit(self, admission: Admission) -> Admitted:
        """Raises RequestCollisionError when the id was used with another kind or body, SessionNotFoundError
        when the session is new and `opening` is missing, and IntegrityError when nothing is left of a journal
        that had been begun."""
        ...

    async def pending(self, name: str) -> list[Entry]:
        """All unsettled entries in admission order."""
        ...

    async def settled(self, name: str, request_id: str) -> Tombstone | None: ...

    # blobs
    async def put_blob(self, data: bytes) -> str:
        """The SHA-256 (hex) under which it is durable."""
        ...

    async def get_blob(self, digest: str) -> bytes:
        """Verified; raises IntegrityError(seq=0) when missing or changed."""
        ...

    async def collect_blobs(self, *, untouched_for: float = DAY, every: float = 0.0) -> Collected | None:
        """Delete the blobs that no record refers to and that were not put for `untouched_for` seconds, which
        must be longer than a blob ever waits for its record. One at a time for the whole store. None where
        another process is at it, or where the last one ended less than `every` seconds ago. Raises
        FencedError when this process was declared dead meanwhile."""
        ...

    # catalog
    async def list(self, query: CatalogQuery = CatalogQuery()) -> list[Listed]:
        """Newest activity first."""
        ...

    async def listed(self, name: str) -> Listed | None:
        """The catalog's row of the session with exactly this id."""
        ...

    async def entry(self, name: str) -> CatalogEntry | None:
        """What the catalog has of that session, and no more: a look that costs the same whatever waits."""
        ...

    async def find(self, name_or_prefix: str) -> str:
        """The session id: an exact match wins over a unique prefix. Raises SessionNotFoundError,
        AmbiguousIdError, and UsageError for an empty one."""
        ...

    async def close(self) -> None:
        """Release every lease of this incarnation and end its threads."""
        ...


@dataclass(frozen=True, slots=True)
class Beyond:
    """What is stored of a journal beyond some record: how far it goes, and the requests settled there."""

    last: int
    settled: tuple[str, ...]


class Mending(Protocol):
    """What a repair needs of a store that can be damaged under its journals."""

    async def require_sound(self) -> None:
        """Raises IntegrityError where the store itself is damaged, so that nothing can be cut in it."""
        ...

    async def beyond(self, name: str, seq: int) -> Beyond: ...

    async def unlisted(self) -> list[str]:
        """Sessions that have a journal or an inbox, and in the catalog no row, or one of another time."""
        ...

    async def emptied(self) -> list[str]:
        """Sessions that had begun, or to which something was sent, and of whose journal nothing is left."""
        ...

    async def relist(self, entry: CatalogEntry) -> None:
        """Put a row into the catalog where there is none, or one that is not of the journal's end."""
        ...

    def quarantine_name(self, lease: Lease) -> str:
        """The folder that `quarantine` will make for a cut under this lease."""
        ...

    async def quarantine(self, cut: Cut) -> None:
        """Keep what the cut will take out, as it is stored, durably. Raises StoreError."""
        ...

    async def cut(self, cut: Cut) -> None:
        """Carry it out, in one atomic step. Raises as `append`, and IntegrityError where the store itself is
        damaged: nothing was changed then."""
        ...


class Mendable(Store, Protocol):
    """A store whose journals can be repaired."""

    mending: Mending
