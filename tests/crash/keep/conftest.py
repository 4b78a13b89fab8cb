"""Real guards, shims and agents under a folder of the test's own; whatever lives is ended by its pid."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from outlast.keep import (
    AgentFolder,
    Claim,
    ExitRecord,
    Generation,
    LaunchRequest,
    ShimClient,
    ShimGoneError,
    SpoolReader,
    Verified,
    kill_marked,
    probe,
    start_idle,
    tree_dead,
)
from outlast.keep.facts import look
from outlast.keep.reader import Exit, InputLine, OutputChunk, SpoolFrame

PATIENCE = 20.0


async def until(fact: Callable[[], object], what: str) -> None:
    """Wait for a fact that no event tells."""
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, f"never came true: {what}"
        await asyncio.sleep(0.005)


class Keep:
    """One agent folder and what runs in it."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = AgentFolder.create(folder)
        self._clients: list[ShimClient] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def claim(self, epoch: int = 1, holder: str | None = None) -> Claim:
        return Claim("store", "lineage", epoch, holder or f"owner {epoch}")

    async def idle(self, epoch: int = 1) -> tuple[Generation, ShimClient]:
        """An idle shim and its attached owner."""
        generation = await start_idle(self.folder, self.claim(epoch))
        return generation, await self.attach(generation, epoch)

    async def attach(self, generation: Generation, epoch: int = 1, holder: str | None = None) -> ShimClient:
        client = await self.connect(generation)
        await client.attach(self.claim(epoch, holder))
        return client

    async def connect(self, generation: Generation) -> ShimClient:
        client = await ShimClient.connect(generation)
        self._clients.append(client)
        return client

    def launch(self, source: str, **more: object) -> LaunchRequest:
        """A Python agent; it finds the test's folder as `ROOT`, and `tell` writes a whole file there."""
        script = self.root / "agent.py"
        script.write_text(AGENT + source)
        return LaunchRequest(
            argv=(sys.executable, "-I", "-S", "-u", str(script)),
            env={"PATH": os.environ["PATH"], "ROOT": str(self.root), "LANG": "C.UTF-8"},
            cwd=str(self.root),
            **more,  # type: ignore[arg-type]
        )

    async def run(self, source: str, epoch: int = 1, **more: object) -> tuple[Generation, ShimClient]:
        """A running agent and its attached owner."""
        generation, client = await self.idle(epoch)
        await client.start(self.launch(source, **more))
        return generation, client

    async def ended(self, generation: Generation) -> ExitRecord:
        """The generation's exit record, once its tree is proven dead and its guard has gone too."""
        await until(lambda: isinstance(tree_dead(generation), Verified), "the tree is dead")
        guard = look(generation).guard
        await until(
            lambda: guard is None or not look_alive(guard.pid, guard.start_ticks), "the guard is gone"
        )
        record = look(generation).exit
        assert record is not None
        return record

    async def follow(
        self, client: ShimClient, wanted: Callable[[list[SpoolFrame]], bool]
    ) -> list[SpoolFrame]:
        """The spool's frames, from the first, until `wanted` is true of them."""
        reader, found = SpoolReader(client.generation), list[SpoolFrame]()
        deadline = time.monotonic() + PATIENCE
        while True:
            found += reader.frames()
            if wanted(found):
                return found
            assert time.monotonic() < deadline, f"never in the spool: {found[-5:]}"
            async with asyncio.timeout(PATIENCE):
                await client.wait_tip(reader.position)
            if client.lost.is_set():
                await asyncio.sleep(0.01)

    def runtime(self, source: str, *, faults: str = "") -> subprocess.Popen[bytes]:
        """Another process that uses outlast, with `folder` and `root` at hand, and its own group."""
        script = self.root / f"runtime{len(self.processes)}.py"
        script.write_text(RUNTIME + source)
        env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        env |= {"LANG": "C.UTF-8", "OUTLAST_FAULTS": faults, "OUTLAST_FAULTS_TESTING": "1"}
        process = subprocess.Popen(
            [sys.executable, str(script), str(self.folder.path), str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            process_group=0,
        )
        self.processes.append(process)
        return process

    async def hear(self, process: subprocess.Popen[bytes]) -> str:
        """The next line that the other process prints."""
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await asyncio.to_thread(process.stdout.readline)
        return line.decode().strip()

    async def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()
        for client in self._clients:
            await client.close()
        for number in range(1, 100):
            generation = self.folder.generation(number)
            if not generation.path.exists():
                break
            await self._end_generation(generation)

    async def _end_generation(self, generation: Generation) -> None:
        shim = look(generation).shim
        if shim is not None and shim.alive:
            os.kill(shim.pid, signal.SIGCONT)
            os.kill(shim.pid, signal.SIGKILL)
        guard = look(generation).guard
        if guard is not None and guard.alive:
            os.kill(guard.pid, signal.SIGCONT)
            await until(lambda: not look_alive(guard.pid, guard.start_ticks), "the guard has cleaned up")
        assert isinstance(kill_marked(generation), Verified)


def look_alive(pid: int, ticks: int) -> bool:
    from outlast.keep import proc

    return proc.is_alive(pid, ticks)


AGENT = """
import json, os, signal, subprocess, sys, time
def tell(name, text):
    path = os.path.join(os.environ["ROOT"], name)
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)
"""

RUNTIME = """
import asyncio, os, sys
from pathlib import Path
from outlast.keep import *
folder, root = AgentFolder(Path(sys.argv[1])), Path(sys.argv[2])
def claim(epoch): return Claim("store", "lineage", epoch, f"owner {epoch}")
def say(*words): print(*words, flush=True)
def launch(script): return LaunchRequest((sys.executable, "-I", "-S", "-u", str(script)),
    {"PATH": os.environ["PATH"], "ROOT": str(root)}, str(root))
"""


@pytest.fixture
async def keep(tmp_path: Path) -> AsyncIterator[Keep]:
    root = tmp_path / "work"
    root.mkdir()
    keep = Keep(root, tmp_path / "state ?#%20 é" / ("long" * 40) / "agent")
    yield keep
    await keep.end()


def output(found: list[SpoolFrame]) -> bytes:
    return b"".join(frame.data for frame in found if isinstance(frame, OutputChunk))


@pytest.fixture
def tools() -> Tools:
    return Tools()


class Tools:
    """What tests say about frames and processes."""

    PATIENCE = PATIENCE
    until = staticmethod(until)
    output = staticmethod(output)
    is_alive = staticmethod(look_alive)

    @staticmethod
    def has(text: bytes) -> Callable[[list[SpoolFrame]], bool]:
        return lambda found: text in output(found)

    @staticmethod
    def exited(found: list[SpoolFrame]) -> bool:
        return any(isinstance(frame, Exit) for frame in found)

    @staticmethod
    def inputs(found: list[SpoolFrame]) -> list[bytes]:
        return [frame.line for frame in found if isinstance(frame, InputLine)]

    @staticmethod
    def alive(pid: int) -> bool:
        from outlast.keep import proc

        return proc.start_ticks(pid) is not None

    Gone = ShimGoneError

    @staticmethod
    def deadline() -> asyncio.Timeout:
        return asyncio.timeout(PATIENCE)

    @staticmethod
    async def bounded(what: Awaitable[object]) -> object:
        async with asyncio.timeout(PATIENCE):
            return await what


__all__ = ["Keep", "Tools", "probe"]
