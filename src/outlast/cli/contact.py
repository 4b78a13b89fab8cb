"""The command line's only contact with the runtime: opening it, naming sessions, reading what is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from outlast.cli.app import COMMANDS
from outlast.cli.gates import Approve
from outlast.config import Config

if TYPE_CHECKING:
    from outlast.runtime.client import Client
    from outlast.runtime.runtime import Runtime
    from outlast.store.contract import Store


def open_runtime(config: Config, approve: Approve = "ask") -> Runtime:
    """A runtime with every agent that is here; enter it to open the store. Raises UsageError for a store that
    no other process could reach."""
    from outlast.runtime.policy import allow, ask, deny
    from outlast.runtime.runtime import Runtime
    from outlast.store.url import database_path

    database_path(config.store_url, config.environ)
    on_gate = {"ask": ask, "all": allow, "never": deny}[approve]
    return Runtime(config.store_url, agents=config.agents(), on_gate=on_gate, label=own_label())


def open_client(config: Config) -> Client:
    """The same handles without ownership. Raises as `open_runtime`."""
    from outlast.runtime.client import Client
    from outlast.store.url import database_path

    database_path(config.store_url, config.environ)
    return Client(config.store_url, label=own_label())


async def speakable(store: Store, name: str) -> str:
    """The id of the session `name`, for a command that sends, answers or attaches. Raises
    SessionNotFoundError, AmbiguousIdError, and UsageError inside the session's own agent."""
    from outlast.cli.door import refuse_from_inside

    session = await store.find(name)
    await refuse_from_inside(store, session)
    return session


async def lives_elsewhere(runtime: Runtime, session: str) -> bool:
    """Whether another process owns the session. Asked on the way out: not knowing is no."""
    from outlast.errors import OutlastError

    if runtime.actor(session) is not None:
        return False
    try:
        holder = await runtime.store.holder(session)
    except (OutlastError, OSError):
        return False
    # Its own lease, which a full disk kept it from giving back, ends with this process.
    return holder is not None and holder.pid != os.getpid()


def own_label() -> str:
    """How other processes name this one: host, pid and command, without the command's arguments, which may
    be private."""
    import sys

    command = next((word for word in sys.argv[1:] if word in COMMANDS), "")
    return f"{os.uname().nodename} pid {os.getpid()} ({f'outlast {command}'.strip()})"
