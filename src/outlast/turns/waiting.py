"""Waiting until a failed turn may be tried again. The wait is the journal's (`OpenTurn.delay`): whoever owns
the session waits for the rest of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outlast.clock import boottime, now
from outlast.journal import Journal
from outlast.keep.proc import boot_id
from outlast.state.model import Delay
from outlast.turns.retrying import Boot, left_of

LOOK_AGAIN = 30.0
"""Seconds after which it is looked how late it is: a machine that slept has not counted them."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of the open `turn`. `wake` is set when somebody has decided something, `stopped` tells whether
    that is to end the turn, `idle` ends the agent, which has nothing to do, after `idle_park` seconds."""

    journal: Journal
    turn: str
    wake: asyncio.Event
    stopped: Callable[[], bool]
    idle: Callable[[], Awaitable[None]]
    idle_park: float | None

    @property
    def _delay(self) -> Delay | None:
        return self.journal.state.open_turns[self.turn].delay

    async def over(self) -> bool:
        """Wait; False where the turn is to be ended instead. Its clock can be set by nobody and counts while
        the machine sleeps. Raises LeaseLostError, and what `idle` raises."""
        delay = self._delay
        if delay is None:
            return True
        begun, parked = boottime(), self.idle_park is None
        left = left_of(delay, now(), Boot(boot_id(), begun))
        while self._delay is not None and not self.stopped():
            waited = (boottime() - begun) / 1e9
            if waited >= left:
                break
            if not parked and self.idle_park is not None and waited >= self.idle_park:
                parked = True
                await self.idle()
                continue
            until_park = LOOK_AGAIN if parked or self.idle_park is None else self.idle_park - waited
            await self._woken(min(left - waited, until_park, LOOK_AGAIN))
        return not self.stopped()

    async def _woken(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        self.wake.clear()
        self.journal.raise_if_lost()
