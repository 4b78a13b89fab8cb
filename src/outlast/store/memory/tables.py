"""What a store in memory holds: plain values. Each method is one atomic step, refused or done whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from outlast.errors import StoreError
from outlast.store import refusals
from outlast.store.contract import (
    DECISIONS,
    PAGE_BYTES,
    Admission,
    Admitted,
    Append,
    CatalogEntry,
    CatalogQuery,
    Collected,
    Entry,
    Holder,
    Lease,
    Listed,
    Row,
    Snapshot,
    Tip,
    Tombstone,
)

Ring = Callable[[str | None], None]
"""Told of a session that changed, or None: of all."""


@dataclass(slots=True)
class Session:
    """One name."""

    number: int
    """In the order in which they were first named."""
    rows: list[Row] = field(default_factory=list)
    epoch: int = 0
    """Of the newest lease."""
    owner: str | None = None
    """The incarnation that has it."""
    inbox: dict[str, tuple[Entry, bytes]] = field(default_factory=dict)
    """Unsettled entries in admission order, each with the digest of what was admitted."""
    settled: dict[str, Tombstone] = field(default_factory=dict)
    catalog: CatalogEntry | None = None
    snapshots: list[Snapshot] = field(default_factory=list)
    """Newest first."""

    @property
    def tip(self) -> Tip:
        return (
            Tip(self.rows[-1].seq, self.rows[-1].epoch, self.rows[-1].chain) if self.rows else Tip(0, 0, b"")
        )

    @property
    def known(self) -> bool:
        """A name that was only asked for is no session."""
        return self.catalog is not None or bool(self.rows)


class Tables:
    """One store. Stores in several threads may use it at once."""

    def __init__(self) -> None:
        self.store_id: str = os.urandom(16).hex()
        self.folder: Path = Path(tempfile.mkdtemp(prefix="outlast-memory-"))
        self._lock = threading.RLock()
        self._epoch = 0
        self._entries = 0
        self._sessions: dict[str, Session] = {}
        self._living: dict[str, tuple[str, Ring]] = {}
        """Label and bell of each incarnation that lives."""
        self._dead: set[str] = set()
        """Incarnations whose sessions somebody took: dead for ever, also if they go on."""
        self._blobs: dict[str, tuple[bytes, int]] = {}
        """Content and time of the last put."""
        self._marks: set[tuple[str, str]] = set()
        """(session, digest) of what records refer to."""
        self._collected = 0
        weakref.finalize(self, _remove, self.folder, os.getpid())

    # --- incarnations --------------------------------------------------------------------------

    def join(self, incarnation: str, label: str, ring: Ring) -> None:
        with self._lock:
            self._living[incarnation] = (label, ring)

    def leave(self, incarnation: str) -> None:
        """What it owned is free."""
        with self._lock:
            self._living.pop(incarnation, None)
            self._free(incarnation)

    def vanish(self, incarnation: str) -> None:
        """It lives no more, and gave nothing back. What it owned can be had from now on."""
        with self._lock:
            if self._living.pop(incarnation, None) is not None:
                for name, session in self._sessions.items():
                    if session.owner == incarnation:
                        self._ring(name)

    def is_dead(self, incarnation: str) -> bool:
        """Whether another one has declared it dead."""
        return incarnation in self._dead

    def _bury(self, incarnation: str) -> None:
        self._dead.add(incarnation)
        self._free(incarnation)

    def _free(self, incarnation: str) -> None:
        for name, session in self._sessions.items():
            if session.owner == incarnation:
                session.owner = None
                self._ring(name)

    def _ring(self, name: str) -> None:
        for _, ring in list(self._living.values()):
            ring(name)

    # --- leases --------------------------------------------------------------------------------

    def acquire(self, name: str, incarnation: str, *, take_over: bool) -> int:
        """The epoch."""
        with self._lock:
            if incarnation in self._dead:
                raise refusals.declared_dead(name)
            found = self._sessions.get(name)
            owner = found.owner if found else None
            if owner is not None:
                own = owner == incarnation
                if owner in self._living and (own or not take_over):
                    assert found is not None  # it has the owner
                    raise refusals.held(name, epoch=found.epoch, label=self._living[owner][0], own=own)
                self._bury(owner)
            session = self._session(name)
            self._epoch += 1
            session.epoch, session.owner = self._epoch, incarnation
            self._ring(name)
            return self._epoch

    def release(self, name: str, epoch: int, incarnation: str) -> None:
        with self._lock:
            session = self._sessions.get(name)
            if session is not None and (session.epoch, session.owner) == (epoch, incarnation):
                session.owner = None
                self._ring(name)

    def holder(self, name: str) -> Holder | None:
        with self._lock:
            session = self._sessions.get(name)
            return None if session is None else self._holder(session)

    def _holder(self, session: Session) -> Holder | None:
        if session.owner is None or session.owner not in self._living:
            return None
        return Holder(session.owner, session.epoch, os.getpid(), self._living[session.owner][0])

    def _require(self, lease: Lease, incarnation: str) -> Session:
        """The fence: the lease must be the one in force. Raises FencedError."""
        session = self._sessions.get(lease.name)
        if session is None or (session.epoch, session.owner) != (lease.epoch, incarnation):
            in_force = session.epoch if session else 0
            raise refusals.fenced(lease.name, epoch=lease.epoch, in_force=in_force)
        return session

    def _session(self, name: str) -> Session:
        _require_text(name)
        return self._sessions.setdefault(name, Session(len(self._sessions)))

    # --- ledger --------------------------------------------------------------------------------

    def append(self, batch: Append, incarnation: str) -> int:
        with self._lock:
            found = self._sessions.get(batch.name)
            rows = found.rows if found else []
            expected, tip = batch.expected_seq, len(rows)
            if tip != expected:
                end = expected + len(batch.rows)
                there = [(row.id, row.chain) for row in rows[expected:end]]
                if batch.rows and there == [(row.id, row.chain) for row in batch.rows]:
                    return end  # an earlier try had stored them
                self._require(batch.lease, incarnation)
                raise refusals.conflict(batch.name, tip=tip, expected=expected)
            session = self._require(batch.lease, incarnation)
            self._check(batch, session)
            session.rows.extend(batch.rows)
            for item in batch.settle:
                _, digest = session.inbox.pop(item.request_id)
                session.settled[item.request_id] = Tombstone(item.request_id, digest, item.seq)
            if batch.catalog is not None and batch.catalog.seq >= (session.catalog or batch.catalog).seq:
                session.catalog = batch.catalog
            self._marks.update((batch.name, digest) for digest in batch.blobs)
            self._marks.difference_update((batch.name, digest) for digest in batch.released)
            self._ring(batch.name)
            return len(session.rows)

    def _check(self, batch: Append, session: Session) -> None:
        """Raises StoreError for a batch that cannot be stored."""
        asked = [item.request_id for item in batch.settle]
        for request in asked:
            if request not in session.inbox or asked.count(request) > 1:
                raise refusals.not_waiting(batch.name, request)
        places = [(row.seq, row.epoch) for row in batch.rows]
        tip, epoch = len(session.rows), batch.lease.epoch
        if not places or places != [(tip + 1 + i, epoch) for i in range(len(places))]:
            raise refusals.not_gapless(batch.name, tip=tip, epoch=epoch)
        _require_text(*(value for row in batch.rows for value in row if isinstance(value, str)))

    def read(self, name: str, after: int, limit: int) -> list[Row]:
        with self._lock:
            session = self._sessions.get(name)
            page: list[Row] = []
            size = 0
            for row in session.rows[after : after + limit] if session else ():
                page.append(row)
                size += len(row.body)
                if size > PAGE_BYTES:
                    break
            return page

    def tip(self, name: str) -> Tip:
        with self._lock:
            session = self._sessions.get(name)
            return session.tip if session else Tip(0, 0, b"")

    def put_snapshot(self, snapshot: Snapshot, lease: Lease, incarnation: str) -> None:
        with self._lock:
            session = self._require(lease, incarnation)
            before = [kept for kept in session.snapshots if kept.seq < snapshot.seq]
            session.snapshots = [snapshot, *before[:1]]

    def snapshots(self, name: str) -> list[Snapshot]:
        with self._lock:
            session = self._sessions.get(name)
            return list(session.snapshots) if session else []

    # --- inbox ---------------------------------------------------------------------------------

    def admit(self, given: Admission, at: int) -> Admitted:
        with self._lock:
            found = self._sessions.get(given.session)
            before = None if found is None else _answer(found, given)
            if before is not None:
                return before
            if given.opening is None and (found is None or not found.known):
                raise refusals.no_session(given.session)
            _require_text(given.request_id, given.actor or "")
            session = self._session(given.session)
            opens = given.opening is not None and session.catalog is None
            self._entries += 1
            entry = Entry(
                self._entries,
                given.request_id,
                given.kind,
                given.body,
                given.actor,
                at,
                given.opening if opens else None,
                given.opening_body if opens else None,
            )
            session.inbox[given.request_id] = (entry, given.digest)
            if opens:
                session.catalog = given.opening
            self._ring(given.session)
            return Admitted(created=True)

    def pending(self, name: str) -> list[Entry]:
        with self._lock:
            session = self._sessions.get(name)
            return [entry for entry, _ in session.inbox.values()] if session else []

    def settled(self, name: str, request_id: str) -> Tombstone | None:
        with self._lock:
            session = self._sessions.get(name)
            return session.settled.get(request_id) if session else None

    # --- blobs ---------------------------------------------------------------------------------

    def put_blob(self, data: bytes, at: int) -> str:
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            self._blobs[digest] = (data, at)
        return digest

    def get_blob(self, digest: str) -> bytes:
        refusals.require_digest(digest)
        with self._lock:
            found = self._blobs.get(digest)
        if found is None:
            raise refusals.bad_blob(digest, "missing")
        if hashlib.sha256(found[0]).hexdigest() != digest:
            raise refusals.bad_blob(digest, "changed")
        return found[0]

    def change_blob(self, digest: str, *, data: bytes | None = None, at: int | None = None) -> None:
        """For tests: another content under the same name, or another time of its last put."""
        with self._lock:
            before = self._blobs[digest]
            self._blobs[digest] = (before[0] if data is None else data, before[1] if at is None else at)

    def collect_blobs(self, before: int, not_since: int, now: int) -> Collected | None:
        with self._lock:
            if self._collected > not_since:
                return None
            marked = {digest for _, digest in self._marks}
            gone = [d for d, (_, at) in self._blobs.items() if at < before and d not in marked]
            freed = sum(len(self._blobs.pop(digest)[0]) for digest in gone)
            self._collected = now
            return Collected(len(gone), freed)

    # --- catalog -------------------------------------------------------------------------------

    def list_sessions(self, query: CatalogQuery) -> list[Listed]:
        with self._lock:
            found = [
                (session.catalog, session)
                for name, session in self._sessions.items()
                if session.catalog is not None
                and name.startswith(query.prefix or "")
                and query.workspace in (None, session.catalog.workspace)
            ]
            found.sort(key=lambda pair: (pair[0].last_activity_at, pair[1].number), reverse=True)
            return [self._listed(entry, session) for entry, session in found[: query.limit]]

    def listed(self, name: str) -> Listed | None:
        with self._lock:
            session = self._sessions.get(name)
            if session is None or session.catalog is None:
                return None
            return self._listed(session.catalog, session)

    def entry(self, name: str) -> CatalogEntry | None:
        with self._lock:
            session = self._sessions.get(name)
            return None if session is None else session.catalog

    def _listed(self, entry: CatalogEntry, session: Session) -> Listed:
        inputs = sum(waiting.kind == "input" for waiting, _ in session.inbox.values())
        decisions = sum(waiting.kind in DECISIONS for waiting, _ in session.inbox.values())
        return Listed(entry, inputs, decisions, self._holder(session))

    def find(self, name_or_prefix: str) -> str:
        refusals.require_name(name_or_prefix)
        with self._lock:
            names = sorted(
                name
                for name, session in self._sessions.items()
                if session.known and name.startswith(name_or_prefix)
            )
        if name_or_prefix in names:
            return name_or_prefix
        if not names:
            raise refusals.no_session(name_or_prefix)
        if len(names) > 1:
            raise refusals.ambiguous_id(name_or_prefix, names[0], names[1])
        return names[0]


def _answer(session: Session, given: Admission) -> Admitted | None:
    """The answer for a request that was admitted before. Raises RequestCollisionError."""
    done = session.settled.get(given.request_id)
    waiting = session.inbox.get(given.request_id)
    if done is None and waiting is None:
        return None
    digest = done.digest if done is not None else waiting[1] if waiting is not None else b""
    if digest != given.digest:
        raise refusals.collision(given.session, given.request_id)
    return Admitted(created=False, settled=done)


def _require_text(*texts: str) -> None:
    """Raises StoreError for what no store can hold."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise StoreError(f"cannot be stored: {error}") from error


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
