"""Bodies whose content does not matter to the model."""

from __future__ import annotations

from outlast.records import types as t

EVENTS = (
    t.AgentEventRecorded(kind="message", text="a message"),
    t.AgentEventRecorded(kind="message", text="a long ", more=True),
    t.AgentEventRecorded(kind="thought", text="a thought"),
    t.AgentEventRecorded(kind="usage", usage={"tokens": 3}),
    t.AgentEventRecorded(kind="raw", text="noise", dropped=4),
)


def session_started(lineage: str) -> t.SessionStarted:
    manifest = t.Manifest(agent="agent", agent_kind="command", adapter="command/1", workspace="/w")
    return t.SessionStarted(
        lineage=lineage, manifest=manifest, fingerprint="f" * 64, title="a title", workspace="/w"
    )


def attempt(number: int, generation: str) -> t.TurnAttemptStarted:
    return t.TurnAttemptStarted(
        attempt=number,
        folder="/agents/a",
        generation=generation,
        machine="m",
        boot_id="b",
        processes=[t.Process(role="shim", pid=10, start_ticks=7)],
    )


def permission(gate: str) -> t.GateOpened:
    return t.GateOpened(
        gate=gate,
        kind="permission",
        question="May I?",
        choices=[t.Choice(id="yes", label="Yes", kind="allow_once")],
    )


def repaired(kept: int) -> t.JournalRepaired:
    """A cut that left nothing undecided."""
    return t.JournalRepaired(
        cut_seq=kept + 1, lost_to=kept + 2, kind="record", reason="missing", quarantine="cut-1"
    )


def limited(attempt: int, retry: int) -> t.TurnFailed:
    """A failure after which the turn is tried again by itself."""
    return t.TurnFailed(
        receipt=t.Receipt(
            attempt=attempt,
            completed_phases=["accept", "host_launch"],
            failed_phase="host_execute",
            error=t.ReceiptError(code="rate_limited", message="slow down", retry_after=5.0),
            host_recovery=t.HostRecovery(),
            retry=t.PlannedRetry(
                mode="again", retry=retry, of=8, wait=5.25, not_before="2026-01-31T12:00:00.000000Z"
            ),
        )
    )


def crashed(attempt: int) -> t.TurnFailed:
    return t.TurnFailed(
        receipt=t.Receipt(
            attempt=attempt,
            completed_phases=["accept", "host_launch"],
            failed_phase="host_execute",
            error=t.ReceiptError(code="crashed", message="ended by signal 9", signal=9),
            host_recovery=t.HostRecovery(),
        )
    )
