"""What a runtime does beside its sessions, for the store's sake."""

from __future__ import annotations

import asyncio

from outlast.errors import OutlastError
from outlast.store.contract import DAY, Store
from outlast.turns.report import report

START = 10.0
"""Seconds until the start of a process is over, which nothing here may slow down."""
BETWEEN = 3600.0
"""Seconds between looks at whether a day has passed."""


async def keep_tidy(store: Store) -> None:
    """Have blobs that no record needs collected, once a day for the whole store. Ends with its cancellation
    only: what cannot be done now is done another time."""
    pause = START
    while not store.read_only:
        await asyncio.sleep(pause)
        pause = BETWEEN
        try:
            await store.collect_blobs(every=DAY)
        except OutlastError:
            continue
        except Exception as error:  # noqa: BLE001 - no session depends on it
            report("collecting blobs", error)
