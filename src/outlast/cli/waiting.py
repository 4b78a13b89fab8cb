"""Work that may take a while, and says so when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from outlast.cli.output import Screen, visible

T = TypeVar("T")

LONG = 1.0
"""Seconds after which a person wonders."""


async def shown_when_long(work: Coroutine[Any, Any, T], what: str, screen: Screen) -> T:
    """The work's result; a moving line says `what` is done while it takes longer than a second. On a pipe
    nothing is said."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=LONG)
        if done or not screen.err.is_terminal or screen.as_json:
            return await task
        from rich.console import Console

        with Console(stderr=True, no_color=not screen.err.coloured).status(visible(what)):
            return await task
    finally:
        task.cancel()
