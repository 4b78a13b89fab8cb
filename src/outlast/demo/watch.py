"""The session's journal as it grows, followed from outside like any other client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from outlast.demo.errors import DemoError
from outlast.demo.stage import PATIENCE
from outlast.records.envelope import Record
from outlast.records.types import Body
from outlast.runtime.handles import Session

B = TypeVar("B", bound=Body)


class Watch:
    """Used as `async with`. `records` is all that was stored so far."""

    def __init__(self, session: Session) -> None:
        self.records: list[Record] = []
        self._session = session
        self._grown = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watch:
        self._task = asyncio.create_task(self._follow(), name="watch the journal")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        try:
            async for item in self._session.follow():
                if isinstance(item, Record):
                    self.records.append(item)
                    self._grown.set()
        finally:
            self._grown.set()

    @property
    def seq(self) -> int:
        """Of the last record seen."""
        return self.records[-1].seq if self.records else 0

    async def seen(
        self,
        kind: type[B],
        what: str,
        matches: Callable[[B, Record], bool] = lambda *_: True,
        *,
        after: int = 0,
    ) -> B:
        """The first record of this kind past `after` that matches, waiting for it; `what` names it when
        it does not come. Raises DemoError after PATIENCE, and what ended the following."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    self._grown.clear()
                    for record in self.records:
                        body = record.body
                        if record.seq > after and isinstance(body, kind) and matches(body, record):
                            return body
                    if self._task is not None and self._task.done():
                        self._task.result()
                    await self._grown.wait()
        except TimeoutError as error:
            raise DemoError(f"waited {PATIENCE:.0f} seconds for {what}, in vain") from error

    async def of_turn(self, kind: type[B], turn: str) -> B:
        """The same for a record of one turn."""
        return await self.seen(kind, f"{kind.__name__} of {turn}", lambda _, record: record.turn == turn)

    async def whole(self, seq: int) -> None:
        """Wait until everything up to `seq` was seen."""
        await self.seen(Body, f"record {seq}", lambda _, record: record.seq >= seq)
