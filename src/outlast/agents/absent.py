"""Stands for an agent whose adapter is not here, because nothing configures it or what does is wrong: a
session can be had to end it, and for nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from outlast.agents.contract import Capabilities, Fold, FoldContext, LaunchContext, LaunchSpec
from outlast.errors import AgentNotFoundError, ConfigError

UNREAD = "its adapter is not here, so that what it had said last is not in the journal"


@dataclass(frozen=True, slots=True)
class AbsentAgent:
    """See `outlast.agents.contract.Agent`. `missing` is why there is no adapter; whatever needs one raises
    it."""

    kind: str
    missing: AgentNotFoundError | ConfigError
    adapter: str = "none"
    model: str | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    line_limit: int = 1
    idle_timeout: float | None = None
    total_timeout: float | None = None
    on_interrupt: Literal["skip", "continue", "retry", "hold", "ask"] = "skip"
    after_failure: Literal["continue", "hold", "withdraw"] = "continue"
    on_lost: Literal["ask", "refuse", "fresh", "reseed"] = "ask"
    retry_attempts: int = 0
    idle_park: float | None = None
    orphan_grace: float | None = None

    def launch(self, context: LaunchContext) -> LaunchSpec:
        self._refuse()

    def fold(self, context: FoldContext, state: bytes | None = None) -> Fold:
        self._refuse()

    def versions(self) -> Mapping[str, str]:
        return {}

    def _refuse(self) -> NoReturn:
        raise self.missing
