"""What the settings of every kind of agent may be."""

from __future__ import annotations

import math
from collections.abc import Mapping

from outlast.errors import ConfigError

MOST_RETRIES = 20
"""As many attempts as a turn may have at all."""
LONGEST = 100 * 365 * 86_400.0
"""Seconds of the longest time that can be set: a hundred years."""

_TIMES = ("idle_timeout", "total_timeout", "idle_park", "orphan_grace")
_COUNTS = ("retry_attempts",)
_WORDS: Mapping[str, tuple[str, ...]] = {
    "on_interrupt": ("skip", "continue", "retry", "hold", "ask"),
    "after_failure": ("continue", "hold", "withdraw"),
    "on_lost": ("ask", "refuse", "fresh", "reseed"),
}


def check_settings(agent: object, words: Mapping[str, tuple[str, ...]] | None = None) -> None:
    """Check the times and the words that all agents have, and `words`: the possible values of more settings.
    Raises ConfigError."""
    for name, known in {**_WORDS, **(words or {})}.items():
        word = getattr(agent, name)
        if word not in known:
            raise ConfigError(f"{name} is {word!r}", hint=f"it is one of {', '.join(known)}")
    for name in _TIMES:
        seconds = getattr(agent, name)
        if seconds is not None and not _is_time(seconds):
            hint = "give seconds above zero and at most a hundred years, or none for no limit"
            raise ConfigError(f"{name} is {seconds!r}", hint=hint)
    for name in _COUNTS:
        count = getattr(agent, name)
        if not _is_count(count):
            raise ConfigError(f"{name} is {count!r}", hint=f"it is a whole number from 0 to {MOST_RETRIES}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RETRIES


def _is_time(seconds: object) -> bool:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    return math.isfinite(seconds) and 0 < seconds <= LONGEST
