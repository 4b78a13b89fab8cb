"""Following a journal: what is there, a marker, then what comes. One cursor, no gap, no duplicate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from outlast.journal.reader import Place, place_after, read_on
from outlast.records.envelope import Record
from outlast.store.contract import Store


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All that was stored has been given; `seq` is the last record, what follows is new."""

    seq: int


class Follower:
    """One reader's place in one journal. `seq` is the last record that was given."""

    def __init__(self, store: Store, name: str, after: int = 0) -> None:
        self._store = store
        self._name = name
        self._place: Place | None = None
        self.seq: int = after

    async def __aiter__(self) -> AsyncIterator[Record | CaughtUp]:
        told = False
        with self._store.changes(self._name) as bell:
            while True:
                # Cleared before reading: what is stored meanwhile rings again.
                bell.clear()
                async for record in self.new():
                    yield record
                if not told:
                    told = True
                    yield CaughtUp(self.seq)
                await bell.wait()

    async def new(self) -> AsyncIterator[Record]:
        """What is stored now and was not given yet."""
        if self._place is None:
            self._place = await place_after(self._store, self._name, self.seq)
        async for record in read_on(self._store, self._name, self._place):
            self.seq = record.seq
            yield record


def follow(store: Store, name: str, after: int = 0) -> AsyncIterator[Record | CaughtUp]:
    """Records after `after`, one `CaughtUp`, then each record when it has become durable, in whichever
    process. Ends only when the caller stops. Raises as `read_records`: a cursor beyond the end is refused."""
    return aiter(Follower(store, name, after))
