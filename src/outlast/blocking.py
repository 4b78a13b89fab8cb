"""The same handles for callers without an event loop.

`with outlast.blocking.runtime(url, agents=…) as runtime:` and `with outlast.blocking.connect(url) as client:`
give handles whose methods wait. One background thread runs the event loop for all of them; it lives as long
as the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from outlast.agents.contract import Agent
from outlast.errors import UsageError
from outlast.portal import Portal
from outlast.records.agent_state import LostChoice
from outlast.records.types import Content, OnInterrupt, WhenBusy
from outlast.restore.plan import RestorePlan
from outlast.runtime import handles
from outlast.runtime.client import Client
from outlast.runtime.outcome import Outcome
from outlast.runtime.policy import OnGate, ask
from outlast.runtime.runtime import Runtime
from outlast.runtime.view import Gate, View
from outlast.turns.effects import TurnEffect

B = TypeVar("B", bound=Runtime | Client)


class Turn:
    """See `outlast.Turn`."""

    def __init__(self, session: Session, portal: Portal, turn: handles.Turn) -> None:
        self.session = session
        self.id = turn.id
        self._portal = portal
        self._turn = turn

    def accepted(self) -> bool:
        """See `outlast.Turn.accepted`."""
        return self._portal.run(self._turn.accepted())

    def result(self) -> Outcome:
        return self._portal.run(self._turn.result())


class Session:
    """See `outlast.Session`; every method waits. KeyboardInterrupt while it does ends the waiting, not the
    work: what was sent stays sent."""

    def __init__(self, portal: Portal, session: handles.Session) -> None:
        self._portal = portal
        self._session = session
        self.id = session.id

    # --- inputs --------------------------------------------------------------------------------

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
        return Turn(self, self._portal, self._portal.run(sent))

    # --- looking -------------------------------------------------------------------------------

    def follow(self, after: int = 0) -> Iterator[handles.Followed]:
        return self._portal.iterate(self._session.follow(after))

    def view(self) -> View:
        return self._portal.run(self._session.view())

    def gates(self) -> list[Gate]:
        return self._portal.run(self._session.gates())

    def outcome(self, turn: str, *, after: int = 0) -> Outcome:
        return self._portal.run(self._session.outcome(turn, after=after))

    # --- acting --------------------------------------------------------------------------------

    def answer(self, gate: str, choice: str, *, by: str | None = None) -> handles.Answer:
        return self._portal.run(self._session.answer(gate, choice, by=by))

    def cancel(self, turn: str | None = None, *, actor: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.cancel(turn, actor=actor))

    def kill(self, turn: str | None = None, *, actor: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.kill(turn, actor=actor))

    def close(self, *, actor: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.close(actor=actor))

    def retry(
        self, turn: str | None = None, *, session: LostChoice | None = None, actor: str | None = None
    ) -> handles.Settled:
        return self._portal.run(self._session.retry(turn, session=session, actor=actor))

    def skip(self, turn: str | None = None, *, actor: str | None = None) -> handles.Settled:
        return self._portal.run(self._session.skip(turn, actor=actor))

    def settle(
        self,
        effect: str,
        *,
        done: bool,
        result: object = None,
        reason: str = "",
        turn: str | None = None,
        actor: str | None = None,
    ) -> handles.Settled:
        """See `outlast.Session.settle`."""
        settled = self._session.settle(
            effect, done=done, result=result, reason=reason, turn=turn, actor=actor
        )
        return self._portal.run(settled)

    # --- owning --------------------------------------------------------------------------------

    def quiet(self) -> None:
        self._portal.run(self._session.quiet())

    def drain(self) -> Iterator[Outcome]:
        return self._portal.iterate(self._session.drain())

    def finish(self) -> None:
        self._portal.run(self._session.finish())

    def detach(self) -> None:
        self._portal.run(self._session.detach())


class _Blocking(Generic[B]):
    _MADE_BY: str

    def __init__(self, inner: B) -> None:
        self._inner = inner
        self._thread: Portal | None = None

    @property
    def _portal(self) -> Portal:
        """The thread of the `with` block. Raises UsageError outside of it: nobody would end the thread."""
        if self._thread is None:
            raise UsageError("it is not open", hint=f"use it as `with outlast.blocking.{self._MADE_BY}:`")
        return self._thread

    def session(self, session: str | None = None, *, workspace: str | Path | None = None) -> Session:
        """A handle: no I/O, no ownership."""
        return Session(self._portal, self._inner.session(session, workspace=workspace))

    def _enter(self) -> None:
        if self._thread is not None:
            raise UsageError("it is open already", hint="make another one")
        portal = Portal()
        try:
            portal.run(self._inner.__aenter__())
        except BaseException:
            portal.stop()
            raise
        self._thread = portal

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        portal, self._thread = self._portal, None
        portal.leave(self._inner.__aexit__(kind, error, trace))


class BlockingRuntime(_Blocking[Runtime]):
    """See `outlast.Runtime`; a context manager."""

    _MADE_BY = "runtime(…)"

    def __enter__(self) -> BlockingRuntime:
        self._enter()
        return self

    def plan_restore(self, session: str) -> RestorePlan:
        return self._portal.run(self._inner.plan_restore(session))

    def restore(self, session: str, *, wait: float = 0.0, take_over: bool = False) -> Session:
        portal = self._portal
        return Session(portal, portal.run(self._inner.restore(session, wait=wait, take_over=take_over)))

    def own(self, session: str) -> Session | None:
        portal = self._portal
        live = portal.run(self._inner.own(session))
        return None if live is None else Session(portal, live)

    def adopt(
        self,
        agent: str,
        provider_session: str,
        *,
        session: str | None = None,
        workspace: str | None = None,
        actor: str | None = None,
    ) -> Session:
        """See `outlast.Runtime.adopt`."""
        adopted = self._inner.adopt(
            agent, provider_session, session=session, workspace=workspace, actor=actor
        )
        return Session(self._portal, self._portal.run(adopted))

    def visit(self, session: str, *, take_over: bool = False, ends_agent: bool = False) -> Session | None:
        portal = self._portal
        live = portal.run(self._inner.visit(session, take_over=take_over, ends_agent=ends_agent))
        return None if live is None else Session(portal, live)


class BlockingClient(_Blocking[Client]):
    """See `outlast.connect`; a context manager."""

    _MADE_BY = "connect(…)"

    def __enter__(self) -> BlockingClient:
        self._enter()
        return self


def runtime(
    url: str | None = None,
    *,
    agents: Mapping[str, Agent] | None = None,
    on_gate: OnGate = ask,
    effects: Sequence[TurnEffect] = (),
    default_agent: str | None = None,
    label: str | None = None,
) -> BlockingRuntime:
    """A Runtime for callers without an event loop."""
    return BlockingRuntime(
        Runtime(
            url, agents=agents, on_gate=on_gate, effects=effects, default_agent=default_agent, label=label
        )
    )


def connect(url: str | None = None, *, label: str | None = None) -> BlockingClient:
    """A client for callers without an event loop."""
    return BlockingClient(Client(url, label=label))
