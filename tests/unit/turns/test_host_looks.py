"""How an owner looks at the processes of its agent: beside everything else, and never more than it knows."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from outlast.agents import Command
from outlast.agents.contract import FoldContext
from outlast.keep import AgentFolder, Alive, Claim, Generation, Verified, layout
from outlast.keep import tree_dead as look
from outlast.keep.fields import Value
from outlast.keep.proc import boot_id, pid_namespace, start_ticks
from outlast.records.types import Process
from outlast.turns import host as hosts
from outlast.turns import launch
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.intake import Intake

AGENT = Command(["agent"])
CLAIM = Claim("store", "lineage", 1, "owner")


@pytest.fixture
def generation(tmp_path: Path) -> Generation:
    generation = AgentFolder.create(tmp_path / "agent").generation(1)
    generation.path.mkdir()
    return generation


def host_of(generation: Generation) -> AgentHost:
    fold = AGENT.fold(FoldContext("s", "l", "/w", None, confirmed=False, secret=b"x"), None)
    hosting = Hosting("s", "/w", generation.folder.path.parent, CLAIM, "m", b"x", {})
    return AgentHost(generation, Intake(fold, generation.name, AGENT.line_limit, None, None), hosting, AGENT)


def identify(generation: Generation, shim: int) -> None:
    """The generation's record of its processes, as its shim writes it; all of them are `shim`."""
    ticks = start_ticks(shim) or 0
    with generation.opened() as fd:
        here = os.fstat(fd)
        values: dict[str, Value] = {
            "marker": "none has it",
            "boot": boot_id(),
            "pid_ns": pid_namespace(),
            "ino": here.st_ino,
            "dev": here.st_dev,
        }
        for role in ("shim", "guard"):
            values |= {f"{role}_pid": shim, f"{role}_ticks": ticks}
        layout.Record.place(layout.ID, values, dir_fd=fd)


async def test_who_attaches_learns_the_processes_without_reading_the_spool(generation: Generation) -> None:
    identify(generation, os.getpid())
    (generation.path / os.fsdecode(layout.segment_name(0))).mkdir()  # no file: to read it would fail
    host = host_of(generation)
    await host._learn_processes()
    assert [(p.role, p.pid) for p in host.processes] == [("guard", os.getpid()), ("shim", os.getpid())]
    assert host.boot_id == boot_id()


async def test_an_agent_whose_folder_is_gone_is_not_said_to_be_dead_while_its_shim_lives(
    generation: Generation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "PATIENCE", 0.05)
    host = host_of(generation)
    pid = os.getpid()
    host.processes = [Process(role="shim", pid=pid, start_ticks=start_ticks(pid) or 0)]
    host.boot_id = boot_id()
    shutil.rmtree(generation.folder.path)
    tree = await host.end_verified()
    assert isinstance(tree, Alive)
    assert tree.pids == (pid,)
    host.processes = []
    assert isinstance(await host.end_verified(), Verified)


@pytest.mark.parametrize("waits", ["for its end", "for its orphans"])
async def test_the_processes_of_the_machine_are_looked_through_beside_the_event_loop(
    generation: Generation, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    threads: list[int] = []

    def watched(generation: Generation) -> object:
        threads.append(threading.get_ident())
        return look(generation)

    monkeypatch.setattr(hosts, "tree_dead", watched)
    monkeypatch.setattr(launch, "tree_dead", watched)
    await (host_of(generation).see_end() if waits == "for its end" else launch.end_orphans(generation.folder))
    assert threads
    assert threading.get_ident() not in threads
