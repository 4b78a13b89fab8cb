"""How long the commands take that people type all day, as whole processes.

python -m benchmarks.commands
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.running import Findings, Options, run
from benchmarks.sessions import new_journal
from outlast.store.url import open_store, sqlite_url

SESSIONS = 1000


async def fill(url: str, sessions: int) -> None:
    store = await open_store(url)
    for number in range(sessions):
        journal = await new_journal(store, f"session-{number}")
        await journal.lease.release()
    await store.close()


def taken(argv: list[str], env: dict[str, str], rounds: int) -> list[float]:
    """Milliseconds of each run. One before them warms the page cache."""
    found = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        found.append((time.perf_counter() - begun) * 1e3)
    return found[1:]


def measure(options: Options) -> Findings:
    rounds = options.pick(21, 5)
    url = sqlite_url(options.folder / "store.db")
    asyncio.run(fill(url, SESSIONS))
    outlast = str(Path(sys.executable).with_name("outlast"))
    env = {"PATH": os.defpath, "HOME": str(options.folder), "OUTLAST_STORE": url}
    found = Findings()
    bare = taken([sys.executable, "-c", ""], env, rounds)
    found.add("commands.bare_ms", "a bare interpreter", "ms", bare)
    found.add("commands.help_ms", "outlast --help", "ms", taken([outlast, "--help"], env, rounds))
    found.add("commands.ls_ms", "outlast ls", "ms", taken([outlast, "ls"], env, rounds))
    found.notes.append(f"The store that is listed has {SESSIONS:,} sessions.")
    return found


if __name__ == "__main__":
    run("commands", measure)
