"""Appending for as long as it takes: a full disk or a busy database pauses a session, it never costs it.

Each call names its place: `at` is the stem of its two fault points, `AT.before_append` and `AT.after_append`.
An append that no test can cut off is one whose crash nobody has looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from outlast.errors import StoreBusyError, StoreFullError
from outlast.faults import point
from outlast.journal import Journal, Proposal
from outlast.records.envelope import Draft, Record
from outlast.state.model import State
from outlast.turns.fitting import fitting

RETRY_AFTER = 0.5
"""Seconds between two tries while there is no space or no turn at the database."""


async def append(journal: Journal, drafts: Sequence[Draft], *, at: str) -> list[Record]:
    """`Journal.append` that waits for space. Raises LeaseLostError."""
    return await decide(journal, lambda _: Proposal(tuple(drafts)), at=at)


async def append_output(journal: Journal, drafts: Sequence[Draft], *, at: str) -> list[Record]:
    """Append what an agent said, as far as it is still news when its turn comes; gives the records that it
    became. Raises LeaseLostError."""

    def news(state: State) -> Proposal | None:
        kept = fitting(state, drafts)
        return Proposal(kept) if kept else None

    return await decide(journal, news, at=at)


async def decide(journal: Journal, propose: Callable[[State], Proposal | None], *, at: str) -> list[Record]:
    """`Journal.decide` that waits for space. Whatever the proposal comes from stays where it is meanwhile:
    the agent's output in its spool, commands in the inbox. Raises LeaseLostError."""
    point(f"{at}.before_append")
    while True:
        try:
            records = await journal.decide(propose)
        except (StoreFullError, StoreBusyError):
            await asyncio.sleep(RETRY_AFTER)
            continue
        point(f"{at}.after_append")
        return records
