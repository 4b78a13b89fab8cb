"""Agents of a store that ends with its process: whoever leaves it last ends them, since nobody comes back."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

from outlast.clock import monotonic
from outlast.errors import in_words
from outlast.keep import AgentFolder, Alive, Generation, kill_marked, terminate, tree_dead, wake
from outlast.store.contract import Store

PATIENCE = 15.0
"""Seconds for all of them to end; each is given one second by its shim before it is killed."""
AGAIN = 2.0
"""Seconds between the signals: what is stopped meanwhile is continued again."""
POLL = 0.02

_LOG = logging.getLogger("outlast")
_open: dict[str, int] = {}
"""Runtimes of this process that have the store open, by its id."""
_lock = threading.Lock()


def entered(store: Store) -> None:
    """A Runtime has opened the store."""
    with _lock:
        _open[store.store_id] = _open.get(store.store_id, 0) + 1


async def left(store: Store) -> None:
    """A Runtime has let go of all its sessions. The last one to leave a store that ends with its process
    ends every agent in it, verified; what does not end in time is told to the log, and has its grace."""
    with _lock:
        others = _open[store.store_id] = _open[store.store_id] - 1
        if not others:
            del _open[store.store_id]
    if others or store.scope != "process":
        return
    folders = await asyncio.to_thread(_folders, store.folder / "agents")
    await asyncio.gather(*(_end(AgentFolder(path), monotonic() + PATIENCE) for path in folders))


def _folders(agents: Path) -> list[Path]:
    return sorted(agents.iterdir()) if agents.is_dir() else []


async def _end(folder: AgentFolder, deadline: float) -> None:
    try:
        latest = folder.latest()
        if latest is not None:
            await _end_tree(latest, deadline)
    except OSError as error:
        _LOG.error("an agent of a store in memory could not be ended: %s", in_words(error)[0])


async def _end_tree(latest: Generation, deadline: float) -> None:
    told = 0.0
    while isinstance(found := await asyncio.to_thread(tree_dead, latest), Alive):
        now = monotonic()
        if now > deadline:
            _LOG.error("an agent of a store in memory did not end: %s, pids %s", found.evidence, found.pids)
            return
        if now - told > AGAIN:
            told = now
            wake(latest)
            terminate(latest)
            await asyncio.to_thread(kill_marked, latest, seconds=1.0)
        await asyncio.sleep(POLL)
