"""A check: a sentence that a store makes true, and how it is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outlast.testing.store_conformance.harness import Harness

Trial = Callable[[Harness], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """`run` returns where the sentence holds, raises UnsupportedError where it cannot be tried, and anything
    else where it does not hold."""

    subject: str
    """Part of the contract: ledger, leases, inbox and so on."""
    name: str
    """The sentence."""
    run: Trial

    @property
    def id(self) -> str:
        """For `-k` and for other test runners: no spaces."""
        return f"{self.subject}-{self.name.replace(' ', '-')}"


class Subject:
    """Collects the checks of one part of the contract; a function's name is the sentence."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def check(self, trial: Trial) -> Trial:
        self.checks.append(Check(self.name, getattr(trial, "__name__", "").replace("_", " "), trial))
        return trial
