"""The suite sees what it is for: each store here breaks one promise, and the checks of that one see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from outlast.errors import ConflictError, FencedError
from outlast.store.contract import Admission, Admitted, Append, Entry, Lease, Row, Snapshot, Store, Tombstone
from outlast.store.memory.store import MemoryStore
from outlast.store.memory.tables import Session, Tables
from outlast.testing.store_conformance import InMemory, chosen, run

pytestmark = pytest.mark.slow


class Broken(Tables):
    """The tables of a store in memory; what is wrong with them says the subclass."""

    subject: ClassVar[str]
    """Whose checks must notice."""


class LosesAnAppend(Broken):
    """Acknowledges an append that ends with a fifth record, and drops that."""

    subject = "ledger"

    def append(self, batch: Append, incarnation: str) -> int:
        seq = super().append(batch, incarnation)
        if seq % 5 == 0:
            self._sessions[batch.name].rows.pop()
        return seq


class SetsWithoutComparing(Broken):
    """Appends at any tip."""

    subject = "ledger"

    def append(self, batch: Append, incarnation: str) -> int:
        try:
            return super().append(batch, incarnation)
        except ConflictError as error:
            moved = tuple(row._replace(seq=error.tip + 1 + i) for i, row in enumerate(batch.rows))
            return super().append(batch._replace(rows=moved, expected_seq=error.tip), incarnation)


class StoresAPartOfABatch(Broken):
    """Of a batch that settles something wrong the records are stored all the same."""

    subject = "ledger"

    def _check(self, batch: Append, session: Session) -> None:
        try:
            super()._check(batch, session)
        except Exception:
            session.rows.extend(batch.rows)
            raise


class GivesEverythingAtOnce(Broken):
    """A page has no end."""

    subject = "ledger"

    def read(self, name: str, after: int, limit: int) -> list[Row]:
        session = self._sessions.get(name)
        return session.rows[after:] if session else []


class CutsAtNul(Broken):
    """As a column of texts does."""

    subject = "ledger"

    def append(self, batch: Append, incarnation: str) -> int:
        rows = tuple(row._replace(body=row.body.split(b"\0")[0]) for row in batch.rows)
        return super().append(batch._replace(rows=rows), incarnation)


class KnowsNoSecondTry(Broken):
    """The same batch again is a conflict, as any other."""

    subject = "outcomes"

    def append(self, batch: Append, incarnation: str) -> int:
        if len(self._session(batch.name).rows) != batch.expected_seq:
            raise ConflictError("made", tip=len(self._session(batch.name).rows))
        return super().append(batch, incarnation)


class DoublesASecondTry(Broken):
    """The same batch again is stored again."""

    subject = "outcomes"

    def append(self, batch: Append, incarnation: str) -> int:
        rows = self._session(batch.name).rows
        if batch.rows and batch.rows[0].id in {row.id for row in rows}:
            rows.extend(row._replace(seq=len(rows) + 1) for row in batch.rows[:1])
            return len(rows)
        return super().append(batch, incarnation)


class OwnsTwice(Broken):
    """A held lease is given to whoever asks."""

    subject = "leases"

    def acquire(self, name: str, incarnation: str, *, take_over: bool) -> int:
        return super().acquire(name, incarnation, take_over=True)


class CountsPerName(Broken):
    """Epochs begin anew for each name."""

    subject = "leases"

    def acquire(self, name: str, incarnation: str, *, take_over: bool) -> int:
        self._epoch = self._session(name).epoch
        return super().acquire(name, incarnation, take_over=take_over)


class FreesForAStaleRelease(Broken):
    subject = "fence"

    def release(self, name: str, epoch: int, incarnation: str) -> None:
        self._session(name).owner = None


class KeepsTheDead(Broken):
    """Who vanished counts as alive."""

    subject = "leases"

    def vanish(self, incarnation: str) -> None:
        """Nobody notices."""


class TellsNobodyOfADeath(Broken):
    """Who waits for what a dead one owned waits to the end."""

    subject = "leases"

    def vanish(self, incarnation: str) -> None:
        self._living.pop(incarnation, None)


class TellsNobodyOfARelease(Broken):
    subject = "leases"

    def release(self, name: str, epoch: int, incarnation: str) -> None:
        session = self._session(name)
        if (session.epoch, session.owner) == (epoch, incarnation):
            session.owner = None


class FencesNobody(Broken):
    """An append is not asked for its lease."""

    subject = "fence"

    def _require(self, lease: Lease, incarnation: str) -> Session:
        return self._session(lease.name)


class FencesAppendsOnly(Broken):
    """A snapshot is not asked for its lease."""

    subject = "fence"

    def put_snapshot(self, snapshot: Snapshot, lease: Lease, incarnation: str) -> None:
        session = self._session(lease.name)
        super().put_snapshot(snapshot, replaced(lease, session), session.owner or "")


def replaced(lease: Lease, session: Session) -> Any:
    """The lease in force."""
    return type("Forged", (), {"name": lease.name, "epoch": session.epoch})()


class AdmitsTwice(Broken):
    """A request that is settled is taken again."""

    subject = "inbox"

    def admit(self, given: Admission, at: int) -> Admitted:
        self._session(given.session).settled.pop(given.request_id, None)
        return super().admit(given, at)


class KnowsNoCollision(Broken):
    subject = "inbox"

    def admit(self, given: Admission, at: int) -> Admitted:
        waiting = self._session(given.session).inbox.get(given.request_id)
        return Admitted(created=False) if waiting else super().admit(given, at)


class ReadsAfterAPlace(Broken):
    """Whoever reads an inbox is given what came after the last that was settled."""

    subject = "inbox"

    def pending(self, name: str) -> list[Entry]:
        found = super().pending(name)
        settled = self._session(name).settled
        return found if not settled else found[-1:]


class ForgetsTombstones(Broken):
    subject = "inbox"

    def settled(self, name: str, request_id: str) -> Tombstone | None:
        return None


class RingsNobody(Broken):
    subject = "following"

    def _ring(self, name: str) -> None:
        """Silence."""


class ListsStaleRows(Broken):
    """The last row that is written wins."""

    subject = "catalog"

    def append(self, batch: Append, incarnation: str) -> int:
        seq = super().append(batch, incarnation)
        self._session(batch.name).catalog = batch.catalog or self._session(batch.name).catalog
        return seq


class FindsAnything(Broken):
    """The first of several that begin so."""

    subject = "catalog"

    def find(self, name_or_prefix: str) -> str:
        names = sorted(name for name in self._sessions if name.startswith(name_or_prefix))
        return names[0] if names else super().find(name_or_prefix)


class KeepsOneSnapshot(Broken):
    subject = "snapshots"

    def put_snapshot(self, snapshot: Snapshot, lease: Lease, incarnation: str) -> None:
        super().put_snapshot(snapshot, lease, incarnation)
        del self._session(lease.name).snapshots[1:]


class VerifiesNothing(Broken):
    subject = "blobs"

    def get_blob(self, digest: str) -> bytes:
        found = self._blobs.get(digest)
        return found[0] if found else super().get_blob(digest)


class CollectsWhatIsReferredTo(Broken):
    subject = "collection"

    def collect_blobs(self, before: int, not_since: int, now: int) -> Any:
        self._marks.clear()
        return super().collect_blobs(before, not_since, now)


class RefreshesNothing(Broken):
    """A blob that is put again stays as old as it was."""

    subject = "collection"

    def put_blob(self, data: bytes, at: int) -> str:
        digest = super().put_blob(data, at)
        self._first = {digest: at, **getattr(self, "_first", {})}
        self._blobs[digest] = (data, self._first[digest])
        return digest

    def change_blob(self, digest: str, *, data: bytes | None = None, at: int | None = None) -> None:
        super().change_blob(digest, data=data, at=at)
        self._first[digest] = self._blobs[digest][1]


class GoesOnAfterALoss(MemoryStore):
    """A lease that is lost is asked for at the tables only, and is not lost after a refusal."""

    async def append(self, batch: Append) -> int:
        await asyncio.sleep(0)
        try:
            return self.tables.append(batch, self.incarnation)
        except FencedError:
            batch.lease.lost.clear()
            raise


class GoingOn(InMemory):
    async def start(self, label: str) -> Store:
        return GoesOnAfterALoss(self.url, label, self.tables)


async def failures(harness: InMemory, subject: str = "") -> set[str]:
    """The subjects of the checks that fail."""
    checks = [check for check in chosen() if subject in ("", check.subject)]
    return {result.check.subject async for result in run(harness, checks) if result.outcome == "failed"}


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise that is broken may show as something that never comes."""
    monkeypatch.setattr("outlast.testing.store_conformance.expect.PATIENCE", 1.0)
    monkeypatch.setattr("outlast.testing.store_conformance.runner.CHECK_SECONDS", 3.0)


async def test_what_is_whole_is_not_blamed() -> None:
    assert await failures(InMemory()) == set()


WAITED_FOR = ("RingsNobody",)
"""Found out when a wait runs out."""


def _rows() -> list[object]:
    return [
        pytest.param(each, marks=pytest.mark.slow if each.__name__ in WAITED_FOR else (), id=each.__name__)
        for each in Broken.__subclasses__()
    ]


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("broken", _rows())
async def test_a_store_that_breaks_a_promise_is_caught(broken: Callable[[], Broken]) -> None:
    tables = broken()
    assert await failures(InMemory(tables=tables), tables.subject) == {tables.subject}


@pytest.mark.usefixtures("little_patience")
async def test_a_lease_that_lives_on_after_its_loss_is_caught() -> None:
    assert await failures(GoingOn(), "fence") == {"fence"}
