"""When a failed turn is tried again by itself: the policy of a kind of failure, and its waits (pure).

Whether a turn may be tried again at all is another question: see `turns.retrying`.
"""

from __future__ import annotations

from dataclasses import dataclass

PAUSE_MOST = 366 * 86_400.0
"""Seconds from which on a pause that a program tells is none, but a number that means something else."""
TIME_MOST = 2**53
"""A number past this one is no time, in whatever unit, and may be too large to reckon with."""
SPREAD, SPREAD_MOST = 0.1, 10.0
"""By how much more than a provider asked for is waited, so that not all come back in one moment: up to this
share of it, and up to these seconds."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after which waits. Times are in seconds."""

    attempts: int
    """Retries in a row, with no progress of the turn between them."""
    first: float
    """Before the first retry; each later wait is twice as long."""
    longest: float
    """The longest wait that is not the provider's own wish."""
    patience: float
    """The longest pause that a provider may ask for and be waited for; past it a person decides."""

    def bears(self, retry_after: float | None) -> bool:
        """Whether a provider that asked for this pause is waited for."""
        return retry_after is None or retry_after <= self.patience

    def wait(self, retry: int, retry_after: float | None, chance: float) -> float:
        """Before the `retry`-th retry in a row (from 1): what the provider asked for in full, and never less
        than what we would wait by ourselves. `chance` is from 0 to 1, see `chance_of`."""
        own = min(self.longest, self.first * 2.0 ** min(retry - 1, 30)) * (0.5 + chance / 2)
        asked = retry_after or 0.0
        return max(own, asked + chance * min(asked * SPREAD, SPREAD_MOST))


def chance_of(*parts: str | int) -> float:
    """A number from 0 to 1, below 1, that is the same for the same parts: what spreads the waits of many
    sessions, and is computed again by whoever asks."""
    from outlast.ids import derived_uuid  # noqa: PLC0415 - the configuration is read without it

    return int.from_bytes(derived_uuid("retry", *parts)[:6], "big") / 2**48


def sensible(pause: float | None) -> float | None:
    """The seconds that a program or provider told, None where they can be no pause."""
    return pause if pause is not None and 0 <= pause <= PAUSE_MOST else None


RETRY_ATTEMPTS = 8
"""The most retries in a row, where an agent's configuration does not say."""

RATE_LIMITED = RetryPolicy(attempts=8, first=5.0, longest=300.0, patience=3600.0)
OVERLOADED = RetryPolicy(attempts=6, first=5.0, longest=300.0, patience=3600.0)
DISCONNECTED = RetryPolicy(attempts=5, first=2.0, longest=60.0, patience=3600.0)
