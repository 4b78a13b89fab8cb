"""Time as an argument: pure code takes microseconds, only the edge reads a clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
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
    comparable within one boot, in every time namespace."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) - time_offset()


@cache
def time_offset() -> int:
    """Nanoseconds by which this process's time namespace has its boot earlier than the machine's. It shows
    in CLOCK_BOOTTIME and in the start times that /proc tells."""
    try:
        table = Path("/proc/self/timens_offsets").read_text(encoding="ascii")
    except OSError:
        return 0
    found = next((line.split() for line in table.splitlines() if line.startswith("boottime")), ["", "0", "0"])
    return int(found[1]) * 1_000_000_000 + int(found[2])
