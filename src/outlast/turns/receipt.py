"""The typed outcome of a failed attempt (pure)."""

from __future__ import annotations

from outlast.agents.contract import Failure
from outlast.agents.failure import recovery_of
from outlast.records.types import HostRecovery, PlannedRetry, Receipt, ReceiptError

PHASES = ("accept", "host_launch", "host_execute", "typed_result", "validation", "write_back", "settle")
"""In order; the last four are named effects around a turn and may be empty (LoopX's words)."""


def receipt(attempt: int, failed_phase: str, failure: Failure, retry: PlannedRetry | None = None) -> Receipt:
    """The receipt of `attempt` that failed in `failed_phase`, and is tried again as `retry` says. Only a
    failed host step can carry a recovery record: the others are resumed from their own records."""
    recovery = recovery_of(failure.code) if failed_phase == "host_execute" else None
    return Receipt(
        attempt=attempt,
        completed_phases=list(PHASES[: PHASES.index(failed_phase)]),
        failed_phase=failed_phase,
        error=ReceiptError(
            code=failure.code,
            message=failure.message,
            signal=failure.signal,
            exit_status=failure.exit_status,
            retry_after=failure.retry_after,
        ),
        host_recovery=HostRecovery() if recovery == "resume_session" else None,
        retry=retry,
    )
