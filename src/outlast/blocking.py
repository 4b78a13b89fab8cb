"""The same handles for callers without an event loop.

`with outlast.blocking.runtime(url, agents=…) as runtime:` and `with outlast.blocking.connect(url) as client:`
give handles whose methods wait. One background thread runs the event loop for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from outlast.agents.contract import Agent
from outlast.records.types import Content, OnInterrupt, WhenBusy
from outlast.restore.plan import RestorePlan
from outlast.runtime import handles
from outlast.runtime.client import Client
from outlast.runtime.outcome import Outcome
from outlast.runtime.policy import ask
from outlast.runtime.runtime import OnGate, Runtime
from outlast.runtime.view import Gate, View

T = TypeVar("T")
B = TypeVar("B", bound=Runtime | Client)


class _Portal:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="outlast.blocking", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; KeyboardInterrupt while waiting cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items one by one; closing the iterator ends the work behind it."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self.run(close())

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


class Turn:
    """See `outlast.Turn`."""

    def __init__(self, portal: _Portal, turn: handles.Turn) -> None:
        self._portal = portal
        self._turn = turn
        self.id = turn.id

    def result(self) -> Outcome:
        return self._portal.run(self._turn.result())


class Session:
    """See `outlast.Session`; every method waits."""

    def __init__(self, portal: _Portal, session: handles.Session) -> None:
        self._portal = portal
        self._session = session
        self.id = session.id

    def send(  # noqa: PLR0913 - the public contract
        self,
        content: str | Sequence[Content],
        *,
        agent: str | None = None,
        key: str | None = None,
        on_interrupt: OnInterrupt | None = None,
        when_busy: WhenBusy = "queue",
        title: str | None = None,
        labels: dict[str, str] | None = None,
        actor: str | None = None,
    ) -> Turn:
        sent = self._session.send(
            content,
            agent=agent,
            key=key,
            on_interrupt=on_interrupt,
            when_busy=when_busy,
            title=title,
            labels=labels,
            actor=actor,
        )
        return Turn(self._portal, self._portal.run(sent))

    def follow(self, after: int = 0) -> Iterator[handles.Followed]:
        return self._portal.iterate(self._session.follow(after))

    def view(self) -> View:
        return self._portal.run(self._session.view())

    def gates(self) -> list[Gate]:
        return self._portal.run(self._session.gates())

    def answer(self, gate: str, choice: str, *, by: str | None = None) -> handles.Answer:
        return self._portal.run(self._session.answer(gate, choice, by=by))

    def cancel(self, turn: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.cancel(turn))

    def kill(self, turn: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.kill(turn))

    def close(self) -> handles.Settled:
        return self._portal.run(self._session.close())

    def retry(self, turn: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.retry(turn))

    def skip(self, turn: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.skip(turn))

    def finish(self) -> None:
        self._portal.run(self._session.finish())

    def detach(self) -> None:
        self._portal.run(self._session.detach())


class _Blocking(Generic[B]):
    def __init__(self, inner: B) -> None:
        self._inner = inner
        self._portal: _Portal | None = None

    @property
    def portal(self) -> _Portal:
        if self._portal is None:
            self._portal = _Portal()
        return self._portal

    def session(self, session: str | None = None, *, workspace: str | Path | None = None) -> Session:
        """A handle: no I/O, no ownership."""
        return Session(self.portal, self._inner.session(session, workspace=workspace))

    def _enter(self) -> None:
        try:
            self.portal.run(self._inner.__aenter__())
        except BaseException:
            self._stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.portal.run(self._inner.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        portal, self._portal = self._portal, None
        if portal is not None:
            portal.stop()


class BlockingRuntime(_Blocking[Runtime]):
    """See `outlast.Runtime`; a context manager."""

    def __enter__(self) -> BlockingRuntime:
        self._enter()
        return self

    def plan_restore(self, session: str) -> RestorePlan:
        return self.portal.run(self._inner.plan_restore(session))

    def restore(self, session: str, *, wait: float = 0.0, take_over: bool = False) -> Session:
        live = self.portal.run(self._inner.restore(session, wait=wait, take_over=take_over))
        return Session(self.portal, live)


class BlockingClient(_Blocking[Client]):
    """See `outlast.connect`; a context manager."""

    def __enter__(self) -> BlockingClient:
        self._enter()
        return self


def runtime(
    url: str | None = None, *, agents: Mapping[str, Agent] | None = None, on_gate: OnGate = ask
) -> BlockingRuntime:
    """A Runtime for callers without an event loop."""
    return BlockingRuntime(Runtime(url, agents=agents, on_gate=on_gate))


def connect(url: str | None = None) -> BlockingClient:
    """A client for callers without an event loop."""
    return BlockingClient(Client(url))
