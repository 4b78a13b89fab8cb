"""Which turns a provider's session has lost again, by the journal and by its own transcript."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from tests.support.counting import Counting

from outlast.agents import Command
from outlast.agents.contract import Capabilities
from outlast.agents.transcript import Transcript
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
from outlast.store.contract import Store
from outlast.store.url import open_store
from outlast.testing.journals import JournalBuilder
from outlast.turns import lacking
from outlast.turns.hosting import Hosting
from outlast.turns.lacking import lacking_since

SAID = AgentEventRecorded(kind="message", text="at it")
CALLED = CallObserved(call="c", name="sh", status="started")
DID = CallObserved(call="c", name="sh", status="completed")


@dataclass(frozen=True)
class Holding(Command):
    """Knows of each prompt whether its transcript holds it; None where it can't tell."""

    held: dict[str, bool | None] = field(default_factory=dict)
    readings: list[str] = field(default_factory=list)

    def read_transcript(self, provider_session: str, environ: Mapping[str, str]) -> Transcript | None:
        self.readings.append(provider_session)
        holds = frozenset(key for key, held in self.held.items() if held)
        return Transcript(Path("x"), holds, loose=None in self.held.values())


class StoringFirst(Holding):
    """Stores a prompt before it asks the model."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(resume=True, landing_precedes_model_call=True)


@dataclass
class Session:
    store: Counting
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
    store = Counting(await open_store("memory://"))
    lease = await store.acquire("session")
    journal = await Journal.open(cast("Store", store), lease)
    drafts = JournalBuilder().drafts[1:]
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="me")), *drafts])
    claim = Claim(store.store_id, "lineage", lease.epoch, "me")
    made = Session(store, journal, Hosting("session", str(tmp_path), tmp_path, claim, "m", b"", {}))
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


async def test_a_transcript_is_read_once_however_many_turns_it_lacks(session: Session) -> None:
    before = await session.cut("0", SAID)
    for number in range(1, 9):
        await session.cut(str(number), SAID)
    held = StoringFirst(["true"])
    assert await session.lacks(held) == (before, "0")
    assert held.readings == ["thr"]


@pytest.mark.parametrize("held", [1, 20, 39, None])
async def test_only_the_end_of_a_journal_is_read_and_before_it_as_much_as_is_needed(
    session: Session, monkeypatch: pytest.MonkeyPatch, held: int | None
) -> None:
    """Whatever of it is read first, what is found is the same."""
    befores = [await session.cut(str(number), SAID, *[CALLED] * (number % 5)) for number in range(40)]
    agent = StoringFirst(["true"], held={} if held is None else {str(held): True})
    first = 0 if held is None else held + 1
    wanted = (befores[first], str(first)) if first < 40 else None
    for looked_at in (1, 3, 10, 2_000):
        monkeypatch.setattr(lacking, "LOOKED_AT", looked_at)
        assert await session.lacks(agent) == wanted
    monkeypatch.setattr(lacking, "LOOKED_AT", 10)
    session.store.rows = 0
    await session.lacks(agent)
    tip, needed = session.journal.state.seq, 0 if held is None else befores[held]
    assert session.store.rows <= 10 + 6 * (tip - needed)


async def test_a_session_that_was_given_nothing_yet_is_not_looked_for_in_all_that_was_before_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        await session.cut(str(number), SAID)
    await session.bind("another")
    monkeypatch.setattr(lacking, "LOOKED_AT", 10)
    agent = StoringFirst(["true"])
    session.store.rows = 0
    assert await session.lacks(agent) is None
    assert agent.readings == []
    assert session.store.rows <= 11, "and the one where the reading begins"


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
