"""Who reaches a shim: an owner always does, and whoever is turned away is told why."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.keep import ShimBusyError, ShimClient, ShimStoppedError, frames, probe
from outlast.keep import client as client_module
from outlast.keep.fields import Fields, pack

if TYPE_CHECKING:
    from .conftest import Keep, Tools

STAYS = "print('here', flush=True)\nsys.stdin.read()\n"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def shim_pid(keep: Keep) -> int:
    latest = probe(keep.folder).latest
    assert latest is not None
    assert latest.shim is not None
    return latest.shim.pid


async def test_idle_callers_do_not_keep_an_owner_out(keep: Keep, tools: Tools) -> None:
    """However many hold a connection, a new owner gets in, and the owner that is there stays: whoever came
    first and owns nothing has to go, and is told so."""
    generation, first = await keep.run(STAYS)
    callers = [await keep.connect(generation) for _ in range(63)]
    for caller in callers:
        await caller.status()
    second = await keep.attach(generation, 2)
    assert (await second.status()).holder == "owner 2"
    assert first.lost_by is not None
    assert first.lost_by.reason == "taken"
    for _ in range(70):
        await (await keep.connect(generation)).status()
    await tools.bounded(callers[0].lost.wait())
    with pytest.raises(ShimBusyError):
        await callers[0].status()
    await (await second.input(1, b"{}\n")).written
    assert not second.lost.is_set()


async def test_a_shim_that_is_too_slow_to_take_callers_in_is_waited_for(keep: Keep, tools: Tools) -> None:
    """Its queue of callers is full: that is neither a connection nor a refusal, and who stops waiting leaves
    nothing behind."""
    generation, client = await keep.run(STAYS)
    os.kill(shim_pid(keep), signal.SIGSTOP)
    waiting = await full_queue(keep)
    before = descriptors()
    given_up = asyncio.create_task(ShimClient.connect(generation))
    await asyncio.sleep(0)
    assert descriptors() > before
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert descriptors() == before
    late = asyncio.create_task(keep.connect(generation))
    await asyncio.sleep(0)
    os.kill(shim_pid(keep), signal.SIGCONT)
    async with tools.deadline():
        assert (await (await late).status()).phase == "running"
    for one in waiting:
        await one.status()
    assert not client.lost.is_set()


async def full_queue(keep: Keep) -> list[ShimClient]:
    """Callers that a stopped shim has not taken in, as many as its queue holds; the next one is told."""
    generation = keep.folder.latest()
    assert generation is not None
    found: list[ShimClient] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "_CONNECT_PATIENCE", 0.0)
        while True:
            try:
                found.append(await keep.connect(generation))
            except (ShimBusyError, ShimStoppedError):
                assert found
                return found


async def test_a_grace_of_months_is_slept_through(keep: Keep) -> None:
    """Longer than poll can count: the agent lives on, unowned, for as long as was said."""
    generation, client = await keep.run(STAYS)
    for seconds, kept in ((30 * 86400.0, 30 * 86400.0), (1e30, 100 * 365 * 86400.0)):
        await client.set_grace(seconds)
        await client.detach()
        looker = await keep.connect(generation)
        status = await looker.status()
        assert (status.phase, status.owned, status.grace) == ("running", False, kept)
        client = await keep.attach(generation)
    with pytest.raises(ValueError, match="a grace"):
        await client.set_grace(float("nan"))
    with pytest.raises(ValueError, match="a grace"):
        await client.set_grace(-1.0)


@pytest.mark.parametrize("grace", [-1, 10**30, 10**400], ids=["negative", "huge", "no float"])
async def test_a_grace_that_no_clock_counts_is_refused_by_the_shim(keep: Keep, grace: int) -> None:
    """Whatever an owner sends, the agent does not die of it."""
    _, client = await keep.run(STAYS)
    for kind in (frames.GRACE, frames.KILL):
        answer = await client._link.request(kind, pack({"grace_ms": grace}))
        assert answer.type == frames.REFUSED
        assert Fields(answer.payload).text("code") == "malformed"
    assert (await client.status()).phase == "running"
