"""Appending for as long as it takes: a full disk or a busy database pauses a session, it never costs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from outlast.errors import StoreBusyError, StoreFullError
from outlast.journal import Journal, Proposal
from outlast.records.envelope import Draft, Record
from outlast.state.model import State

RETRY_AFTER = 0.5
"""Seconds between two tries while there is no space or no turn at the database."""


async def append(journal: Journal, drafts: Sequence[Draft]) -> list[Record]:
    """`Journal.append` that waits for space. Raises LeaseLostError."""
    return await decide(journal, lambda _: Proposal(tuple(drafts)))


async def decide(journal: Journal, propose: Callable[[State], Proposal | None]) -> list[Record]:
    """`Journal.decide` that waits for space. Whatever the proposal comes from stays where it is meanwhile:
    the agent's output in its spool, commands in the inbox. Raises LeaseLostError."""
    while True:
        try:
            return await journal.decide(propose)
        except (StoreFullError, StoreBusyError):
            await asyncio.sleep(RETRY_AFTER)
