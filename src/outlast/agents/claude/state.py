"""What the fold has read so far: plain data, bounded by what is open, the same from live frames and from
replay."""

from __future__ import annotations

from typing import Literal

import msgspec

from outlast.agents.turnwise import Ended

Stage = Literal["silent", "greeting", "ready", "failed"]

_PARTIAL_LIMIT = 64 * 1024


class Steer(msgspec.Struct):
    """An input that was written to join the running turn."""

    key: str
    late: bool = False
    """The turn's end had come before it was written."""
    begun: bool = False
    """Claude Code has taken it from its queue."""
    withdrawn: bool = False
    """It was asked to drop it."""


class State(msgspec.Struct, omit_defaults=True):
    """The folded state. `stage` is how far the handshake has come; `sent` names the prompts written lately,
    `steered` the inputs written to join the running turn, `steers` those by uuid of which it is not known
    whether they do."""

    last_input: int = 0
    stage: Stage = "silent"
    stdin_closed: bool = False
    stdout_closed: bool = False
    session: str = ""
    resets: bool = False
    """It was told to forget the conversation, and will say in which session it goes on."""
    confirmed: bool = False
    hello: int = 0
    sent: list[str] = []
    steered: list[str] = []
    steers: dict[str, Steer] = {}
    turn: str | None = None
    uuid: str = ""
    queued: bool = False
    begun: bool = False
    landed: bool = False
    interrupted: bool = False
    ended: Ended | None = None
    calls: dict[str, str] = {}
    gates: dict[str, bool] = {}
    refuse: list[str] = []
    partial: str = ""
    no_servers: list[str] = []
    """MCP servers that were not there when the newest turn began."""
    error: str = ""
    """What the program called the error of the newest model call."""
    pause: float = 0.0
    """Seconds that the program waited before its newest try of a model call; 0 where that call went well."""
    renewed_at: int = 0
    """When the limit ends that the provider refused a call for: UTC in seconds, 0 where none did."""
    renewed_in: float = 0.0
    """The same as seconds from the newest error on."""
    usage: dict[str, int] = {}

    def add_partial(self, text: str) -> None:
        """Keep the beginning of a message that is still being written."""
        self.partial += text[: max(0, _PARTIAL_LIMIT - len(self.partial))]

    def add_usage(self, used: dict[str, int]) -> None:
        """Add what a result counts to the running turn's usage."""
        for name, count in used.items():
            self.usage[name] = self.usage.get(name, 0) + count
