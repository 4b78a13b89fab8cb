"""Sessions to write into, as small as they can be."""

from __future__ import annotations

from outlast.journal import Journal
from outlast.records.envelope import Draft
from outlast.records.types import AgentEventRecorded, Fence, LoopStarted
from outlast.store.contract import Store

LOOP = "main"
TEXT = "x" * 180


async def new_journal(store: Store, name: str) -> Journal:
    """A journal that this process owns, with the little that every session begins with."""
    lease = await store.acquire(name)
    journal = await Journal.open(store, lease)
    if journal.state.seq == 0:
        loop = LoopStarted(loop=LOOP, name=LOOP, agent="bench", agent_kind="command")
        await journal.append([Draft(Fence(epoch=lease.epoch, holder="bench")), Draft(loop, loop=LOOP)])
    else:
        await journal.append([Draft(Fence(epoch=lease.epoch, holder="bench"))])
    return journal


def said(text: str = TEXT) -> Draft:
    """What an agent has said, as a record."""
    return Draft(AgentEventRecorded(kind="message", text=text), loop=LOOP)
