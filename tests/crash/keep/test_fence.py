"""Raising the floor over a folder that somebody holds at that moment: it is raised, or the owner stops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from outlast.keep import FolderLockHeldError, probe
from outlast.restore.probe import _fence
from outlast.turns import launch

if TYPE_CHECKING:
    from .conftest import Keep

HOLDS = """
with folder.locked():
    say("held")
    sys.stdin.readline()
"""


async def test_a_folder_that_is_held_for_a_moment_gets_its_floor_all_the_same(keep: Keep) -> None:
    """A shim that is being born holds the lock and takes nobody in yet."""
    holder = keep.runtime(HOLDS)
    assert await keep.hear(holder) == "held"
    fence = asyncio.create_task(_fence(keep.folder, keep.claim(7)))
    await asyncio.sleep(0)
    assert not fence.done()
    assert holder.stdin is not None
    holder.stdin.write(b"\n")
    holder.stdin.flush()
    async with asyncio.timeout(20):
        await fence
    floor = probe(keep.folder).floor
    assert floor is not None
    assert floor.epoch == 7


async def test_an_owner_that_cannot_raise_the_floor_goes_no_further(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "PATIENCE", 0.0)
    holder = keep.runtime(HOLDS)
    assert await keep.hear(holder) == "held"
    with pytest.raises(FolderLockHeldError) as held:
        await _fence(keep.folder, keep.claim(7))
    assert held.value.pid == holder.pid
