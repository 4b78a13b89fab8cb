"""Who waits within this process until a session changes; used from one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Waiters:
    """Events by the session that they are rung for; those under None are for every session."""

    def __init__(self) -> None:
        self._events: dict[str | None, set[asyncio.Event]] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._events)

    @contextmanager
    def waiting(self, name: str | None) -> Iterator[asyncio.Event]:
        """An event that is set whenever the session has changed; whoever has it clears it."""
        event = asyncio.Event()
        self._events.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            group = self._events[name]
            group.discard(event)
            if not group:
                del self._events[name]

    def ring(self, names: Iterable[str]) -> None:
        """These sessions have changed."""
        for name in (*names, None):
            for event in self._events.get(name, ()):
                event.set()

    def ring_all(self) -> None:
        """Whoever waits has to look for himself."""
        for group in self._events.values():
            for event in group:
                event.set()
