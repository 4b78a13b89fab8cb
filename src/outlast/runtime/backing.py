"""What stands behind a handle: a Runtime, which owns sessions, or a Client, which only speaks through the
store."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from outlast.store.contract import Store

if TYPE_CHECKING:
    from outlast.runtime.actor import SessionActor


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that the agent is writing; live only, never stored."""

    turn: str | None
    text: str
    notice: bool = False
    """A line about the agent's own state, such as that it waits for the network; no part of its text."""


class Backing(Protocol):
    """Asked by handles."""

    @property
    def store(self) -> Store:
        """The open store. Raises UsageError outside `async with`, ForkedError in a forked child."""
        ...

    def serve(self, session: str) -> None:
        """Own the session in the background, if this process can and nobody else does."""
        ...

    def serving(self, session: str) -> bool:
        """Whether this process owns it, or is about to know whether it does."""
        ...

    def actor(self, session: str) -> SessionActor | None:
        """The session's owner in this process, if it has one."""
        ...

    def serving_failed(self, session: str) -> BaseException | None:
        """Why the last attempt to own it here failed, other than by being owned elsewhere; told once."""
        ...

    def opening(self, agent: str | None, workspace: str | None) -> tuple[str, str]:
        """Agent name and workspace (absolute) of a new session. Raises AgentNotFoundError, UsageError."""
        ...

    def listen(self, session: str) -> AbstractContextManager[asyncio.Queue[Delta]] | None:
        """Live text of a session that is or may come to be owned here."""
        ...
