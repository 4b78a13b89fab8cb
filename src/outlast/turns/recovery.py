"""Recovery of a failed turn: whether, and how, the agent's own session is resumed after its host step failed.

Pure, and over plain mappings, so that LoopX's requests and journals fit as they are. docs/recovery.md has the
shapes. A request that comes back from here says `_recovery.skip_host`: resuming the agent's session never
executes the failed host step again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec

from outlast.agents.failure import recovery_of
from outlast.errors import (
    FailedTurnRecoveryError,
    FailedTurnSessionRecoveryError,
    RecoveryKindError,
    RecoveryPhaseError,
    RecoveryResolverError,
    RecoverySchemaError,
    RecoveryShapeError,
)
from outlast.state.model import FailedHost, Loop, State

SCHEMA = "outlast_turn_host_recovery_v1"
LOOPX_SCHEMA = "loopx_turn_host_recovery_v0"
"""Read as the same thing; its binding names a goal too."""
KINDS = frozenset({"resume_session"})
FAILED_PHASE = "host_execute"

IDENTITY = ("session", "loop", "agent_kind", "provider_session")
"""What a binding says, and the turn's envelope with the same words: whose agent session it is."""
LOOPX_IDENTITY = (*IDENTITY, "goal_id")

Request = Mapping[str, Any]
"""`turn_envelope`, `session: {action: start_new | resume, id?}`, and whatever else its executor needs."""
TurnJournal = Mapping[str, Any]
"""`receipt: {failed_phase, host_recovery?, …}`; LoopX has `host_recovery` beside the receipt."""
Binding = Mapping[str, Any]
"""The fields of IDENTITY, and `goal_id` where LoopX asks."""
SessionBindingResolver = Callable[[Mapping[str, Any]], Binding | None]
"""Turn envelope -> the binding that is in force now, None where there is none."""


class Check(TypedDict):
    """What was looked at before an agent session is resumed. `pending`: the journal asks for it, and the
    binding was not looked at yet."""

    kind: Literal["host_session_binding"]
    outcome: Literal["passed", "failed", "pending"]
    reason: str


class Assessment(NamedTuple):
    """`request` is the resolved one, or the given one where there is nothing to recover or `error` says why
    not. `check` is None where the journal holds no recovery record."""

    request: dict[str, Any]
    check: Check | None
    error: FailedTurnRecoveryError | None


class _NotAsked:
    """Nobody wants the binding looked at."""


_NOT_ASKED = _NotAsked()


def assess_failed_turn_retry_request(
    request: Request,
    journal: TurnJournal,
    *,
    session_binding_resolver: SessionBindingResolver | _NotAsked | None = _NOT_ASKED,
) -> Assessment:
    """What a retry of the failed turn would do; raises nothing. Without a resolver argument only the journal
    is judged, and a recovery that it asks for is `pending`; None stands for a missing resolver, an error."""
    asked: object = request
    given = dict(asked) if isinstance(asked, Mapping) else {}
    try:
        _mapping(request, "request", "request_shape_mismatch")
        recovery = _recovery_of(journal)
        if recovery is None:
            return Assessment(given, None, None)
        schema = _checked(recovery, journal)
        if isinstance(session_binding_resolver, _NotAsked):
            return Assessment(given, _check("pending", "resume_session"), None)
        binding = _resolved(session_binding_resolver, request)
        resumed = _reconciled(request, binding, LOOPX_IDENTITY if schema == LOOPX_SCHEMA else IDENTITY)
    except FailedTurnRecoveryError as error:
        return Assessment(given, _check("failed", error.reason), error)
    return Assessment(resumed, _check("passed", "session_binding_matched"), None)


def reconcile_failed_turn_session_request(
    request: Request, session_binding: Binding | None
) -> dict[str, Any]:
    """The request with the agent session of `session_binding` resumed, once that is proven to be the one of
    the request's envelope. Raises FailedTurnSessionRecoveryError, RecoveryShapeError."""
    _mapping(request, "request", "request_shape_mismatch")
    envelope = _envelope(request)
    return _reconciled(request, session_binding, LOOPX_IDENTITY if "goal_id" in envelope else IDENTITY)


