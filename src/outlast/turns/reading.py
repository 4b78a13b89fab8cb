"""Reading an agent's spool on into a merger: a bite at a time, in bounded memory, others get their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlast.agents.contract import AgentEvent, Delta, Notice, NotLanded, SessionLost
from outlast.agents.environment import secrets_in
from outlast.agents.failure import tidy
from outlast.agents.redaction import redact
from outlast.turns.host import AgentHost
from outlast.turns.merge import Merger

Show = Callable[[Delta | Notice], None]
"""Takes what is shown while it happens, and never stored."""


def to_nobody(said: Delta | Notice) -> None:
    """Nobody looks on."""


def take_in(host: AgentHost, merger: Merger, show: Show = to_nobody) -> bool:
    """Fold one bite; True if more may be there. Raises SpoolLost."""
    located, more = host.read()
    for item in located:
        event = _without_secrets(item.event, host)
        if isinstance(event, Delta | Notice):
            show(event)
        else:
            merger.add(item if event is item.event else replace(item, event=event))
    return more


def _without_secrets(event: AgentEvent, host: AgentHost) -> AgentEvent:
    """What an agent says of a fault without the values of variables that are named as secrets: it may have
    been given them. How a turn failed is told without them elsewhere; a conversation is kept as it is."""
    if not isinstance(event, Notice | SessionLost | NotLanded):
        return event
    secrets = secrets_in(host.hosting.environ)
    if isinstance(event, Notice):
        return Notice(redact(event.text, secrets))
    return replace(event, reason=tidy(event.reason, secrets))


async def read_on(
    host: AgentHost, merger: Merger, flush: Callable[[], Awaitable[object]], show: Show = to_nobody
) -> None:
    """Fold all that the spool holds now, and leave what comes after it unread. `flush` makes durable what the
    merger has as often as that grows too large; the rest stays there. Raises SpoolLost when what came before
    the damage is folded."""
    end = host.tip
    while take_in(host, merger, show) and (end is None or host.position < end):
        await asyncio.sleep(0)
        if merger.full:
            await flush()
    host.leave_unread()
