"""Which turns a provider's session has lost again, by the journal and by its own transcript."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outlast.agents import Command
from outlast.agents.transcript import SentPrompt, Transcript
from outlast.journal import Journal
from outlast.keep import Claim
from outlast.records.envelope import Draft
from outlast.records.types import (
    AgentEventRecorded,
    AgentSessionChanged,
    Body,
    CallObserved,
    Content,
    Fence,
    InputAccepted,
    InputReserved,
    TurnAttemptStarted,
    TurnInterrupted,
    TurnStarted,
)
from outlast.store.url import open_store
from outlast.testing.journals import JournalBuilder
from outlast.turns.hosting import Hosting
from outlast.turns.lacking import lacking_since

SAID = AgentEventRecorded(kind="message", text="at it")
CALLED = CallObserved(call="c", name="sh", status="started")
DID = CallObserved(call="c", name="sh", status="completed")


@dataclass(frozen=True)
class Holding(Command):
    """Knows of each prompt whether its transcript holds it; None where it can't tell."""

    held: dict[str, bool | None] = field(default_factory=dict)

    def holds_prompt(
        self, prompt: SentPrompt, provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> bool | None:
        return self.held[prompt.request_id]


class StoringFirst(Holding):
    """Stores a prompt before it asks the model."""

    def read_transcript(self, provider_session: str, environ: Mapping[str, str]) -> Transcript | None:
        return None


@dataclass
class Session:
    journal: Journal
    hosting: Hosting

    async def cut(self, turn: str, *shown: Body) -> int:
        """A turn that was given, showed this and was cut off; the record before it."""
        before = self.journal.state.seq + 1
        index = self.journal.state.loops["main"].turns + 1
        attempt = TurnAttemptStarted(
            attempt=1, folder="f", generation="gen-000001", machine="m", boot_id="b", processes=[]
        )
        given = InputReserved(generation="gen-000001", seq=1, key=turn, digest="d")
        accepted = InputAccepted(request_id=turn, content=[Content(text="go on")])
        await self.journal.append([Draft(accepted, loop="main", cause=turn)])
        started = Draft(TurnStarted(index=index, request_id=turn), loop="main", turn=turn, cause=turn)
        ends = TurnInterrupted(index=index, reason="crash", evidence="cut")
        rest = [Draft(body, loop="main", turn=turn) for body in (attempt, given, *shown, ends)]
        await self.journal.append([started, *rest])
        return before

    async def lacks(self, agent: Holding, after: int = 0) -> tuple[int, str] | None:
        loop = self.journal.state.loops["main"]
        return await lacking_since(self.journal, agent, loop, self.hosting, after)

    async def bind(self, session: str) -> None:
        bound = AgentSessionChanged(
            provider="command", provider_session=session, state="confirmed", source="observed"
        )
        await self.journal.append([Draft(bound, loop="main")])


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    store = await open_store("memory://")
    lease = await store.acquire("session")
    journal = await Journal.open(store, lease)
    drafts = JournalBuilder().drafts[1:]
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="me")), *drafts])
    claim = Claim(store.store_id, "lineage", lease.epoch, "me")
    made = Session(journal, Hosting("session", str(tmp_path), tmp_path, claim, "m", b"", {}))
    await made.bind("thr")
    yield made
    await store.close()


async def test_the_turns_after_the_last_one_that_is_held_are_lacking(session: Session) -> None:
    await session.cut("a", SAID)
    before = await session.cut("b", SAID)
    await session.cut("c", CALLED)
    held = StoringFirst(["true"], held={"a": True, "b": False, "c": False})
    assert await session.lacks(held) == (before, "b")
    assert await session.lacks(StoringFirst(["true"], held={"c": True})) is None
    assert await session.lacks(held, after=session.journal.state.seq) is None


async def test_nothing_is_lacking_that_cannot_be_told(session: Session) -> None:
    await session.cut("a", SAID)
    assert await session.lacks(StoringFirst(["true"], held={"a": None})) is None


async def test_what_an_agent_never_showed_is_not_taken_for_lost(session: Session) -> None:
    """It may never have had it, and one that stores late may not have stored it."""
    await session.cut("a")
    assert await session.lacks(StoringFirst(["true"], held={"a": False})) is None
    await session.cut("b", CALLED)
    late = Holding(["true"], held={"a": False, "b": False, "c": False})
    assert await session.lacks(late) is None
    await session.cut("c", CALLED, DID)
    assert await session.lacks(late) is None


async def test_what_another_session_was_given_is_none_of_this(session: Session) -> None:
    await session.cut("a", SAID)
    await session.bind("another")
    assert await session.lacks(StoringFirst(["true"], held={"a": False})) is None
