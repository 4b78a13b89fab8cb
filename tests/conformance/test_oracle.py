"""SQLite does what the store in memory does, step by step, whatever the steps are."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.stores import entry

from outlast.errors import ConflictError, LeaseHeldError, OutlastError
from outlast.store.contract import (
    Admission,
    Append,
    CatalogQuery,
    EntryKind,
    Lease,
    Row,
    Settlement,
    Snapshot,
    Store,
    Tip,
)
from outlast.store.memory.store import MemoryStore
from outlast.store.memory.tables import Tables
from outlast.store.sqlite.store import Address, SqliteStore

pytestmark = pytest.mark.timeout(900)  # to make what it finds small takes longer than to find it

NAMES = ("a", "ab", "b")
REQUESTS = ("r", "s", "t")
BLOBS = (b"one", b"two")
SLOTS = (0, 1)
HOURS = 3600.0


@dataclass
class Side:
    """One of the two stores: two incarnations of it, and the leases that they ever had."""

    open: Callable[[int], Awaitable[Store]]
    kill: Callable[[Store], Awaitable[None]]
    stores: list[Store] = field(default_factory=list)
    leases: list[tuple[Store, Lease]] = field(default_factory=list)

    def number(self, epoch: int) -> int:
        """Which of the leases it is: a collection of blobs may take an epoch on one side only. 0: none."""
        epochs = [lease.epoch for _, lease in self.leases]
        return epochs.index(epoch) + 1 if epoch in epochs else 0

    async def end(self) -> None:
        for store in self.stores:
            await store.close()


def _memory() -> Side:
    tables = Tables()

    async def start(slot: int) -> Store:
        return MemoryStore("memory://", f"incarnation {slot}", tables)

    async def kill(store: Store) -> None:
        assert isinstance(store, MemoryStore)
        store.vanish()

    return Side(start, kill)


def _sqlite(folder: Path) -> Side:
    async def start(slot: int) -> Store:
        return await SqliteStore.open(Address("sqlite://", folder / "x.db", f"incarnation {slot}"))

    async def kill(store: Store) -> None:
        """Without its lock an incarnation is dead to all others, and it gives nothing back any more."""
        assert isinstance(store, SqliteStore)
        store._parts.incarnation.end(remove=False)
        await store.close()

    return Side(start, kill)


@dataclass(frozen=True)
class Given:
    """An append as the machine gives it to both sides."""

    lease: int
    count: int
    seed: int
    expected: int
    settle: tuple[str, ...]
    catalog: int | None
    blobs: tuple[str, ...]

    def on(self, side: Side) -> Append:
        _, lease = side.leases[self.lease]
        rows = tuple(
            self._row(lease, self.expected + 1 + i, f"{self.seed}-{i}".encode()) for i in range(self.count)
        )
        settled = tuple(Settlement(request, self.expected + 1) for request in self.settle)
        row = None if self.catalog is None else entry(lease.name, self.catalog, title=f"t{self.seed}")
        return Append(lease.name, rows, self.expected, lease, settled, row, self.blobs)

    @staticmethod
    def _row(lease: Lease, seq: int, seed: bytes) -> Row:
        made = hashlib.sha256(seed).digest()
        return Row(seq, lease.epoch, made[:16], 1, "T", 1, None, None, None, None, None, seed, made[16:])


class SameAsMemory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-oracle-"))
        self.runner = asyncio.Runner()
        self.memory, self.sqlite = _memory(), _sqlite(self.folder)
        self.sides = (self.memory, self.sqlite)
        self.appended: list[Given] = []
        self.seeds = 0
        for slot in SLOTS:
            self.run(self._open(slot))

    def run(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return self.runner.run(awaited())

    def teardown(self) -> None:
        for side in self.sides:
            self.run(side.end())
        self.runner.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- both do the same ----------------------------------------------------------------------

    def both(self, work: Callable[[Side], Awaitable[object]], shown: Callable[[Side, Any], object]) -> None:
        """Carry it out on both sides; what comes of it is shown alike."""
        outcomes = []
        for side in self.sides:
            try:
                outcomes.append(shown(side, self.run(work(side))))
            except OutlastError as error:
                outcomes.append(_shown_error(error))
        assert outcomes[0] == outcomes[1], f"memory {outcomes[0]}, sqlite {outcomes[1]}"

    async def _open(self, slot: int) -> None:
        for side in self.sides:
            store = await side.open(slot)
            side.stores[slot : slot + 1] = [store]

    # --- incarnations ---

    @rule(slot=st.sampled_from(SLOTS), killed=st.booleans())
    def end(self, slot: int, killed: bool) -> None:
        for side in self.sides:
            store = side.stores[slot]
            self.run(side.kill(store) if killed else store.close())
        self.run(self._open(slot))

    # --- leases ---

    @rule(slot=st.sampled_from(SLOTS), name=st.sampled_from(NAMES))
    def acquire(self, slot: int, name: str) -> None:
        async def acquire(side: Side) -> object:
            store = side.stores[slot]
            lease = await store.acquire(name)
            side.leases.append((store, lease))
            return lease

        self.both(acquire, lambda side, lease: side.number(lease.epoch))

    @precondition(lambda self: self.memory.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.memory.leases) - 1))
        self.both(lambda side: side.leases[number][1].release(), lambda _, __: None)

    def _lease(self) -> st.SearchStrategy[int]:
        """Rather one that is in force: all others are refused."""
        leases = self.memory.leases
        held = {(lease.name, lease.epoch): number for number, (_, lease) in enumerate(leases)}
        holders = [(name, self.run(self.memory.stores[0].holder(name))) for name in NAMES]
        in_force = [held[name, holder.epoch] for name, holder in holders if holder]
        every = st.integers(0, len(leases) - 1)
        return st.one_of(st.sampled_from(in_force), st.sampled_from(in_force), every) if in_force else every

    # --- ledger ---

    @precondition(lambda self: self.memory.leases)
    @rule(data=st.data(), count=st.integers(1, 3), settles=st.booleans())
    def append(self, data: st.DataObject, count: int, settles: bool) -> None:
        """As an owner does it; refused where the lease is not in force."""
        number = data.draw(self._lease())
        tip, waiting = self._before(number)
        settle = tuple(waiting[:1]) if settles else ()
        blobs = data.draw(st.lists(st.sampled_from(BLOBS), max_size=1))
        digests = tuple(hashlib.sha256(blob).hexdigest() for blob in blobs)
        catalog = data.draw(st.one_of(st.none(), st.integers(0, tip + count)))
        self._append(Given(number, count, self._seed(), tip, settle, catalog, digests))

    @precondition(lambda self: self.memory.leases)
    @rule(
        data=st.data(),
        count=st.integers(0, 2),
        beside=st.integers(-2, 2),
        settle=st.lists(st.sampled_from(REQUESTS), max_size=2),
    )
    def append_wrongly(self, data: st.DataObject, count: int, beside: int, settle: list[str]) -> None:
        number = data.draw(self._lease())
        tip, _ = self._before(number)
        self._append(Given(number, count, self._seed(), max(0, tip + beside), tuple(settle), tip, ()))

    def _before(self, lease: int) -> tuple[int, list[str]]:
        """The tip of the lease's session, and what waits there."""
        name, store = self.memory.leases[lease][1].name, self.memory.stores[0]
        tip: Tip = self.run(store.tip(name))
        return tip.seq, [entry.request_id for entry in self.run(store.pending(name))]

    def _seed(self) -> int:
        self.seeds += 1
        return self.seeds

    @precondition(lambda self: self.appended)
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        self._append(data.draw(st.sampled_from(self.appended)))

    def _append(self, given: Given) -> None:
        self.appended.append(given)

        def append(side: Side) -> Awaitable[object]:
            return side.leases[given.lease][0].append(given.on(side))

        self.both(append, lambda _, seq: seq)

    @precondition(lambda self: self.memory.leases)
    @rule(data=st.data(), seq=st.integers(1, 5))
    def put_snapshot(self, data: st.DataObject, seq: int) -> None:
        number = data.draw(self._lease())

        def put(side: Side) -> Awaitable[object]:
            store, lease = side.leases[number]
            return store.put_snapshot(Snapshot(lease.name, seq, b"c" * 16, 1, b"d" * 32, b"body"), lease)

        self.both(put, lambda _, __: None)

    # --- inbox ---

    @rule(
        slot=st.sampled_from(SLOTS),
        name=st.sampled_from(NAMES),
        request=st.sampled_from(REQUESTS),
        kind=st.sampled_from(("input", "cancel")),
        body=st.sampled_from((b"x", b"y\0")),
        opens=st.booleans(),
    )
    def admit(self, slot: int, name: str, request: str, kind: EntryKind, **rest: Any) -> None:
        opening = entry(name) if rest["opens"] else None
        admission = Admission(name, request, kind, rest["body"], "me", opening, b"{}" if opening else None)
        self.both(lambda side: side.stores[slot].admit(admission), lambda _, admitted: admitted)

    # --- blobs ---

    @rule(
        slot=st.sampled_from(SLOTS), blob=st.sampled_from(BLOBS), age=st.sampled_from((None, -HOURS, HOURS))
    )
    def put_or_collect_blobs(self, slot: int, blob: bytes, age: float | None) -> None:
        """Collected as if an hour had passed since anything was put, or as it is."""
        if age is None:
            self.both(lambda side: side.stores[slot].put_blob(blob), lambda _, digest: digest)
            return
        self.both(lambda side: side.stores[slot].collect_blobs(untouched_for=age), lambda _, freed: freed)

    # --- what is seen afterwards ---

    @invariant()
    def leases_are_lost_alike(self) -> None:
        states = [[(lease.lost.is_set(), lease.reason) for _, lease in side.leases] for side in self.sides]
        assert states[0] == states[1]

    @invariant()
    def everything_reads_alike(self) -> None:
        seen = [self.run(self._seen(side)) for side in self.sides]
        assert seen[0] == seen[1]

    async def _seen(self, side: Side) -> dict[str, object]:
        store = side.stores[1]
        found: dict[str, object] = {}
        for name in NAMES:
            rows = await store.read(name, 0)
            tip = await store.tip(name)
            holder = await store.holder(name)
            waiting = await store.pending(name)
            found[name] = (
                [row._replace(epoch=side.number(row.epoch)) for row in rows],
                tip._replace(epoch=side.number(tip.epoch)),
                holder and (side.number(holder.epoch), holder.label),
                [replace(each, order=place, admitted_at=0) for place, each in enumerate(waiting)],
                [await store.settled(name, request) for request in REQUESTS],
                await store.snapshots(name),
                await _outcome(store.find(name)),
            )
        listed = await store.list(CatalogQuery())
        found["list"] = {row.entry.session: (row.entry, row.pending, row.owner is not None) for row in listed}
        found["prefix"] = sorted(row.entry.session for row in await store.list(CatalogQuery(prefix="a")))
        found["blobs"] = [await _outcome(store.get_blob(hashlib.sha256(blob).hexdigest())) for blob in BLOBS]
        return found


async def _outcome(work: Awaitable[object]) -> object:
    try:
        return await work
    except OutlastError as error:
        return _shown_error(error)


def _shown_error(error: OutlastError) -> object:
    details = error.tip if isinstance(error, ConflictError) else None
    holder = error.holder if isinstance(error, LeaseHeldError) else None
    return type(error).__name__, details, holder


# An example is forty steps on a real disk: one for twenty of other properties.
EXAMPLES = max(25, settings().max_examples // 20)

TestSameAsMemory = SameAsMemory.TestCase
TestSameAsMemory.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
