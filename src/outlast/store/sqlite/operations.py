"""What a writer can do inside a transaction. An operation refuses before it writes anything, so that one
refusal leaves the rest of its group alone. One that does not costs its group the common commit: each is then
carried out alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import msgspec

from outlast.errors import IntegrityError, LeaseHeldError, OutlastError
from outlast.store import refusals
from outlast.store.contract import Admission, Admitted, Append, Lease, Snapshot, Tip, Tombstone
from outlast.store.sqlite.incarnation import Node, alive, is_own
from outlast.store.sqlite.packing import packed_id
from outlast.store.sqlite.quarantine import overrules
from outlast.store.sqlite.rows import catalog_values, packed_opening
from outlast.store.sqlite.sweeping import sweep
from outlast.store.sqlite.tombstones import UNKNOWN
from outlast.store.sqlite.transaction import SELECT_CHAIN, SELECT_ENTRY, SELECT_SETTLED, Transaction
from outlast.store.sqlite.witness import Seen, Witness, compare

SELECT_IDS = "SELECT id, chain FROM record WHERE s = ? AND seq > ? AND seq <= ? ORDER BY seq"
SELECT_OPENING = "SELECT 1 FROM inbox WHERE s = ? AND opening_body IS NOT NULL LIMIT 1"
FREE_NODE = "UPDATE lease SET node = NULL WHERE node = ?"
# One it replaces is dropped with the rest: a snapshot is written whole or not at all.
DROP_SNAPSHOTS = (
    "DELETE FROM snapshot WHERE s = ?1 AND seq IS NOT"
    " (SELECT max(seq) FROM snapshot WHERE s = ?1 AND seq < ?2)"
)
INSERT_SNAPSHOT = "INSERT INTO snapshot (s, seq, chain, fold_version, digest, body) VALUES (?, ?, ?, ?, ?, ?)"
SELECT_NODE = "SELECT pid, start_ticks, boot_id, pid_ns, label FROM node WHERE id = ?"

Settled = dict[tuple[int, str], tuple[bytes, int, int]]
"""As `Transaction.settled`."""


class Operation(Protocol):
    point: ClassVar[str]
    """Its name among the fault points: `store.<point>.before_commit` and `.after_commit`."""

    def run(self, txn: Transaction) -> object:
        """The result. Raises OutlastError, having written nothing, to refuse."""


class RefusedLateError(Exception):
    """An operation refused after it had written: what it wrote must not be committed with the rest."""

    def __init__(self, refusal: OutlastError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def outcome_of(operation: Operation, txn: Transaction) -> object:
    """Its result or refusal. Raises RefusedLateError."""
    before, txn.wrote = txn.wrote, False
    try:
        return operation.run(txn)
    except OutlastError as refusal:
        if txn.wrote:
            raise RefusedLateError(refusal) from refusal
        return refusal
    finally:
        txn.wrote = txn.wrote or before


class AppendRows(msgspec.Struct, frozen=True):
    """Result: the new tip's seq."""

    point: ClassVar[str] = "append"
    batch: Append

    @property
    def lease(self) -> Lease:
        return self.batch.lease

    def run(self, txn: Transaction) -> int:
        batch = self.batch
        s = txn.session(batch.name)
        tip = txn.tip(s)
        if tip.seq != batch.expected_seq:
            return self._elsewhere(txn, s, tip)
        txn.require(s, batch.lease)
        assert s is not None  # a lease in force has a session
        return self.write(txn, s, *self.checked(txn, s, tip))

    def checked(self, txn: Transaction, s: int, tip: Tip) -> tuple[Settled, Tip]:
        """What it settles, and the tip after it. Raises StoreError where it does not follow on `tip`, or
        settles what does not wait; nothing is refused after this."""
        return self._settlements(txn, s), self._last(tip)

    def write(self, txn: Transaction, s: int, settled: Settled, last: Tip) -> int:
        """The new tip's seq."""
        batch = self.batch
        txn.wrote = True
        txn.lay_down(s, batch.rows, batch.lease.epoch)
        if settled:
            txn.settled.update(settled)
        if batch.catalog is not None:
            txn.catalog[s] = batch.catalog
        if batch.blobs:
            txn.blobs.update({(s, digest): True for digest in batch.blobs})
        if batch.released:
            txn.blobs.update({(s, digest): False for digest in batch.released})
        txn.cache.tips[s] = txn.effects.tips[s] = last
        txn.effects.names.add(batch.name)
        return last.seq

    def _last(self, tip: Tip) -> Tip:
        """The tip after the batch. Raises StoreError for a batch that does not follow on the tip."""
        seq, epoch = tip.seq, self.batch.lease.epoch
        for row in self.batch.rows:
            seq += 1
            if row.seq != seq or row.epoch != epoch:
                break
        else:
            if seq > tip.seq:
                row = self.batch.rows[-1]
                return Tip(row.seq, row.epoch, row.chain)
        raise refusals.not_gapless(self.batch.name, tip=tip.seq, epoch=epoch)

    def _elsewhere(self, txn: Transaction, s: int | None, tip: Tip) -> int:
        """The tip is not the expected one. If these very rows are there, an earlier try had stored them."""
        batch = self.batch
        end = batch.expected_seq + len(batch.rows)
        if s is not None and batch.rows and tip.seq >= end:
            txn.flush()
            found = txn.cursor.execute(SELECT_IDS, (s, batch.expected_seq, end)).fetchall()
            if found == [(row.id, row.chain) for row in batch.rows]:
                return end
        txn.require(s, batch.lease)
        raise refusals.conflict(batch.name, tip=tip.seq, expected=batch.expected_seq)

    def _settlements(self, txn: Transaction, s: int) -> Settled:
        settled: Settled = {}
        for item in self.batch.settle:
            key = (s, item.request_id)
            found = None
            if key not in txn.settled and key not in settled:
                found = txn.cursor.execute(SELECT_ENTRY, key).fetchone()
            if found is None:
                raise refusals.not_waiting(self.batch.name, item.request_id)
            settled[key] = (found[1], item.seq, found[0])
        return settled


