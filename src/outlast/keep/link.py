"""One connection to a shim: frames, and whose answer is whose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outlast.keep import frames
from outlast.keep.errors import KeepError, ShimBusyError, ShimGoneError
from outlast.keep.fields import Fields, FieldsDamaged

_LAST_WORDS = 2.0
"""Seconds for a shim to read what is still to be sent when the connection is closed."""


@dataclass(frozen=True)
class Lost:
    """Why we are not the owner any more. `reason` is taken (by `epoch` and `holder`), detached or gone."""

    reason: str
    epoch: int = 0
    holder: str = ""


class Link(asyncio.Protocol):
    """Frames over the connection, and whose answer is whose."""

    def __init__(self, on_tip: Callable[[int], None], on_lost: Callable[[Lost], None]) -> None:
        self._on_tip = on_tip
        self._on_lost = on_lost
        self._decoder = frames.Decoder()
        self._transport: asyncio.Transport | None = None
        self._next = 1
        self._asked: dict[int, asyncio.Future[frames.Frame]] = {}
        self._written: dict[int, list[asyncio.Future[None]]] = {}
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._sending = asyncio.Lock()
        self._turned_away = False

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except (frames.FrameDamaged, FieldsDamaged):
            if self._transport is not None:
                self._transport.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        error = self._gone()
        waiting: list[asyncio.Future[frames.Frame] | asyncio.Future[None]] = [*self._asked.values()]
        for futures in self._written.values():
            waiting += futures
        self._asked, self._written = {}, {}
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                # A caller that no longer waits is no reason for a warning.
                future.exception()
        self._on_lost(Lost("gone"))
        self._closed.set()

    def _gone(self) -> KeepError:
        if self._turned_away:
            return ShimBusyError("the shim made room for another connection", hint="try again")
        return ShimGoneError("the connection to the shim has ended")

    def _take(self, frame: frames.Frame) -> None:
        if frame.type == frames.TIP:
            self._on_tip(frame.seq)
        elif frame.type == frames.WRITTEN:
            for future in self._written.pop(frame.seq, []):
                if not future.done():
                    future.set_result(None)
        elif frame.type == frames.LOST:
            said = Fields(frame.payload)
            self._on_lost(Lost("taken", said.integer("epoch"), said.text("holder")))
        elif frame.type == frames.REFUSED and not frame.offset:
            # No request's answer: this connection had to make room.
            self._turned_away = True
        else:
            answered = self._asked.pop(frame.offset, None)
            if answered is not None and not answered.done():
                answered.set_result(frame)

    # --- the client's side

    def expect_written(self, seq: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._written.setdefault(seq, []).append(future)
        return future

    def forget_written(self, seq: int, future: asyncio.Future[None]) -> None:
        futures = self._written.get(seq, [])
        if future in futures:
            futures.remove(future)
        future.cancel()

    async def send(self, kind: int, payload: bytes, *, seq: int = 0) -> asyncio.Future[frames.Frame]:
        """Send a message; the future is its answer. Raises ShimGoneError.

        A cancellation in the middle ends the connection: the next message must not continue half of this.
        """
        async with self._sending:
            if self._transport is None:
                raise self._gone()
            number, self._next = self._next, self._next + 1
            future: asyncio.Future[frames.Frame] = asyncio.get_running_loop().create_future()
            self._asked[number] = future
            transport = self._transport
            try:
                for part, flags in _parts(payload):
                    transport.write(frames.encode(kind, part, flags=flags, seq=seq, offset=number))
                    await self._writable.wait()
                    if self._closed.is_set():
                        break
            except asyncio.CancelledError:
                transport.abort()
                raise
            return future

    def tell(self, kind: int, payload: bytes) -> bool:
        """Send a short message that nobody answers; False if it cannot be sent now."""
        if self._transport is None or self._sending.locked():
            return False
        number, self._next = self._next, self._next + 1
        self._transport.write(frames.encode(kind, payload, flags=frames.FIRST, offset=number))
        return True

    async def request(self, kind: int, payload: bytes, *, seq: int = 0) -> frames.Frame:
        """Send a message and wait for its answer. Raises ShimGoneError."""
        return await (await self.send(kind, payload, seq=seq))

    async def close(self) -> None:
        """End the connection; what the shim does not read within a moment is not sent any more."""
        transport = self._transport
        if transport is None:
            return
        transport.close()
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._closed.wait()
        except TimeoutError:
            transport.abort()
            await self._closed.wait()


def _parts(payload: bytes) -> Iterator[tuple[bytes, int]]:
    """(part, flags): MORE on all but the last, FIRST on the first."""
    size = frames.MAX_PAYLOAD
    count = max(1, -(-len(payload) // size))
    for index in range(count):
        flags = (frames.MORE if index < count - 1 else 0) | (frames.FIRST if index == 0 else 0)
        yield payload[index * size : (index + 1) * size], flags
