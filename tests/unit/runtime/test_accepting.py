"""What the owner of a session makes of the inputs that wait in its inbox, and who waits to hear it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.support.stores import admit

from outlast.agents.contract import Capabilities
from outlast.ids import derived_uuid
from outlast.records import types as t
from outlast.records.codec import encode_body, row_of
from outlast.records.envelope import Draft, Stamp
from outlast.runtime.actor import SessionActor
from outlast.runtime.awaiting import in_hands, settling
from outlast.runtime.backing import Backing
from outlast.state.model import State
from outlast.store.contract import Append, Entry, Lease, Row, Settlement, Tombstone
from outlast.store.memory.store import MemoryStore
from outlast.testing.journals import JournalBuilder
from outlast.turns.requests import InputRequest, Request, StopRequest, encode


def owner(state: State) -> SessionActor:
    """An owner of this state that has no agent at work."""
    driver = SimpleNamespace(agent=SimpleNamespace(capabilities=Capabilities()))
    return SessionActor(cast(Any, None), cast(Any, SimpleNamespace(state=state)), cast(Any, driver))


def sent(place: int, key: str, body: bytes | None = None, when_busy: t.WhenBusy = "queue") -> Entry:
    request: Request = InputRequest(content=[t.Content(text="hi")], when_busy=when_busy)
    return Entry(place, key, "input", encode(request) if body is None else body, "me", 0)


def made_of(state: State, *entries: Entry) -> list[tuple[str, str]]:
    """Each input, and why it was cancelled; empty for one that was accepted."""
    drafts = owner(state)._accepted(state, entries).drafts
    bodies = [draft.body for draft in drafts]
    return [
        (body.request_id, body.reason if isinstance(body, t.InputCancelled) else "")
        for body in bodies
        if isinstance(body, t.InputAccepted | t.InputCancelled)
    ]


def test_an_input_that_is_refused_where_one_runs_is_refused_for_no_other_reason() -> None:
    """Not because of one before it that could not be read, or was refused itself."""
    state = JournalBuilder().state()
    damaged = sent(1, "damaged", b"\0")
    only = sent(2, "only", when_busy="reject")
    assert made_of(state, damaged, only) == [("damaged", "damaged"), ("only", "")]
    second = sent(3, "second", when_busy="reject")
    assert made_of(state, damaged, only, second)[1:] == [("only", ""), ("second", "busy")]
    assert made_of(state, sent(1, "first"), only) == [("first", ""), ("only", "busy")]


def test_an_input_that_is_refused_where_one_runs_is_refused_then() -> None:
    only = sent(2, "only", when_busy="reject")
    assert made_of(JournalBuilder().running("a").state(), only) == [("only", "busy")]
    assert made_of(JournalBuilder().accept("a").state(), only) == [("only", "busy")]


def fence(session: str, epoch: int) -> Row:
    """A journal's first record."""
    draft = Draft(t.Fence(epoch=epoch, holder="the owner"))
    return row_of(draft, encode_body(draft.body), Stamp(1, epoch, derived_uuid(session, 1), 0), session, b"")


class Leaving:
    """A store whose session's owner settles a request and leaves right after somebody has looked for that."""

    def __init__(self, store: MemoryStore, lease: Lease | None) -> None:
        self._store = store
        self._lease = lease
        self.store = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settled(self, name: str, request: str) -> Tombstone | None:
        found = await self._store.settled(name, request)
        if self._lease is not None:
            lease, self._lease = self._lease, None
            row = fence(name, lease.epoch)
            await self._store.append(Append(name, (row,), 0, lease, (Settlement(request, 1),)))
            await lease.release()
        return found

    def serving(self, session: str) -> bool:
        return False

    def serving_failed(self, session: str) -> None:
        return None


async def leaving() -> Leaving:
    store = MemoryStore.open("memory://", "the test")
    await admit(store, "s", "r", kind="cancel")
    return Leaving(store, await store.acquire("s"))


async def test_a_command_that_is_carried_out_while_it_is_looked_for_is_not_called_queued() -> None:
    backing = await leaving()
    async with asyncio.timeout(20):
        record = await settling(cast(Backing, backing), "s", "r")
    assert record is not None
    assert record.seq == 1
    await backing.close()


async def test_a_command_that_nobody_takes_is_called_queued() -> None:
    store = MemoryStore.open("memory://", "the test")
    await admit(store, "s", "r", kind="cancel")
    assert not await in_hands(store, "s", "r")
    assert await settling(cast(Backing, Leaving(store, None)), "s", "r") is None
    await store.close()


async def test_an_input_that_was_taken_is_in_hands_when_its_owner_has_left() -> None:
    backing = await leaving()
    assert await in_hands(backing._store, "s", "r")
    await backing.settled("s", "r")
    assert await backing.holder("s") is None
    assert await in_hands(backing._store, "s", "r")
    await backing.close()


def stop(place: int, key: str) -> Entry:
    return Entry(place, key, "cancel", encode(StopRequest()), "me", 0)


def test_whoever_cancels_after_the_person_who_resumed_has_the_last_word() -> None:
    """A cancel that had waited before is carried out, and the queue goes on then; not where another came."""
    earlier, later = stop(1, "earlier"), stop(2, "later")

    async def goes_on(*looks: tuple[list[Entry], list[Entry]]) -> list[bool]:
        """For each look at the inbox, before the commands and after them: whether the queue goes on."""
        resumed = []
        inbox: list[Entry] = []

        async def pending(_: str) -> list[Entry]:
            return inbox

        async def resume_queue() -> None:
            resumed.append(True)

        one = owner(JournalBuilder().state())
        one.store, one.stops_before = cast(Any, SimpleNamespace(pending=pending)), frozenset({"earlier"})
        one.journal = cast(Any, SimpleNamespace(name="s"))
        one.resume_queue = resume_queue  # type: ignore[method-assign]
        found = []
        for before, after in looks:
            resumed.clear()
            inbox[:] = after
            if one.stops_before:
                await one._go_on_after_stops(before)
            found.append(bool(resumed))
        return found

    working = ([earlier], [earlier])
    assert asyncio.run(goes_on(working, ([earlier], []), ([], []))) == [False, True, False]
    assert asyncio.run(goes_on(working, ([earlier, later], []), ([], []))) == [False, False, False]
    assert asyncio.run(goes_on(([earlier, sent(3, "more")], [sent(3, "more")]))) == [True]
