"""Reading an agent's spool on into a merger: a bite at a time, in bounded memory, others get their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from outlast.agents.contract import Delta, Notice
from outlast.turns.host import AgentHost
from outlast.turns.merge import Merger

Show = Callable[[str], None]
"""Takes text that is shown while it is written, and never stored."""


def to_nobody(text: str) -> None:
    """Nobody looks on."""


def take_in(host: AgentHost, merger: Merger, show: Show = to_nobody) -> bool:
    """Fold one bite; True if more may be there. Raises SpoolLost."""
    located, more = host.read()
    for item in located:
        if isinstance(item.event, Delta):
            show(item.event.text)
        elif isinstance(item.event, Notice):
            show(f"\n[{item.event.text}]\n")
        else:
            merger.add(item)
    return more


async def read_on(
    host: AgentHost, merger: Merger, flush: Callable[[], Awaitable[object]], show: Show = to_nobody
) -> None:
    """Fold all that the spool holds now. `flush` makes durable what the merger has as often as that grows too
    large; the rest stays there. Raises SpoolLost when what came before the damage is folded."""
    while take_in(host, merger, show):
        await asyncio.sleep(0)
        if merger.full:
            await flush()
