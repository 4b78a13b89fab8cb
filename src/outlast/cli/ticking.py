"""Telling how far a long piece of work is: once it takes over a second, and only where a person looks on."""

from __future__ import annotations

import time
from types import TracebackType

from outlast.cli.output import Screen, visible

FIRST = 1.0
"""Seconds before anything is said."""
EVERY = 0.2


class Ticking:
    """One line on a terminal's standard error, written over and at the end taken away."""

    def __init__(self, screen: Screen, what: str, total: int) -> None:
        self._screen = screen
        self._what = what
        self._total = total
        self._next = time.monotonic() + FIRST
        self._shown = False

    def __enter__(self) -> Ticking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._screen.err.write("\r\x1b[K")

    def at(self, done: int) -> None:
        """So much of the total is done."""
        now = time.monotonic()
        if now < self._next or self._screen.as_json or not self._screen.err.is_terminal:
            return
        self._next = now + EVERY
        self._shown = True
        self._screen.err.write(f"\r\x1b[K{visible(self._what)}: {done:,} of {max(done, self._total):,}")

    def part(self, done: int, total: int) -> None:
        """So much of this part is done."""
        self._total = total
        self.at(done)
