"""The single writer of one session's journal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from outlast import clock
from outlast.errors import (
    AmbiguousAppendError,
    ConflictError,
    FencedError,
    LeaseLostError,
    UsageError,
)
from outlast.faults import point
from outlast.hold import Hold
from outlast.ids import UUID7_RANDOM, uuid7
from outlast.journal.loading import Loaded, load
from outlast.journal.reader import ENVELOPE, read_records
from outlast.journal.snapshots import Snapshots
from outlast.records.agent_state import AgentStateCaptured
from outlast.records.codec import BLOB_LIMIT, encode_blob_ref, encode_body, row_of
from outlast.records.envelope import Draft, Record, Stamp
from outlast.records.types import Fence
from outlast.state.catalog import catalog_entry
from outlast.state.fold import apply
from outlast.state.lookup import blobs_needed
from outlast.state.model import State
from outlast.store.contract import Append, Lease, LossReason, Row, Settlement, Store

_FIRST_RETRY = 0.02
_LONGEST_RETRY = 2.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Records to append as one batch, and the inbox entries that they settle: each with the index of the
    draft that does it."""

    drafts: tuple[Draft, ...]
    settle: tuple[tuple[str, int], ...] = ()


class Batch(msgspec.Struct, frozen=True):
    """What is stored, and what it means once it is."""

    append: Append
    records: list[Record]
    state: State
    size: int
    """Bytes that a reader of the records has to read for their state."""


class Blobs(NamedTuple):
    """Bodies of a batch that are kept as blobs."""

    digests: tuple[str, ...]
    size: int
    """Bytes of them that are read for the state."""


NO_BLOBS = Blobs((), 0)