def reconcile_failed_turn_retry_request(
    request: Request, journal: TurnJournal, *, session_binding_resolver: SessionBindingResolver | None
) -> dict[str, Any]:
    """The request to retry the failed turn with: unchanged where its journal holds no recovery record, else
    with the agent session resumed. Raises a FailedTurnRecoveryError (a ValueError), and has launched nothing
    then."""
    assessed = assess_failed_turn_retry_request(
        request, journal, session_binding_resolver=session_binding_resolver
    )
    if assessed.error is not None:
        raise assessed.error
    return assessed.request


def _recovery_of(journal: TurnJournal) -> Mapping[str, Any] | None:
    """The journal's recovery record. Raises RecoveryShapeError where it has two, or one that is none."""
    _mapping(journal, "journal", "turn_journal_shape_mismatch")
    receipt = journal.get("receipt")
    inside = receipt.get("host_recovery") if isinstance(receipt, Mapping) else None
    found = [value for value in (inside, journal.get("host_recovery")) if value is not None]
    if not found:
        return None
    if len(found) == 2 and found[0] != found[1]:
        raise RecoveryShapeError(
            "the receipt and its journal hold two different recovery records",
            reason="host_recovery_ambiguous",
        )
    return _mapping(found[0], "recovery record", "host_recovery_shape_mismatch")


def _checked(recovery: Mapping[str, Any], journal: TurnJournal) -> str:
    """The schema of a record that may be acted on. Raises RecoverySchemaError, RecoveryKindError,
    RecoveryPhaseError."""
    schema = recovery.get("schema_version")
    if schema not in (SCHEMA, LOOPX_SCHEMA):
        raise RecoverySchemaError(
            f"the recovery record has the schema {schema!r:.100}; known are {SCHEMA} and {LOOPX_SCHEMA}",
            reason="host_recovery_schema_unsupported",
        )
    kind = recovery.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise RecoveryKindError(
            f"the recovery record asks for {kind!r:.100}; this outlast knows {', '.join(sorted(KINDS))}",
            reason="host_recovery_kind_unsupported",
        )
    receipt = journal.get("receipt")
    phase = receipt.get("failed_phase") if isinstance(receipt, Mapping) else None
    if phase != FAILED_PHASE:
        raise RecoveryPhaseError(
            f"the turn failed in {phase!r:.100}; an agent session is resumed only after {FAILED_PHASE}",
            reason="host_failure_phase_mismatch",
        )
    return str(schema)


def _resolved(resolver: SessionBindingResolver | None, request: Request) -> Binding | None:
    if resolver is None:
        raise RecoveryResolverError(
            "there is nobody to ask which agent session is bound now", reason="binding_resolver_unavailable"
        )
    envelope = _envelope(request)
    try:
        return resolver(envelope)
    except FailedTurnRecoveryError:
        raise
    except Exception as error:
        raise RecoveryResolverError(
            f"which agent session is bound now could not be found out ({type(error).__name__})",
            reason="binding_resolution_failed",
        ) from error


def _reconciled(request: Request, binding: Binding | None, identity: tuple[str, ...]) -> dict[str, Any]:
    session, envelope = request.get("session"), _envelope(request)
    action = session.get("action") if isinstance(session, Mapping) else None
    if not isinstance(session, Mapping) or action not in ("start_new", "resume"):
        raise RecoveryShapeError(
            f"the request's session action is {action!r:.100}, not start_new or resume",
            reason="planned_session_action_unsupported",
        )
    if not binding:
        raise FailedTurnSessionRecoveryError(
            "no agent session is bound now that the failed turn could be resumed on",
            reason="session_binding_missing",
        )
    _require_same(envelope, binding, identity)
    bound = binding["provider_session"]
    if session.get("id") not in (None, bound):
        raise _mismatch("the request resumes another agent session than the one that is bound")
    before = _mapping(request.get("_recovery") or {}, "request's _recovery", "request_shape_mismatch")
    recovered = {**before, "skip_host": True}
    return {**request, "session": {**session, "action": "resume", "id": bound}, "_recovery": recovered}


