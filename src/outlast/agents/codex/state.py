"""What the fold has read so far: plain data, bounded by what is open, the same from live frames and from
replay."""

from __future__ import annotations

from typing import Literal

import msgspec

from outlast.agents.codex.wire import RpcId, TokenCounts
from outlast.agents.turnwise import Ended

Stage = Literal["silent", "greeting", "greeted", "introduced", "opening", "ready", "failed"]
Request = Literal["initialize", "open", "turn", "steer", "interrupt", "clean"]

_PARTIAL_LIMIT = 64 * 1024


class State(msgspec.Struct, omit_defaults=True):
    """The folded state. `stage` is how far the handshake has come, `rollout` the file that codex said the
    thread is in; `sent` names the prompts written lately, `steered` the inputs written to join the running
    turn, `steers` those that have not landed, with the id of the request. `gates` says of each gate of the
    turn whether it was answered, `asked` what was asked by its name, as a digest. `told_at` is when codex
    said what was read last, `renewed_at` when a limit that is used up is over (0: none is), both in seconds
    since 1970."""

    last_input: int = 0
    stage: Stage = "silent"
    stdin_closed: bool = False
    stdout_closed: bool = False
    resume: str | None = None
    thread: str | None = None
    rollout: str = ""
    confirmed: bool = False
    requests: dict[int, Request] = {}
    sent: list[str] = []
    steered: list[str] = []
    steers: dict[str, int] = {}
    turn: str | None = None
    codex_turn: str | None = None
    other_turn: str | None = None
    landed: bool = False
    interrupted: bool = False
    cleaning: bool = False
    ended: Ended | None = None
    calls: dict[str, str] = {}
    gates: dict[str, bool] = {}
    asked: dict[str, str] = {}
    refuse: list[RpcId] = []
    partial: dict[str, str] = {}
    usage_before: TokenCounts | None = None
    usage: TokenCounts | None = None
    told_at: int = 0
    renewed_at: int = 0

    def add_partial(self, item: str, text: str) -> None:
        """Keep the beginning of a message that is still being written."""
        room = _PARTIAL_LIMIT - sum(map(len, self.partial.values()))
        self.partial[item] = self.partial.get(item, "") + text[: max(0, room)]

    def count(self, total: TokenCounts, last: TokenCounts) -> None:
        """Take in the thread's token counts after a model call of the running turn."""
        self.usage = total
        if self.usage_before is None:
            self.usage_before = _minus(total, last)

    def count_before(self, total: TokenCounts) -> None:
        """Take in the token counts of what was before the running turn, as codex tells them after a
        resume."""
        self.usage = self.usage_before = total

    def turn_usage(self) -> dict[str, int]:
        """Tokens used since the turn began."""
        if self.usage is None or self.usage_before is None:
            return {}
        used = _minus(self.usage, self.usage_before)
        return {name: count for name, count in msgspec.structs.asdict(used).items() if count}


def _minus(left: TokenCounts, right: TokenCounts) -> TokenCounts:
    before = msgspec.structs.asdict(right)
    return TokenCounts(
        **{name: max(0, now - before[name]) for name, now in msgspec.structs.asdict(left).items()}
    )
