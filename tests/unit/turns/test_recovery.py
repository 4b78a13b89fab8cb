"""Recovery of a failed turn: a table of its rules, over plain mappings."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from outlast.errors import (
    FailedTurnRecoveryError,
    FailedTurnSessionRecoveryError,
    OutlastError,
    RecoveryKindError,
    RecoveryPhaseError,
    RecoveryResolverError,
    RecoverySchemaError,
    RecoveryShapeError,
)
from outlast.records import types as t
from outlast.records.agent_state import AgentSessionDecided
from outlast.testing.journals import JournalBuilder
from outlast.turns.recovery import (
    LOOPX_SCHEMA,
    SCHEMA,
    assess_failed_turn_retry_request,
    next_session,
    reconcile_failed_turn_retry_request,
    reconcile_failed_turn_session_request,
)

BOUND = {"session": "chat", "loop": "main", "agent_kind": "codex", "provider_session": "thread-1"}
REQUEST: Mapping[str, Any] = {
    "turn_envelope": {**BOUND, "turn": "t1", "input": ["fix it"]},
    "session": {"action": "start_new", "binding_status": "not_found"},
    "settings": {"model": "m"},
}
RECORD = {"schema_version": SCHEMA, "kind": "resume_session"}
LOOPX = {"schema_version": LOOPX_SCHEMA, "kind": "resume_session"}
JOURNAL: Mapping[str, Any] = {"receipt": {"failed_phase": "host_execute", "host_recovery": RECORD}}


def bound(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    return BOUND


def broken(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    raise OSError("the registry is gone")


def retried(request: Mapping[str, Any], journal: Mapping[str, Any], resolver: Any = bound) -> dict[str, Any]:
    return reconcile_failed_turn_retry_request(request, journal, session_binding_resolver=resolver)


def journal(recovery: object, phase: str = "host_execute") -> dict[str, Any]:
    return {"receipt": {"failed_phase": phase, "host_recovery": recovery}}


def with_goal(request: Mapping[str, Any], goal: str = "g1") -> dict[str, Any]:
    return {**request, "turn_envelope": {**request["turn_envelope"], "goal_id": goal}}


@pytest.mark.parametrize("silent", [{}, {"receipt": {"failed_phase": "host_launch"}}, journal(None)])
def test_without_a_recovery_record_the_request_stays_as_it_is(silent: dict[str, Any]) -> None:
    assert retried(REQUEST, silent, None) == REQUEST
    assert assess_failed_turn_retry_request(REQUEST, silent) == (REQUEST, None, None)


def test_a_start_becomes_a_resume_that_never_executes_the_host_step_again() -> None:
    before = copy.deepcopy(dict(REQUEST))
    resumed = retried(REQUEST, JOURNAL)
    assert resumed["session"] == {"action": "resume", "id": "thread-1", "binding_status": "not_found"}
    assert resumed["_recovery"] == {"skip_host": True}
    assert resumed["turn_envelope"] is REQUEST["turn_envelope"]
    assert resumed["settings"] == REQUEST["settings"]
    assert before == REQUEST, "the given request is not changed"


def test_a_resume_of_the_same_session_stays_one() -> None:
    request = {**REQUEST, "session": {"action": "resume", "id": "thread-1"}, "_recovery": {"attempt": 2}}
    resumed = retried(request, JOURNAL)
    assert resumed["session"] == {"action": "resume", "id": "thread-1"}
    assert resumed["_recovery"] == {"attempt": 2, "skip_host": True}


def test_recovering_twice_is_recovering_once() -> None:
    once = retried(REQUEST, JOURNAL)
    assert retried(once, JOURNAL) == once


@pytest.mark.parametrize(
    "loopx",
    [
        journal(LOOPX),
        {"host_recovery": LOOPX, "receipt": {"failed_phase": "host_execute"}},
        {"host_recovery": LOOPX, **journal(LOOPX)},
    ],
)
def test_loopx_is_read_as_the_same_and_its_goal_counts(loopx: dict[str, Any]) -> None:
    resumed = retried(with_goal(REQUEST), loopx, lambda _: {**BOUND, "goal_id": "g1"})
    assert resumed["session"]["action"] == "resume"
    with pytest.raises(FailedTurnSessionRecoveryError, match="goal_id"):
        retried(with_goal(REQUEST), loopx, lambda _: {**BOUND, "goal_id": "g2"})
    with pytest.raises(FailedTurnSessionRecoveryError, match="goal_id"):
        retried(REQUEST, loopx, lambda _: {**BOUND, "goal_id": "g1"})


REFUSED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], Any, type[FailedTurnRecoveryError], str]] = {
    "a record that is no mapping": (
        *(REQUEST, journal("resume"), bound),
        *(RecoveryShapeError, "host_recovery_shape_mismatch"),
    ),
    "two records that differ": (
        *(REQUEST, {"host_recovery": LOOPX, **JOURNAL}, bound),
        *(RecoveryShapeError, "host_recovery_ambiguous"),
    ),
    "another schema": (
        *(REQUEST, journal({**RECORD, "schema_version": "outlast_turn_host_recovery_v2"}), bound),
        *(RecoverySchemaError, "host_recovery_schema_unsupported"),
    ),
    "no schema": (
        *(REQUEST, journal({"kind": "resume_session"}), bound),
        *(RecoverySchemaError, "host_recovery_schema_unsupported"),
    ),
    "another kind": (
        *(REQUEST, journal({**RECORD, "kind": "fresh_session"}), bound),
        *(RecoveryKindError, "host_recovery_kind_unsupported"),
    ),
    "a kind that is no text": (
        *(REQUEST, journal({**RECORD, "kind": ["resume_session"]}), bound),
        *(RecoveryKindError, "host_recovery_kind_unsupported"),
    ),
    "a launch that failed": (
        *(REQUEST, journal(RECORD, "host_launch"), bound),
        *(RecoveryPhaseError, "host_failure_phase_mismatch"),
    ),
    "a validation that failed": (
        *(REQUEST, journal(RECORD, "validation"), bound),
        *(RecoveryPhaseError, "host_failure_phase_mismatch"),
    ),
    "a record without a receipt": (
        *(REQUEST, {"host_recovery": RECORD}, bound),
        *(RecoveryPhaseError, "host_failure_phase_mismatch"),
    ),
    "no resolver": (REQUEST, JOURNAL, None, RecoveryResolverError, "binding_resolver_unavailable"),
    "a resolver that fails": (REQUEST, JOURNAL, broken, RecoveryResolverError, "binding_resolution_failed"),
    "no binding": (
        *(REQUEST, JOURNAL, lambda _: None),
        *(FailedTurnSessionRecoveryError, "session_binding_missing"),
    ),
    "a request without an envelope": (
        *({"session": {"action": "start_new"}}, JOURNAL, bound),
        *(RecoveryShapeError, "turn_envelope_missing"),
    ),
    "a request that launches nothing": (
        *({**REQUEST, "session": {"action": "none"}}, JOURNAL, bound),
        *(RecoveryShapeError, "planned_session_action_unsupported"),
    ),
    "a resume of another session": (
        *({**REQUEST, "session": {"action": "resume", "id": "thread-2"}}, JOURNAL, bound),
        *(FailedTurnSessionRecoveryError, "session_binding_identity_mismatch"),
    ),
    **{
        f"a binding of another {field}": (
            *(REQUEST, JOURNAL, lambda _, field=field: {**BOUND, field: "other"}),
            *(FailedTurnSessionRecoveryError, "session_binding_identity_mismatch"),
        )
        for field in BOUND
    },
    **{
        f"a binding without {field}": (
            *(REQUEST, JOURNAL, lambda _, field=field: {k: v for k, v in BOUND.items() if k != field}),
            *(FailedTurnSessionRecoveryError, "session_binding_identity_mismatch"),
        )
        for field in BOUND
    },
    **{
        f"a turn without {field}": (
            *({**REQUEST, "turn_envelope": {k: v for k, v in BOUND.items() if k != field}}, JOURNAL, bound),
            *(FailedTurnSessionRecoveryError, "turn_lineage_missing"),
        )
        for field in BOUND
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_recovery_that_is_not_proven_right_is_refused(name: str) -> None:
    request, failed, resolver, kind, reason = REFUSED[name]
    with pytest.raises(kind) as raised:
        retried(request, failed, resolver)
    assert raised.value.reason == reason
    assessed = assess_failed_turn_retry_request(request, failed, session_binding_resolver=resolver)
    assert type(assessed.error) is kind
    assert assessed.check == {"kind": "host_session_binding", "outcome": "failed", "reason": reason}
    assert assessed.request == request, "the request that came is the one that is given back"


@pytest.mark.parametrize("none", [None, "text", 7, ["turn_envelope"], object()])
def test_what_is_no_mapping_is_refused_as_the_family_says(none: Any) -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (none, JOURNAL, bound),
        (REQUEST, none, bound),
        (none, {}, bound),
        (REQUEST, JOURNAL, lambda _: none or "nothing"),
        ({**REQUEST, "_recovery": none or "text"}, JOURNAL, bound),
        ({**REQUEST, "session": none}, JOURNAL, bound),
        ({**REQUEST, "turn_envelope": none}, JOURNAL, bound),
    ]
    for request, failed, resolver in cases:
        assessed = assess_failed_turn_retry_request(request, failed, session_binding_resolver=resolver)
        assert isinstance(assessed.error, RecoveryShapeError)
        with pytest.raises(ValueError, match=r".") as raised:
            retried(request, failed, resolver)
        assert type(raised.value) is RecoveryShapeError
    bindings: list[tuple[Any, Any]] = [(none, BOUND), (REQUEST, none or "nothing")]
    for request, binding in bindings:
        with pytest.raises(RecoveryShapeError):
            reconcile_failed_turn_session_request(request, binding)


def test_each_refusal_has_a_code_and_is_a_value_error() -> None:
    kinds = {kind for *_, kind, _ in REFUSED.values()}
    assert len({kind.code for kind in kinds}) == len(kinds) == 6
    assert all({ValueError, OutlastError} <= set(kind.__mro__) for kind in kinds)
    assert FailedTurnSessionRecoveryError.code == "failed_turn_session_recovery"


def test_what_a_resolver_says_of_itself_stays_out_of_the_message() -> None:
    with pytest.raises(RecoveryResolverError) as raised:
        retried(REQUEST, JOURNAL, broken)
    assert "registry" not in str(raised.value)
    assert isinstance(raised.value.__cause__, OSError)


def test_the_journal_alone_says_that_a_recovery_is_pending() -> None:
    assessed = assess_failed_turn_retry_request(REQUEST, JOURNAL)
    assert assessed.request == REQUEST
    assert assessed.check is not None
    assert (assessed.check["outcome"], assessed.error) == ("pending", None)
    refused = assess_failed_turn_retry_request(REQUEST, journal({**RECORD, "kind": "no"}))
    assert isinstance(refused.error, RecoveryKindError)


def test_a_resolver_is_asked_with_the_turns_envelope_and_only_when_it_is_needed() -> None:
    asked: list[Mapping[str, Any]] = []

    def resolver(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(envelope)
        return BOUND

    retried(REQUEST, {}, resolver)
    with pytest.raises(RecoveryPhaseError):
        retried(REQUEST, journal(RECORD, "validation"), resolver)
    assert asked == []
    retried(REQUEST, JOURNAL, resolver)
    assert asked == [REQUEST["turn_envelope"]]


def test_a_binding_alone_reconciles_a_request() -> None:
    assert reconcile_failed_turn_session_request(REQUEST, BOUND) == retried(REQUEST, JOURNAL)
    with pytest.raises(FailedTurnSessionRecoveryError):
        reconcile_failed_turn_session_request(with_goal(REQUEST), BOUND)
    with pytest.raises(FailedTurnSessionRecoveryError):
        reconcile_failed_turn_session_request(REQUEST, None)


# --- of a session's state ------------------------------------------------------------------------


def changed(state: str, session: str = "thread-1") -> t.AgentSessionChanged:
    return t.AgentSessionChanged(
        provider="codex",
        provider_session=session,
        state=state,  # type: ignore[arg-type]
        source="observed",
    )


def failed(*before: t.Body) -> JournalBuilder:
    """A turn failed in its host step, on the agent session that `before` tells of."""
    return JournalBuilder().running("a").add(*before, turn="a").fail("a")


NOT_LAUNCHED = t.TurnFailed(
    receipt=t.Receipt(
        attempt=1,
        completed_phases=["accept"],
        failed_phase="host_launch",
        error=t.ReceiptError(code="session_mismatch", message="another kind"),
    )
)
DECIDED = AgentSessionDecided(provider_session="thread-1", choice="fresh", by="ann")
AGAIN: Mapping[str, tuple[JournalBuilder, str | None, tuple[str, str | None, str | None, bool]]] = {
    "no session of its own": (JournalBuilder().accept("a"), None, ("start_new", None, None, False)),
    "a session and no failure": (
        JournalBuilder().running("a").add(changed("confirmed"), turn="a").done("a"),
        None,
        ("resume", "thread-1", None, False),
    ),
    "another kind of agent, and no failure": (
        JournalBuilder().running("a").add(changed("confirmed"), turn="a").done("a"),
        "claude",
        ("refuse", "thread-1", None, False),
    ),
    "a failure before there was a session": (failed(), None, ("start_new", None, "resume_session", False)),
    "a failure on a session": (
        failed(changed("bound")),
        None,
        ("resume", "thread-1", "resume_session", True),
    ),
    "the same kind of agent": (
        failed(changed("confirmed")),
        "codex",
        ("resume", "thread-1", "resume_session", True),
    ),
    "another kind of agent": (
        failed(changed("confirmed")),
        "claude",
        ("refuse", "thread-1", "resume_session", False),
    ),
    "another session, that the agent told of since": (
        failed(changed("bound")).add(changed("reseeded", "thread-2")),
        "codex",
        ("resume", "thread-2", None, False),
    ),
    "a start that was refused meanwhile": (
        failed(changed("bound")).accept("b").start("b", 2).add(NOT_LAUNCHED, turn="b"),
        "claude",
        ("refuse", "thread-1", "resume_session", False),
    ),
    "another turn that its agent was given": (
        failed(changed("bound")).running("b", 2).done("b"),
        "codex",
        ("resume", "thread-1", None, False),
    ),
    "a person's choice": (
        failed(changed("bound")).add(DECIDED),
        "claude",
        ("start_new", None, "resume_session", False),
    ),
}


@pytest.mark.parametrize("name", AGAIN)
def test_the_next_start_of_an_agent_is_one_decision(name: str) -> None:
    journal, kind, expected = AGAIN[name]
    chosen = next_session(journal.state(), "main", kind)
    assert (chosen.action, chosen.provider_session, chosen.recovery, chosen.skip_host) == expected
    assert (chosen.error is not None) == (chosen.action == "refuse")
    assert chosen.line()
    assert set(chosen.to_json()) >= {"loop", "action", "provider_session", "reason", "error"}
