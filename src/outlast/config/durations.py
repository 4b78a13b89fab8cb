"""Durations as people write them: `90s`, `10m`, `1h30m`, `none`."""

from __future__ import annotations

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST = 100 * 366 * 86400.0
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float | None:
    """Seconds; None for `none`. Raises ValueError that says how to write one.

    A bare number is refused: nobody can see whether `10` means seconds or minutes. So is no time at all, and
    more of it than a hundred years: both would be said differently if they were meant.
    """
    bare = text.strip().lower()
    if bare == "none":
        return None
    parts = _PART.findall(bare)
    if not parts or "".join(number + unit for number, unit in parts) != bare:
        raise ValueError(f"{text!r} is not a duration: write it like 90s, 10m, 1h30m or none")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= LONGEST:
        raise ValueError(f"{text[:40]!r} is not a time between 1ms and 100 years; `none` means no limit")
    return seconds
