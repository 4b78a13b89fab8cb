"""A turn of many steps whose runtime and agent are killed, and its restore by a new process.

    python -m benchmarks.recovery (begin|restore) URL STEPS

`begin` prints a line when the agent has done its steps and is in the next one. `restore` prints milliseconds
from the construction of the Runtime until the session is restored.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

import outlast.store.sqlite.store  # noqa: F401 - a runtime imports it when it opens; importing is not measured
from benchmarks.turns import AGENTS
from outlast.keep import AgentFolder, Verified, probe, tree_dead
from outlast.records.envelope import Record
from outlast.records.types import CallObserved
from outlast.runtime.runtime import Runtime

SESSION = "steps"
LIMIT = 60.0


class Restored(msgspec.Struct):
    ms: float


async def begin(url: str, steps: int) -> None:
    async with Runtime(url, agents=AGENTS) as runtime:
        session = runtime.session(SESSION, workspace="/")
        await session.send(f"steps {steps} and hang")
        async for item in session.follow():
            body = item.body if isinstance(item, Record) else None
            if isinstance(body, CallObserved) and body.call == f"step-{steps}" and body.status == "completed":
                print("there", flush=True)
                await asyncio.sleep(LIMIT)


async def restore(url: str) -> None:
    begun = time.perf_counter()
    async with Runtime(url, agents=AGENTS) as runtime:
        await runtime.restore(SESSION)
        restored = Restored((time.perf_counter() - begun) * 1e3)
        print(msgspec.json.encode(restored).decode(), flush=True)


def kill_agents(folder: Path) -> None:
    """SIGKILL for every agent that a shim in the store's folder has, with all that it has started."""
    for agent in (folder / "agents").iterdir():
        facts = probe(AgentFolder(agent)).latest
        if facts is None or facts.shim is None:
            continue
        with suppress(ProcessLookupError):
            os.kill(facts.shim.pid, signal.SIGKILL)  # its guard ends the rest of the tree
        deadline = time.monotonic() + LIMIT
        while not isinstance(tree_dead(facts.generation), Verified):
            if time.monotonic() > deadline:
                raise SystemExit(f"the agent in {agent} does not end")
            time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "begin":
        asyncio.run(begin(sys.argv[2], int(sys.argv[3])))
    else:
        asyncio.run(restore(sys.argv[2]))
