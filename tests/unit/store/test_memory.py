"""`memory://`: what there is beside the contract, which the conformance suite holds it to."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from pathlib import Path

import pytest
from tests.support.stores import admit, append, in_time

import outlast
from outlast.agents import Command
from outlast.errors import ForkedError, LeaseHeldError
from outlast.store.contract import AcquireOptions
from outlast.store.memory.store import MemoryStore
from outlast.store.url import open_store
from outlast.testing import agents


async def test_a_store_without_a_name_is_nobody_elses(tmp_path: Path) -> None:
    one, two = await open_store("memory://"), await open_store("memory://")
    assert one.store_id != two.store_id
    await admit(one, "s", "r")
    assert await two.list() == []


async def test_a_store_with_a_name_is_one_for_the_whole_process() -> None:
    one = await open_store("memory://one-for-all")
    await append(one, await one.acquire("s"), 2)
    await one.close()
    two = await open_store("memory://one-for-all")
    assert (await two.tip("s")).seq == 2
    assert await two.holder("s") is None
    assert (await open_store("memory://another")).store_id != two.store_id


async def test_its_folder_is_private_and_goes_with_it() -> None:
    store = await open_store("memory://")
    folder = store.folder
    assert folder.stat().st_mode & 0o777 == 0o700
    await store.close()
    assert folder.is_dir(), "an agent may still live in it"
    del store
    gc.collect()
    assert not folder.exists()


async def test_whoever_waits_hears_of_what_another_thread_stores() -> None:
    store = await open_store("memory://threads")

    def elsewhere() -> None:
        async def write() -> None:
            other = await open_store("memory://threads")
            await admit(other, "s", "r")
            await other.close()

        asyncio.run(write())

    with store.changes("s") as changed:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await in_time(changed.wait())
        thread.join()
    assert [entry.request_id for entry in await store.pending("s")] == ["r"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_forked_child_has_no_part_in_it() -> None:
    store = await open_store("memory://")
    child = os.fork()
    if child == 0:
        try:
            store.tip("s").send(None)
        except ForkedError:
            os._exit(0)
        os._exit(1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


async def test_an_owner_whose_event_loop_is_gone_is_no_owner() -> None:
    def elsewhere() -> None:
        async def own() -> None:
            store = await open_store("memory://left")
            await store.acquire("s")

        asyncio.run(own())

    await asyncio.to_thread(elsewhere)
    store = await open_store("memory://left")
    with pytest.raises(LeaseHeldError):  # nobody has looked yet
        await store.acquire("s")
    await admit(store, "s", "r")
    assert (await store.acquire("s")).name == "s"


async def test_a_turn_runs_in_memory_and_a_second_runtime_takes_it_over(tmp_path: Path) -> None:
    agent = Command(agents.command(agents.SCRIPTED, "--effects", str(tmp_path / "effects")))
    async with outlast.Runtime("memory://turns", agents={"scripted": agent}) as one:
        turn = await one.session("s", workspace=tmp_path).send("hello")
        assert (await turn.result()).outcome == "done"
        async with outlast.Runtime("memory://turns", agents={"scripted": agent}) as two:
            session = await two.restore("s", take_over=True)
            assert (await (await session.send("again")).result()).outcome == "done"
            await session.close()
    store = await open_store("memory://turns")
    assert isinstance(store, MemoryStore)
    assert (await store.listed("s")) is not None
    await store.acquire("s")


async def test_a_name_that_was_waited_for_is_kept_by_nobody() -> None:
    class Name(str):
        """A text that can be referred to weakly."""

    store, name = await open_store("memory://"), Name("s")
    kept = weakref.ref(name)
    with store.changes(name), store.changes(name):
        pass
    del name
    gc.collect()
    assert kept() is None


async def test_whoever_waits_for_a_lease_has_it_as_soon_as_its_owner_vanishes() -> None:
    tables = MemoryStore.tables_at("memory://")
    dying, store = (MemoryStore("memory://", label, tables) for label in ("dying", "waiting"))
    lease = await dying.acquire("s")
    waiting = asyncio.create_task(store.acquire("s", AcquireOptions(wait=3600)))
    await asyncio.sleep(0)
    with pytest.raises(LeaseHeldError):
        await store.acquire("s")  # by then the one that waits was refused, too
    dying.vanish()
    assert (await in_time(waiting)).epoch > lease.epoch