@dataclass(frozen=True, slots=True)
class PutSnapshot:
    point: ClassVar[str] = "snapshot"
    snapshot: Snapshot
    lease: Lease

    def run(self, txn: Transaction) -> None:
        given = self.snapshot
        s = txn.session(given.name)
        txn.require(s, self.lease)
        assert s is not None  # a lease in force has a session
        txn.flush()
        txn.wrote = True
        txn.cursor.execute(DROP_SNAPSHOTS, (s, given.seq))
        values = (s, given.seq, given.chain, given.fold_version, given.digest, given.body)
        txn.cursor.execute(INSERT_SNAPSHOT, values)


@dataclass(frozen=True, slots=True)
class Admit:
    """Result: Admitted."""

    point: ClassVar[str] = "admit"
    admission: Admission
    at: int
    digest: bytes

    @classmethod
    def of(cls, admission: Admission, at: int) -> Admit:
        return cls(admission, at, admission.digest)

    def run(self, txn: Transaction) -> Admitted:
        txn.flush()
        given = self.admission
        s = txn.session(given.session)
        before = None if s is None else self._before(txn, s)
        if before is not None:
            return before
        listed = s is not None and txn.one("SELECT 1 FROM catalog WHERE s = ?", (s,)) is not None
        if s is None or txn.tip(s).seq == 0:
            self._refuse_unopenable(txn, s, listed=listed)
        s = txn.make_session(given.session)
        opens = given.opening is not None and not listed
        opening = given.opening if opens else None
        values = (s, given.request_id, given.kind, self.digest, given.actor, self.at)
        txn.wrote = True
        txn.cursor.execute(
            "INSERT INTO inbox (s, request, kind, digest, actor, at, opening, opening_body, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, packed_opening(opening), given.opening_body if opens else None, given.body),
        )
        if opening is not None:
            txn.cursor.execute(
                "INSERT INTO catalog VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (s, *catalog_values(opening)),
            )
        txn.effects.names.add(given.session)
        return Admitted(created=True)

    def _refuse_unopenable(self, txn: Transaction, s: int | None, *, listed: bool) -> None:
        """Without a journal it takes an opening, this one's or one that waits, or nobody can ever run it."""
        opens = None if s is None else txn.one(SELECT_OPENING, (s,))
        if opens is None and listed:
            raise refusals.nothing_left(self.admission.session)
        if opens is None and self.admission.opening is None:
            raise refusals.no_session(self.admission.session)

    def _before(self, txn: Transaction, s: int) -> Admitted | None:
        """The answer for a request that was admitted before."""
        key = (s, self.admission.request_id)
        done = txn.cursor.execute(SELECT_SETTLED, (s, packed_id(self.admission.request_id))).fetchone()
        if done is not None:
            self._same(done[0])
            return Admitted(created=False, settled=Tombstone(self.admission.request_id, done[0], done[1]))
        waiting = txn.cursor.execute(SELECT_ENTRY, key).fetchone()
        if waiting is None:
            return None
        self._same(waiting[1])
        return Admitted(created=False)

    def _same(self, digest: bytes) -> None:
        if digest not in (self.digest, UNKNOWN):
            raise refusals.collision(self.admission.session, self.admission.request_id)


