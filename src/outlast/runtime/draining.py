"""The turns that end while an owner of this process works off what waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from outlast.journal import read_records
from outlast.runtime.actor import SessionActor
from outlast.runtime.outcome import Outcome, outcome_of
from outlast.runtime.texts import whole_text
from outlast.state.turn_ends import Ends, begun_in
from outlast.store.contract import Store


async def drained(store: Store, session: str, actor: SessionActor) -> AsyncIterator[Outcome]:
    """The outcome of each turn that ends from now on, until nothing is left to do. Raises what ended the
    actor."""
    after, ends = actor.state.seq, Ends(begun_in(actor.state))
    waiting = asyncio.create_task(actor.quiet())
    try:
        with store.changes(session) as rings:
            while True:
                rings.clear()  # Before reading: what is stored meanwhile rings again.
                done = waiting.done()
                async for record in read_records(store, session, after, large="outline"):
                    after = record.seq
                    ends.apply(record)
                for end in ends.take().values():
                    yield outcome_of(session, end, await whole_text(store, session, end))
                if done:
                    waiting.result()
                    return
                rung = asyncio.create_task(rings.wait(), name=f"drain {session}")
                try:
                    await asyncio.wait([waiting, rung], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    rung.cancel()
    finally:
        waiting.cancel()
