"""What an owner and a shim tell each other, in the owner's types."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LaunchRequest:
    """What to execute. `env` is the agent's whole environment (the marker is added to it); `input_limit` is
    the largest line in bytes; at `spool_cap` bytes of kept spool output waits for a trim (0: no cap). An
    agent that nobody owns may write that much: a night's work of a talkative one."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str
    input_limit: int = 64 << 20
    spool_cap: int = 512 << 20


@dataclass(frozen=True)
class Attached:
    """What the shim had when we became its owner. `phase` is idle, running, terminating, draining, killing
    or flushing; `pid` and `start_ticks` are 0 before START. `tip` is the spool's end then."""

    last_input_seq: int
    tip: int
    phase: str
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Started:
    """The agent's process."""

    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Accepted:
    """The input is durable in the spool and goes to the agent; `written` is done once the pipe has it whole.

    `written` fails with ShimGoneError when this connection ends first: the spool tells the rest.
    """

    seq: int
    written: asyncio.Future[None]


@dataclass(frozen=True)
class ShimStatus:
    """What a living shim says of itself; anyone of this user outside the agent's tree may ask."""

    phase: str
    pid: int
    start_ticks: int
    descendants: int
    epoch: int
    holder: str
    owned: bool
    floor: int
    last_input_seq: int
    written_through: int
    base: int
    tip: int
    stdout: int
    stdin_open: bool
    blocked: bool
    capped: bool
    """Output waits in the agent's pipe, for a trim or for the owner to read on."""
    grace: float | None
