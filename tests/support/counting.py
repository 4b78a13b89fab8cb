"""How much of a store is read."""

from __future__ import annotations

from typing import Any

from outlast.store.contract import Store


class Counting:
    """A real store that counts the rows it gave."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, name: str, after: int, limit: int = 1000) -> list[Any]:
        rows = await self._store.read(name, after, limit)
        self.rows += len(rows)
        return rows
