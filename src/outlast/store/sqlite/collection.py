"""Deleting blobs that no record refers to.

The marks are the references in the database, written with the record. A blob waits for its record for a
moment only, so one that nobody refers to and nobody has put for a day is nobody's. Both are looked at again
right before it is deleted: under the writer's lock, where no reference can be added, and under the blobs' own
lock, where nobody can put it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from outlast.store.contract import Collected, Lease
from outlast.store.sqlite.blobs import Blobs, Untouched
from outlast.store.sqlite.reading import SELECT_REFERENCE, Reader
from outlast.store.sqlite.transaction import Transaction

COLLECTION = "\x01blobs"
"""What the lease of a collection is called; no session's id has a control character."""

_AT_ONCE = 16
"""Deleted in one go, under the writer's lock: everybody else's appends wait for it."""


def unneeded(reader: Reader, files: Sequence[Untouched]) -> list[Untouched]:
    """Those that no record refers to."""
    return [file for file in files if file.is_draft or not reader.is_referred_to(file.name)]


def in_batches(blobs: Blobs, before: int) -> Iterator[tuple[Untouched, ...]]:
    """What was not put since the time `before`, as many at once as may be looked at in one go. Blocking."""
    for files in blobs.untouched(before):
        for start in range(0, len(files), _AT_ONCE):
            yield tuple(files[start : start + _AT_ONCE])


@dataclass(frozen=True, slots=True)
class Collect:
    """Result: Collected."""

    point: ClassVar[str] = "collect"
    lease: Lease
    blobs: Blobs
    files: tuple[Untouched, ...]
    before: int

    def run(self, txn: Transaction) -> Collected:
        txn.flush()
        txn.require(txn.session(COLLECTION), self.lease)
        count = size = 0
        for file in self.files:
            if not file.is_draft and txn.one(SELECT_REFERENCE, (file.name,)) is not None:
                continue
            if self.blobs.delete(file, self.before):
                count, size = count + 1, size + file.size
        return Collected(count, size)
