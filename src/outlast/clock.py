"""Time as an argument: pure code takes microseconds, only the edge reads a clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import NewType

Micros = NewType("Micros", int)
"""UTC, microseconds since 1970. For people, never for order."""


def now() -> Micros:
    """The wall clock, UTC, in microseconds."""
    return Micros(time.time_ns() // 1000)


def monotonic() -> float:
    """Seconds on a clock that never steps; comparable within one boot."""
    return time.monotonic()


def isoformat(at: Micros | int) -> str:
    """RFC 3339 in UTC with microseconds: `2026-01-31T12:00:00.000000Z`."""
    return datetime.fromtimestamp(at / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def boottime() -> int:
    """Nanoseconds on a clock that counts suspend and never steps, the clock of the spool's times;
    comparable within one boot."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
