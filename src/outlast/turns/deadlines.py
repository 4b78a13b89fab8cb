"""The clocks of one conversation (pure: time is an argument, in seconds of a monotonic clock).

While a person is asked, neither the idle nor the total time runs; while a tool call is open, the idle time
does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlast.agents.contract import Failure

END_GRACE = 5.0
"""Seconds for a program that has said all it will say to exit by itself."""
CANCEL_GRACE = 10.0
"""Seconds for an agent to end a turn that it was asked to cancel."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`idle` and `total` in seconds, None for no limit. `can_be_asked`: the agent has a way to be asked to
    stop, beside being ended."""

    idle: float | None
    total: float | None
    can_be_asked: bool


@dataclass(slots=True)
class Deadlines:
    """What has run out, and when the next thing may."""

    limits: Limits
    begun: float
    expired: Literal["timeout_idle", "timeout_total"] | None = None
    ended: bool = False
    """The agent has been told to end: no deadline matters any more."""
    _asked_for: float = 0.0
    """Seconds for which a person was asked."""
    _asking_since: float | None = None
    _ending_since: float | None = None
    _stop_since: float | None = None
    _stop: str | None = None
    _idle_left: float | None = None

    def look(self, now: float, *, stop: str | None, ending: bool, idle: float | None, asks: bool) -> None:
        """Take in what is: a person's wish to stop (its reason), an agent that has said all, how long it has
        been idle (None: that clock stands still) and whether a person is being asked."""
        self._count_asking(now, asks)
        self._stop = stop
        if stop is not None and self._stop_since is None:
            self._stop_since = now
        if ending and self._ending_since is None:
            self._ending_since = now
        self._idle_left = None if idle is None or self.limits.idle is None else self.limits.idle - idle
        if self.ended or self.expired is not None:
            return
        if self._idle_left is not None and self._idle_left <= 0:
            self.expired = "timeout_idle"
        elif not asks and self.limits.total is not None and self._spent(now) > self.limits.total:
            self.expired = "timeout_total"

    def _count_asking(self, now: float, asks: bool) -> None:
        if self._asking_since is not None:
            self._asked_for += now - self._asking_since
        self._asking_since = now if asks else None

    def _spent(self, now: float) -> float:
        return now - self.begun - self._asked_for

    def must_end(self, now: float) -> bool:
        """Whether the agent's process has to be ended now."""
        if self.ended:
            return False
        if self.expired is not None or self._stop == "killed":
            return True
        if self._stop_since is not None:
            return now - self._stop_since >= (CANCEL_GRACE if self.limits.can_be_asked else 0.0)
        return self._ending_since is not None and now - self._ending_since >= END_GRACE

    @property
    def gently(self) -> bool:
        """Whether it gets a SIGTERM and a moment first."""
        return self._stop is not None and self._stop != "killed" and self.expired is None

    def failure(self) -> Failure | None:
        """What the turn failed of, where one of its limits has run out."""
        if self.expired is None:
            return None
        idle = self.expired == "timeout_idle"
        limit = self.limits.idle if idle else self.limits.total
        said = "nothing came from the agent for" if idle else "the turn took longer than"
        return Failure(self.expired, f"{said} {limit:g} s")

    def due(self, now: float) -> float | None:
        """Seconds until a deadline may have come; None: there is none."""
        if self.ended:
            return None
        due: list[float] = []
        if self._stop_since is not None:
            due.append(self._stop_since + CANCEL_GRACE - now)
        if self._ending_since is not None:
            due.append(self._ending_since + END_GRACE - now)
        if self._idle_left is not None:
            due.append(self._idle_left)
        if self.limits.total is not None and self._asking_since is None:
            due.append(self.limits.total - self._spent(now))
        return min(due) if due else None
