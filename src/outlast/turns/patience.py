"""Appending for as long as it takes: a full disk or a busy database pauses a session, it never costs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from outlast.errors import StoreBusyError, StoreFullError
from outlast.journal import Journal, Proposal
from outlast.records.envelope import Draft, Record
from outlast.state.model import State
from outlast.turns.fitting import fitting

RETRY_AFTER = 0.5
"""Seconds between two tries while there is no space or no turn at the database."""


async def append(journal: Journal, drafts: Sequence[Draft]) -> list[Record]:
    """`Journal.append` that waits for space. Raises LeaseLostError."""
    return await decide(journal, lambda _: Proposal(tuple(drafts)))


async def append_output(journal: Journal, drafts: Sequence[Draft]) -> list[Record]:
    """Append what an agent said, as far as it is still news when its turn comes; gives the records that it
    became. Raises LeaseLostError."""

    def news(state: State) -> Proposal | None:
        kept = fitting(state, drafts)
        return Proposal(kept) if kept else None

    return await decide(journal, news)


async def decide(journal: Journal, propose: Callable[[State], Proposal | None]) -> list[Record]:
    """`Journal.decide` that waits for space. Whatever the proposal comes from stays where it is meanwhile:
    the agent's output in its spool, commands in the inbox. Raises LeaseLostError."""
    while True:
        try:
            return await journal.decide(propose)
        except (StoreFullError, StoreBusyError):
            await asyncio.sleep(RETRY_AFTER)