def _require_same(envelope: Mapping[str, Any], binding: Binding, identity: tuple[str, ...]) -> None:
    """Raises FailedTurnSessionRecoveryError unless both name the same, whole identity."""
    _mapping(binding, "binding", "session_binding_shape")
    lacking = [field for field in identity if not _named(envelope.get(field))]
    if lacking:
        raise FailedTurnSessionRecoveryError(
            f"the failed turn does not say its {', '.join(lacking)}", reason="turn_lineage_missing"
        )
    differs = [field for field in identity if envelope[field] != binding.get(field)]
    if differs:
        raise _mismatch(f"the agent session that is bound now has another {', '.join(differs)}")


def _mismatch(message: str) -> FailedTurnSessionRecoveryError:
    return FailedTurnSessionRecoveryError(
        message,
        reason="session_binding_identity_mismatch",
        hint="bind the failed turn's own agent session again, or begin a new one knowingly",
    )


def _named(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _mapping(value: object, what: str, reason: str) -> Mapping[str, Any]:
    """Raises RecoveryShapeError."""
    if not isinstance(value, Mapping):
        raise RecoveryShapeError(f"the {what} is no mapping of names to values", reason=reason)
    return value


def _envelope(request: Request) -> Mapping[str, Any]:
    envelope = request.get("turn_envelope")
    if not isinstance(envelope, Mapping):
        raise RecoveryShapeError("the request has no turn envelope", reason="turn_envelope_missing")
    return envelope


def _check(outcome: Literal["passed", "failed", "pending"], reason: str) -> Check:
    return Check(kind="host_session_binding", outcome=outcome, reason=reason)


# --- of a session's state --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NextSession:
    """What the next start of a loop's agent does with the provider's session: what the executor does, and
    what `outlast plan` and `outlast show` say. `refuse`: nothing is launched, for `error`, or for what is
    wrong with the session. Only a plan looks at what the program keeps of that: `put_back` replaces it by
    what was captured, `ask` parks the turn with a question about it."""

    loop: str
    action: Literal["start_new", "resume", "put_back", "ask", "refuse"]
    provider_session: str | None
    confirmed: bool
    reason: str
    failed_turn: str | None = None
    """Whose host step failed, and was not followed by another yet."""
    recovery: str | None = None
    """What its failure asks for: resume_session or fresh_session."""
    skip_host: bool = False
    """Resuming does not execute that host step again."""
    error: FailedTurnRecoveryError | None = None
    choices: tuple[str, ...] = ()
    """What a person is asked to choose from."""
    in_use: bool = False
    """Refused because somebody else drives the session."""

    def line(self) -> str:
        """For people."""
        what = {
            "start_new": "begins a new session",
            "resume": f"resumes {self.provider_session}",
            "put_back": f"resumes {self.provider_session}, put back as it was captured",
        }
        said = f"the agent {what[self.action]}" if self.action in what else "the agent is not started"
        if self.action == "ask":
            said = f"{said}, a person is asked to choose ({', '.join(self.choices)})"
        failed = ""
        if self.failed_turn is not None:
            failed = f", after turn {self.failed_turn} failed ({self.recovery or 'nothing to recover'})"
        return f"{said}{failed}: {self.reason}"

    def to_json(self) -> dict[str, object]:
        """The shape of `next_sessions` in `plan --json` and `show --json`."""
        return {
            "loop": self.loop,
            "action": self.action,
            "provider_session": self.provider_session,
            "confirmed": self.confirmed,
            "failed_turn": self.failed_turn,
            "recovery": self.recovery,
            "skip_host": self.skip_host,
            "reason": self.reason,
            "error": "session_in_use" if self.in_use else None if self.error is None else self.error.code,
            "choices": list(self.choices),
        }


def next_session(state: State, loop_id: str, agent_kind: str | None = None) -> NextSession:
    """The decision for a loop. `agent_kind` is that of the adapter that its agent's name stands for today;
    None: not known here, so the recorded one."""
    loop, failed = state.loops[loop_id], state.loops[loop_id].failed
    plain = _without_failure(loop)
    if failed is None:
        return _of_its_program(plain, loop, agent_kind)
    asked = recovery_of(failed.code) if failed.recovery is None else failed.recovery.kind
    told = _of_its_program(replace(plain, failed_turn=failed.turn, recovery=asked), loop, agent_kind)
    if failed.recovery is None or failed.provider_session is None or told.action != "resume":
        return told
    assessed = assess_failed_turn_retry_request(
        retry_request(state, loop, failed),
        retry_journal(failed),
        session_binding_resolver=lambda _: live_binding(state, loop, agent_kind),
    )
    if assessed.error is not None:
        return replace(told, action="refuse", reason=assessed.error.message, error=assessed.error)
    return replace(
        told,
        skip_host=True,
        provider_session=assessed.request["session"]["id"],
        reason=f"{plain.reason}; the failed turn is not sent again by that",
    )


def drives(kind: str, loop: Loop) -> bool:
    """Whether an agent of this kind can know the provider session that the loop has. Another kind's program
    has other files, and finds neither the session nor what may stand there under its name."""
    return loop.provider_session is None or kind == (loop.provider or loop.agent_kind)


def _of_its_program(chosen: NextSession, loop: Loop, agent_kind: str | None) -> NextSession:
    """`chosen`, or that nothing is launched: the agent's name stands for another program today."""
    if agent_kind is None or chosen.action != "resume" or drives(agent_kind, loop):
        return chosen
    had = loop.provider or loop.agent_kind
    error = _mismatch(
        f"session {chosen.provider_session} of the agent is one of {had}, and {loop.agent} stands for"
        f" {agent_kind} now: let it stand for {had} again, or let `outlast retry` begin a session of"
        f" {agent_kind} in its place, with --reseed or --fresh"
    )
    return replace(chosen, action="refuse", reason=error.message, error=error)


def _without_failure(loop: Loop) -> NextSession:
    session, known = loop.launches.provider_session, loop.provider_state
    confirmed = loop.launches.confirmed and known != "lost"
    if loop.provider_session is None:
        return NextSession(loop.loop, "start_new", None, False, "it has none of its own yet")
    if session is None:
        return NextSession(loop.loop, "start_new", None, False, f"a person has decided so ({loop.decided})")
    if known == "lost":
        reason = "it was lost: it is tried once more, and where that fails a person chooses"
    elif confirmed:
        reason = "it has ended a turn on it"
    else:
        reason = "it has not ended a turn on it yet: if it does not know it, it begins a new one, visibly"
    return NextSession(loop.loop, "resume", session, confirmed, reason)


def retry_request(state: State, loop: Loop, failed: FailedHost) -> dict[str, Any]:
    """The failed turn as a request to start its agent: its envelope names the agent session it ran on."""
    envelope = {
        "session": state.session,
        "loop": loop.loop,
        "agent_kind": failed.provider or loop.agent_kind,
        "provider_session": failed.provider_session,
        "turn": failed.turn,
    }
    return {"turn_envelope": envelope, "session": {"action": "start_new"}}


def retry_journal(failed: FailedHost) -> dict[str, Any]:
    """What the journal says of the failure."""
    receipt: dict[str, Any] = {"failed_phase": failed.phase}
    if failed.recovery is not None:
        receipt["host_recovery"] = msgspec.to_builtins(failed.recovery)
    return {"receipt": receipt}


def live_binding(state: State, loop: Loop, agent_kind: str | None = None) -> dict[str, Any] | None:
    """The agent session that the loop is bound to now; None where it has none."""
    if loop.provider_session is None:
        return None
    return {
        "session": state.session,
        "loop": loop.loop,
        "agent_kind": agent_kind or loop.provider or loop.agent_kind,
        "provider_session": loop.provider_session,
    }
