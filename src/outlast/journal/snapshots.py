"""An owner writes snapshots, so that the next one reads only what came after.

One is due when what would have to be read beyond the last one is more than that one itself: reading is
bounded by twice a state, and all snapshots together are no larger than the journal.
"""

from __future__ import annotations

import asyncio
import logging

from outlast.errors import FencedError
from outlast.faults import point
from outlast.journal.loading import Loaded
from outlast.state.model import State
from outlast.state.snapshot import snapshot_of
from outlast.store.contract import Lease, Store

LEAST = 256 * 1024
"""Bytes that are read in a few milliseconds: less than that is not worth a snapshot."""

_LOG = logging.getLogger("outlast")


class Snapshots:
    """Of one owner's journal. They are written beside the work, after the append that made one due was
    acknowledged; one that cannot be written is reported once, and costs the next owner time."""

    def __init__(self, store: Store, lease: Lease, loaded: Loaded) -> None:
        self._store = store
        self._lease = lease
        self._tail = loaded.tail
        self._size = loaded.snapshot
        self._writing: asyncio.Task[None] | None = None
        self._reported = False

    def grew(self, state: State, size: int) -> None:
        """The journal has grown to `state`, by records that take `size` bytes to read."""
        self._tail += size
        if self._tail <= LEAST or self._tail <= self._size:
            return
        if self._writing is None or self._writing.done():
            # What is appended while it is written comes after it. After a failure the next one is due as much
            # later: a disk that is full is not asked at each append.
            self._tail = 0
            self._writing = asyncio.create_task(self._write(state), name=f"snapshot {self._lease.name}")

    async def rest(self) -> None:
        """Wait for the one that is being written, before the lease is given back."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self, state: State) -> None:
        try:
            point("journal.snapshot.before")
            snapshot = snapshot_of(state)
            await self._store.put_snapshot(snapshot, self._lease)
            self._size = len(snapshot.body)
            point("journal.snapshot.after")
        except FencedError:
            return  # The journal says so itself, to whoever appends.
        except Exception as error:  # noqa: BLE001 - a cache must not end what it is the cache of
            self._report(error)

    def _report(self, error: Exception) -> None:
        if not self._reported:
            self._reported = True
            _LOG.warning(
                "session %s goes on, but opening it again takes longer: its snapshot was not written (%s)",
                self._lease.name,
                error,
            )
