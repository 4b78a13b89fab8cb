"""What sessions of a list wait for, read from their journals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.cli.contact import open_client
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.errors import OutlastError
from outlast.journal import load_state
from outlast.state.delays import delays

if TYPE_CHECKING:
    from outlast.cli.output import Screen
    from outlast.state.model import Delay


def delays_of(screen: Screen, sessions: Sequence[str]) -> dict[str, Delay]:
    """By session; without those whose journal cannot be read, which a list need not be the one to say."""

    async def read() -> dict[str, Delay]:
        found: dict[str, Delay] = {}
        async with open_client(loaded_config(screen)) as client:
            for session in sessions:
                try:
                    state = await load_state(client.store, session)
                except OutlastError:
                    continue
                delay = next((delay for _, delay in delays(state)), None)
                if delay is not None:
                    found[session] = delay
        return found

    return run_async(screen, read())
