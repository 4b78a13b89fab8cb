"""Going on for as long as it takes: a full disk or a busy database pauses a session, it never costs it. A
limit on the size of files does not go away by itself: it ends the owner, and the next one goes on.

Each append names its place: `at` is the stem of its two fault points, `AT.before_append` and
`AT.after_append`. An append that no test can cut off is one whose crash nobody has looked at.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence

from outlast.errors import StoreAccessError, StoreBusyError, StoreFullError, StoreLimitError
from outlast.faults import point
from outlast.journal import Journal, Proposal
from outlast.keep import AttachRefusedError
from outlast.records.envelope import Draft, Record
from outlast.state.model import State
from outlast.turns.fitting import fitting

RETRY_AFTER = 0.5
"""Seconds between two tries while there is no space or no turn at the database."""
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

_LOG = logging.getLogger("outlast")


def is_for_space(error: OSError | AttachRefusedError) -> bool:
    """Whether it comes from a disk that is full or read-only: worth waiting for."""
    return (error.errno if isinstance(error, OSError) else error.number) in NO_SPACE


class Wait:
    """What holds a session up, told to the program's log: once when it begins, and once when it is over."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._told = False

    def because(self, why: str) -> None:
        """It waits, for this reason; the first one is told."""
        if not self._told:
            self._told = True
            _LOG.warning(
                "session %s waits, nothing is lost, and goes on by itself: %s", self._session, why.rstrip(".")
            )

    def over(self) -> None:
        """It goes on."""
        if self._told:
            self._told = False
            _LOG.warning("session %s goes on", self._session)


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
    wait = Wait(journal.name)
    while True:
        try:
            records = await journal.decide(propose)
        except StoreLimitError:
            raise
        except (StoreFullError, StoreAccessError, StoreBusyError) as error:
            wait.because(error.message)
            await asyncio.sleep(RETRY_AFTER)
            continue
        wait.over()
        point(f"{at}.after_append")
        return records
