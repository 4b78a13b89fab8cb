"""Shims that live and do not answer: looked at, named, and continued by whoever ends their agent."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TypeVar

from outlast.clock import monotonic
from outlast.keep import proc
from outlast.keep.errors import ShimSilentError, ShimStoppedError
from outlast.keep.facts import ProcessFacts, look_at_processes
from outlast.keep.folder import Generation

T = TypeVar("T")

LOOK = 2.0
"""Seconds without an answer after which shim and guard are looked at, again and again."""
SILENCE = 30.0
"""Seconds after which a shim that runs and does not answer is waited for no longer."""
END_PATIENCE = 60.0
"""Seconds for an agent's tree to end after its SIGKILL: an uninterruptible call takes its time."""


def stopped(generation: Generation) -> tuple[ProcessFacts, ...]:
    """Shim and guard of the generation, as far as somebody has stopped them (SIGSTOP, a debugger). Raises
    OSError other than a missing folder."""
    try:
        found = look_at_processes(generation)
    except FileNotFoundError:
        return ()
    return tuple(process for process in found if process is not None and process.stopped)


def wake(generation: Generation) -> None:
    """Continue shim and guard where they are stopped: they are known by start ticks, boot and pid namespace.
    For those who end the agent. A process that runs takes no notice of the signal. Raises OSError."""
    for process in stopped(generation):
        proc.signal_process(process.pid, signal.SIGCONT)


def terminate(generation: Generation) -> None:
    """Tell the shim to end its agent in order (SIGTERM), by itself or through its guard. It needs no claim:
    whoever may end a process may do that. Raises OSError other than a missing folder."""
    try:
        found = look_at_processes(generation)
    except FileNotFoundError:
        return
    for process in found:
        if process is not None and process.alive:
            proc.signal_process(process.pid, signal.SIGTERM)


async def heard(
    asked: asyncio.Future[T], generation: Generation, seconds: float, silent: Callable[[Generation], None]
) -> T:
    """The answer of the generation's shim. While there is none `silent` is told, again and again. Raises what
    that raises, and ShimSilentError after `seconds`; what was asked stays asked, and may still be done."""
    deadline = monotonic() + seconds
    while True:
        done, _ = await asyncio.wait([asked], timeout=max(0.0, min(LOOK, deadline - monotonic())))
        if done:
            return asked.result()
        silent(generation)
        if monotonic() >= deadline:
            raise ShimSilentError(
                f"the shim in {generation.path} lives and has not answered for {seconds:g} s",
                hint="nothing was inferred from that: try again, or look at it with `outlast doctor`",
            )


def name_stopped(generation: Generation) -> None:
    """Raises ShimStoppedError when the generation's shim is stopped."""
    for process in stopped(generation):
        if process.role == "shim":
            raise ShimStoppedError(
                f"the agent's shim (pid {process.pid}) is stopped and answers nobody",
                hint=f"`kill -CONT {process.pid}` lets it go on, `outlast kill` ends the agent",
                pid=process.pid,
            )