@dataclass(frozen=True, slots=True)
class Acquire:
    """Result: the epoch."""

    point: ClassVar[str] = "acquire"
    name: str
    node: Node
    witness: Witness
    registered: bool
    """Whether an earlier acquire of this process stored its node."""
    damaged: bool = False
    """Also where the journal is not as long as it was."""
    evicted: str | None = None
    """A holder that counts as dead without a look at its lock (only with the fault point `takeover.kill`)."""

    def run(self, txn: Transaction) -> int:
        txn.flush()
        if self.registered and txn.one("SELECT 1 FROM node WHERE id = ?", (self.node.id,)) is None:
            raise refusals.declared_dead(self.name)
        s = txn.session(self.name)
        dead = None
        if s is not None:
            dead = self._dead_holder(txn, s)
            if not self.damaged:
                check_witness(txn, self.name, s, self.witness)
        txn.wrote = True
        if dead is not None:
            self._bury(txn, dead)
        s = txn.make_session(self.name)
        epoch = txn.one("UPDATE store SET epoch = epoch + 1 RETURNING epoch")
        assert epoch is not None  # the store has its one row
        if not self.registered:
            sweep(txn)
            me = self.node
            txn.cursor.execute(
                "INSERT OR IGNORE INTO node VALUES (?, ?, ?, ?, ?, ?)",
                (me.id, me.pid, me.start_ticks, me.boot_id, me.pid_ns, me.label),
            )
        txn.cursor.execute(
            "INSERT INTO lease VALUES (?, ?, ?) ON CONFLICT (s) DO UPDATE SET epoch = excluded.epoch,"
            " node = excluded.node",
            (s, epoch, self.node.id),
        )
        txn.cache.leases[s] = (epoch, self.node.id)
        txn.effects.epoch = max(txn.effects.epoch, epoch)
        txn.effects.names.add(self.name)
        return epoch

    def _dead_holder(self, txn: Transaction, s: int) -> str | None:
        """The dead incarnation that still has the lease, if any. Raises LeaseHeldError for a living one."""
        epoch, id_ = txn.lease(s)
        if id_ is None:
            return None
        node = node_of(txn, id_)
        if id_ != self.evicted and node is not None and alive(txn.nodes, node):
            raise held(self.name, epoch, node)
        return id_

    def _bury(self, txn: Transaction, node: str) -> None:
        # Dead for ever: all that it owned is free, and should it live after all, each of its appends is
        # refused. In the transaction of the grant, or a crash in between would free its sessions for two.
        txn.cursor.execute(FREE_NODE, (node,))
        txn.cursor.execute("DELETE FROM node WHERE id = ?", (node,))
        txn.cache.leases.clear()
        if node != self.evicted:
            txn.effects.dead.append(node)


def check_witness(txn: Transaction, name: str, s: int, witness: Witness) -> None:
    noted = witness.read(s)
    if noted is None:
        return

    def chain_at(seq: int) -> bytes | None:
        found = txn.cursor.execute(SELECT_CHAIN, (s, seq)).fetchone()
        return found[0] if found else None

    try:
        compare(name, noted, Seen(txn.tip(s), chain_at(noted.seq)))
    except IntegrityError:
        if not overrules(txn.nodes.parent, s, noted, chain_at):
            raise


def node_of(txn: Transaction, node: str) -> Node | None:
    found = txn.cursor.execute(SELECT_NODE, (node,)).fetchone()
    return Node(node, *found) if found else None


def held(name: str, epoch: int, node: Node | None) -> LeaseHeldError:
    label = node.label if node else "an unknown process"
    return refusals.held(name, epoch=epoch, label=label, own=node is not None and is_own(node.id))


@dataclass(frozen=True, slots=True)
class Release:
    """Give back leases by session and epoch; a stale one frees nobody. Result: how many were freed."""

    point: ClassVar[str] = "release"
    leases: tuple[tuple[str, int], ...]
    retire: str | None = None
    """The incarnation that ends with this."""

    def run(self, txn: Transaction) -> int:
        txn.flush()
        freed = 0
        for name, epoch in self.leases:
            s = txn.session(name)
            if s is None or txn.lease(s) != (epoch, txn.node):
                continue
            txn.wrote = True
            txn.cursor.execute("UPDATE lease SET node = NULL WHERE s = ?", (s,))
            txn.cache.leases[s] = (epoch, None)
            txn.effects.names.add(name)
            freed += 1
        if self.retire is not None:
            txn.wrote = True
            txn.cursor.execute(FREE_NODE, (self.retire,))
            txn.cursor.execute("DELETE FROM node WHERE id = ?", (self.retire,))
            txn.cache.leases.clear()
        return freed
