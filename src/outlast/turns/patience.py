"""Appending for as long as it takes: a full disk or a busy database pauses a session, it never costs it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from outlast.errors import StoreBusyError, StoreFullError
from outlast.journal import Journal
from outlast.records.envelope import Draft, Record

RETRY_AFTER = 0.5
"""Seconds between two tries while there is no space or no turn at the database."""


async def append(
    journal: Journal, drafts: Sequence[Draft], settle: Sequence[tuple[str, int]] = ()
) -> list[Record]:
    """`Journal.append` that waits for space. Whatever the drafts come from stays where it is meanwhile: the
    agent's output in its spool, commands in the inbox. Raises LeaseLostError."""
    while True:
        try:
            return await journal.append(drafts, settle=settle)
        except (StoreFullError, StoreBusyError):
            await asyncio.sleep(RETRY_AFTER)