class Journal:
    """Appends under a lease and keeps the folded state at the tip. `lost` is set as soon as this process
    owns the session no more; every later call then raises LeaseLostError."""

    def __init__(self, store: Store, lease: Lease, loaded: Loaded) -> None:
        self.name: str = lease.name
        self.lease = lease
        self.state: State = loaded.state
        """After the last durable record. Each append puts a new one here; a held one does not change."""
        self.verified_from: int = loaded.verified_from
        """See `Loaded.verified_from`."""
        self._store = store
        self._order = asyncio.Lock()
        self._snapshots = Snapshots(store, lease, loaded)

    @classmethod
    async def open(cls, store: Store, lease: Lease) -> Journal:
        """Have the state of what is there. Raises as `load`, and IntegrityError when the journal is shorter
        than it was."""
        return cls(store, lease, await load(store, lease.name))

    async def release(self) -> None:
        """Give the lease back, once what is on its way to the store has come there. Raises StoreError."""
        try:
            await self._snapshots.rest()
        finally:
            await self.lease.release()

    @property
    def lost(self) -> asyncio.Event:
        return self.lease.lost

    def raise_if_lost(self) -> None:
        """Raises LeaseLostError once the lease is lost."""
        if self.lease.lost.is_set():
            raise _lost(self.lease)

    async def append(
        self,
        drafts: Sequence[Draft],
        *,
        settle: Sequence[tuple[str, int]] = (),
        expected_seq: int | None = None,
    ) -> list[Record]:
        """Store `drafts` as one atomic batch; they are durable when it returns.

        `settle` names inbox entries, each with the index of the draft that settles it. With `expected_seq`
        the batch is refused unless the journal ends there. The first batch of an owner begins with its
        Fence. Callers are served in the order of their calls. A caller that is cancelled while the batch is
        on its way is held until its fate is known.

        Raises LeaseLostError; ConflictError for another `expected_seq`; IntegrityError or
        InvalidRecordError for drafts that the journal cannot take; StoreFullError, StoreBusyError and other
        StoreErrors. Nothing is stored then.
        """
        if not drafts:
            raise UsageError("an append needs at least one record")
        async with self._order:
            self.raise_if_lost()
            if expected_seq is not None and expected_seq != self.state.seq:
                raise ConflictError(
                    f"the journal of {self.name} ends at record {self.state.seq}, not {expected_seq}",
                    tip=self.state.seq,
                    session_id=self.name,
                )
            return await self._add(drafts, settle)

    async def decide(self, propose: Callable[[State], Proposal | None]) -> list[Record]:
        """Store what `propose` makes of the state that it will follow on; nothing where that is None.

        `propose` is pure and called once, when no other append is on its way: what it sees is what it
        changes. Raises as `append`, and what `propose` raises.
        """
        async with self._order:
            self.raise_if_lost()
            proposal = propose(self.state)
            return [] if proposal is None else await self._add(proposal.drafts, proposal.settle)

    async def _add(self, drafts: Sequence[Draft], settle: Sequence[tuple[str, int]]) -> list[Record]:
        """To be called in order."""
        self._require_fence(drafts[0])
        batch = await self.prepare(drafts, settle)
        self.raise_if_lost()
        hold = Hold()
        try:
            await self._store_and_apply(batch, hold)
        except Exception as failure:
            hold.let_go(failure)
            raise
        hold.let_go()
        return batch.records

    async def put_blob(self, data: bytes) -> str:
        """Store bytes that the next append refers to; their digest. Raises StoreFullError."""
        return await self._store.put_blob(data)

    async def get_blob(self, digest: str) -> bytes:
        """Raises IntegrityError when it is missing or changed."""
        return await self._store.get_blob(digest)

    def read(self, after: int = 0) -> AsyncIterator[Record]:
        """See `read_records`."""
        return read_records(self._store, self.name, after)

    def _require_fence(self, first: Draft) -> None:
        epoch = self.lease.epoch
        fenced = self.state.epoch == epoch
        begins = isinstance(first.body, Fence) and first.body.epoch == epoch
        if not fenced and not begins:
            raise UsageError(
                f"the first record under epoch {epoch} of {self.name} must be its Fence", session_id=self.name
            )

    async def prepare(self, drafts: Sequence[Draft], settle: Sequence[tuple[str, int]] = ()) -> Batch:
        """What an append of `drafts` would store now. Raises as `append` for what the journal cannot take."""
        bodies = [encode_body(draft.body) for draft in drafts]
        if max(map(len, bodies)) <= BLOB_LIMIT:
            return self._batch(drafts, bodies, settle)
        blobs: list[str] = []
        beside = 0
        for index, body in enumerate(bodies):
            if len(body) > BLOB_LIMIT:
                outline = drafts[index].body.outline()
                blobs.append(await self._store.put_blob(body))
                bodies[index] = encode_blob_ref(blobs[-1], len(body), outline)
                beside += len(body) if outline is None else 0
        return self._batch(drafts, bodies, settle, Blobs(tuple(blobs), beside))

    def _batch(
        self,
        drafts: Sequence[Draft],
        bodies: list[bytes],
        settle: Sequence[tuple[str, int]],
        blobs: Blobs = NO_BLOBS,
    ) -> Batch:
        state = self.state.copy()
        epoch, at = self.lease.epoch, clock.now()
        random = os.urandom(UUID7_RANDOM * len(drafts))
        size, used, captured = blobs.size, 0, False
        rows: list[Row] = []
        records: list[Record] = []
        for draft, body in zip(drafts, bodies, strict=True):
            uuid = uuid7(at, random[used : used + UUID7_RANDOM])
            used += UUID7_RANDOM
            row = row_of(draft, body, Stamp(state.seq + 1, epoch, uuid, at), self.name, state.chain)
            record = _record(draft, row)
            # On a copy and before it is stored: a record that contradicts the journal would make it
            # unreadable for ever.
            apply(state, record)
            rows.append(row)
            records.append(record)
            size += ENVELOPE + len(body)
            captured = captured or type(draft.body) is AgentStateCaptured
        settled = tuple([Settlement(request, rows[index].seq) for request, index in settle]) if settle else ()
        digests: tuple[str, ...] = blobs.digests
        released: tuple[str, ...] = ()
        if captured:
            needed, before = blobs_needed(state), blobs_needed(self.state)
            digests, released = (*digests, *needed), tuple(before - needed)
        entry = catalog_entry(state)
        append = Append(self.name, tuple(rows), self.state.seq, self.lease, settled, entry, digests, released)
        return Batch(append, records, state, size)

    async def _store_and_apply(self, batch: Batch, hold: Hold) -> None:
        point("journal.append.before")
        delay = _FIRST_RETRY
        while True:
            try:
                await hold.until_done(self._store.append(batch.append))
                break
            except AmbiguousAppendError as error:
                # Only the same rows at the same place can tell. A store that can tell nobody any more
                # has set the lease to lost.
                if self.lease.lost.is_set():
                    raise _lost(self.lease) from error
                await hold.until_done(asyncio.sleep(delay))
                delay = min(delay * 2, _LONGEST_RETRY)
            except (FencedError, ConflictError) as error:
                self.lease.lose("fenced")
                raise _lost(self.lease) from error
        self.state = batch.state
        point("journal.append.after")
        self._snapshots.grew(batch.state, batch.size)


def _record(draft: Draft, row: Row) -> Record:
    seq, epoch, uuid, at, type_, v, loop, turn, cause, actor, _, _, chain = row
    return Record(seq, epoch, uuid, at, type_, v, loop, turn, cause, actor, draft.cursor, draft.body, chain)


def _lost(lease: Lease) -> LeaseLostError:
    why, hint = _WHY[lease.reason or "fenced"]
    return LeaseLostError(
        f"this process does not own {lease.name} any more (epoch {lease.epoch}): {why}",
        hint=hint,
        session_id=lease.name,
    )


_WHY: Mapping[LossReason, tuple[str, str]] = {
    "fenced": ("another process took it over", "`outlast show` names its owner"),
    "agent_taken": ("another process has its agent", "`outlast show` names its owner"),
    "released": ("it gave it back", "acquire it again"),
    "closed": ("it closed the store", "open the store again, or keep it open for as long as you use it"),
    "outdated": (
        "a newer outlast has brought the store up to date",
        "go on with that one: `outlast resume`",
    ),
    "writer_ended": (
        "it can write no more to the store",
        "end this process, look at the disk, then `outlast resume` it",
    ),
}
