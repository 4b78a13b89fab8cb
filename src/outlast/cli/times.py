"""Times for people."""

from __future__ import annotations

from datetime import datetime

from outlast.clock import now

_STEPS = ((60, "s"), (3600, "m"), (86400, "h"), (float("inf"), "d"))
_DIVISORS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def age(at: int) -> str:
    """How long ago, in one unit; times in the future (a clock that was set back) count as now."""
    return duration(max(0.0, (now() - at) / 1_000_000))


def duration(seconds: float) -> str:
    """A length of time in one unit: `42s`, `7m`, `3h`, `12d`."""
    unit = next(unit for limit, unit in _STEPS if seconds < limit)
    return f"{int(seconds // _DIVISORS[unit])}{unit}"


def clock_time(at: int) -> str:
    """Hours and minutes here."""
    return datetime.fromtimestamp(at / 1_000_000).astimezone().strftime("%H:%M")


def exact_time(at: int) -> str:
    """Hours, minutes and seconds here."""
    return datetime.fromtimestamp(at / 1_000_000).astimezone().strftime("%H:%M:%S")


def local_time(at: int) -> str:
    """Date and time here."""
    return datetime.fromtimestamp(at / 1_000_000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
