"""A copy of an agent folder tells of an agent that is not its own."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from outlast.keep import (
    AgentFolder,
    CopiedFolderError,
    FolderLockHeldError,
    ShimClient,
    Unknown,
    Verified,
    kill_marked,
    layout,
    probe,
    raise_floor,
    start_idle,
    tree,
    tree_dead,
)
from outlast.keep.facts import look
from outlast.keep.fields import Fields, Value, pack

if TYPE_CHECKING:
    from .conftest import Keep, Tools

WAITS = "sys.stdin.read()\n"


def copy_of(keep: Keep, *options: str) -> AgentFolder:
    copy = keep.root / "copy"
    subprocess.run(["cp", *options, str(keep.folder.path), str(copy)], check=True)
    return AgentFolder(copy)


@pytest.mark.parametrize("options", [["-a"], ["-al"]], ids=["copied", "hard links"])
async def test_nobody_reaches_an_agent_through_a_copy_of_its_folder(keep: Keep, options: list[str]) -> None:
    generation, client = await keep.run(WAITS)
    copied = copy_of(keep, *options).generation(generation.number)
    assert look(generation).shim_alive
    assert (look(copied).copied, look(copied).shim_alive) == (True, False)
    with pytest.raises(CopiedFolderError):
        await ShimClient.connect(copied)
    verdict = tree_dead(copied)
    assert isinstance(verdict, Unknown)
    assert verdict.pids
    assert isinstance(kill_marked(copied), Unknown)

    status = await client.status()
    assert (status.phase, status.owned, status.floor) == ("running", True, 1)


async def test_a_marker_that_the_originals_processes_carry_kills_none_of_them(
    keep: Keep, tools: Tools
) -> None:
    daemon = "child = subprocess.Popen(['sleep', '600'])\ntell('daemon', str(child.pid))\n"
    generation, _ = await keep.run(daemon + WAITS)
    await tools.until((keep.root / "daemon").exists, "it has a child")
    child = int((keep.root / "daemon").read_text())
    copied = copy_of(keep, "-a").generation(generation.number)
    facts = look(generation)
    assert facts.shim is not None
    assert facts.guard is not None
    os.kill(facts.guard.pid, signal.SIGSTOP)
    os.kill(facts.shim.pid, signal.SIGKILL)
    # The agent itself has its death signal from its shim; what it started waits for the stopped guard.
    await tools.until(lambda: not tools.alive(facts.agent_pid), "the agent is gone")
    assert not isinstance(kill_marked(copied), Verified)
    assert tools.alive(child)
    os.kill(facts.guard.pid, signal.SIGCONT)
    await keep.ended(generation)
    assert not tools.alive(child)
    assert isinstance(tree_dead(copied), Verified)


async def test_a_copy_begins_agents_of_its_own_beside_the_original(keep: Keep) -> None:
    generation, client = await keep.run(WAITS)
    copy = copy_of(keep, "-a")
    raise_floor(copy, keep.claim(2))
    begun = await start_idle(copy, keep.claim(2))
    assert begun.number == generation.number + 1
    second = await keep.connect(begun)
    await second.attach(keep.claim(2))
    await second.kill()
    assert (await client.status()).floor == 1
    assert isinstance(tree_dead(begun), Verified)
    facts = probe(keep.folder)
    assert facts.floor is not None
    assert facts.floor.epoch == 1


async def test_a_copy_of_hard_links_has_the_originals_lock(keep: Keep) -> None:
    _, client = await keep.run(WAITS)
    copy = copy_of(keep, "-al")
    with pytest.raises(FolderLockHeldError):
        raise_floor(copy, keep.claim(2))
    with pytest.raises(FolderLockHeldError):
        await start_idle(copy, keep.claim(2))
    assert (await client.status()).floor == 1


async def test_a_folder_that_was_renamed_is_the_same_one(keep: Keep) -> None:
    generation, client = await keep.run(WAITS)
    await client.detach()
    moved = AgentFolder(keep.folder.path.rename(keep.root / "moved")).generation(generation.number)
    assert look(moved).shim_alive
    second = await keep.connect(moved)
    attached = await second.attach(keep.claim(2))
    assert attached.phase == "running"
    await second.kill()
    assert isinstance(tree_dead(moved), Verified)


@pytest.mark.parametrize(
    ("changed", "copied"),
    [
        ({}, False),
        ({"ino": 1}, True),
        ({"dev": 1}, True),
        ({"dev": 1, "boot": "another"}, False),
        ({"dev": 1, "pid_ns": "another"}, False),
        ({"ino": 1, "boot": "another"}, True),
    ],
)
async def test_a_folder_is_known_by_its_inode_and_in_one_boot_by_its_device(
    keep: Keep, changed: dict[str, Value], copied: bool
) -> None:
    generation, client = await keep.idle()
    with generation.opened() as fd:
        said = layout.read_record(layout.ID, dir_fd=fd)
        assert said is not None
        known: dict[str, Value] = {name: said.text(name) for name in ("boot", "pid_ns")}
        known |= {name: said.integer(name) for name in ("dev", "ino")}
        assert tree.is_copy(Fields(pack(known | changed)), fd) is copied
    await client.kill()
    await keep.ended(generation)
