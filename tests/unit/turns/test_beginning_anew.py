"""A turn whose agent could not begin, its own session being lost, or read nothing: a new one is given it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.agents import Command
from outlast.agents.contract import Failure
from outlast.journal import Journal
from outlast.keep import Claim
from outlast.records import types as t
from outlast.records.envelope import Draft, Record
from outlast.state.invariants import violations
from outlast.store.contract import Store
from outlast.store.url import open_store
from outlast.testing.journals import JournalBuilder, bodies
from outlast.turns.driver import LoopDriver
from outlast.turns.hosting import Hosting
from outlast.turns.terminal import Stop

MISSING = Failure("session_missing", "no such session")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = await open_store("memory://")
    yield store
    await store.close()


async def driver_of(store: Store, journal: JournalBuilder, folder: Path) -> LoopDriver:
    lease = await store.acquire("session")
    opened = await Journal.open(store, lease)
    await opened.append([Draft(t.Fence(epoch=lease.epoch, holder="me")), *journal.drafts[1:]])
    claim = Claim(store.store_id, "lineage", lease.epoch, "me")
    hosting = Hosting("session", str(folder), folder / "agents", claim, "m", b"", {})
    return LoopDriver(opened, Command(["true"]), "main", hosting, nobody)


def bound() -> t.AgentSessionChanged:
    return t.AgentSessionChanged(provider="p", provider_session="thr", state="bound", source="chosen")


async def nobody(session: str, gate: t.GateOpened) -> None:
    return None


async def records_of(journal: Journal) -> list[Record]:
    return [record async for record in journal.read()]


async def test_an_input_that_was_named_for_the_lost_agent_goes_back_to_its_place(
    store: Store, tmp_path: Path
) -> None:
    """The agent ended between the reservation and the write. Another life is given it under a name of its
    own, or `verify` would call the journal faulty."""
    named = JournalBuilder().add(bound()).running("a").ask("a", "q")
    driver = await driver_of(store, named, tmp_path)
    assert await driver._begins_anew("a", MISSING)
    state = driver.journal.state
    assert (list(state.queue), dict(state.open_turns), state.loops["main"].decided) == (["a"], {}, "reseed")
    again = [t.TurnStarted(index=1, request_id="a"), bodies.attempt(1, "h")]
    reserved = t.InputReserved(generation="h", seq=1, key="a", digest="d")
    await driver.journal.append([Draft(body, loop="main", turn="a") for body in (*again, reserved)])
    assert violations(await records_of(driver.journal)) == []


async def test_an_input_that_was_not_named_yet_stays_with_its_turn(store: Store, tmp_path: Path) -> None:
    unnamed = JournalBuilder().add(bound()).accept("a").start("a").attempt("a")
    driver = await driver_of(store, unnamed, tmp_path)
    assert await driver._begins_anew("a", MISSING)
    assert list(driver.journal.state.open_turns) == ["a"]


async def test_an_input_that_nobody_read_goes_back_unless_somebody_has_stopped_its_turn(
    store: Store, tmp_path: Path
) -> None:
    """Also in the moment before: it is not begun again."""
    driver = await driver_of(store, JournalBuilder().running("a"), tmp_path)
    driver.request_stop("a", Stop("cancelled"))
    assert not await driver._returned("a", "unread")
    assert list(driver.journal.state.open_turns) == ["a"]
    driver._stop = None
    assert await driver._returned("a", "unread")
    state = driver.journal.state
    assert (list(state.queue), dict(state.open_turns)) == (["a"], {})
