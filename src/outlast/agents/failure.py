"""Why a turn failed: the taxonomy as data, and how a failure is told.

What is proven decides before what is said: signal and status first, structured codes of the agent or its
provider second, known text last. Pure.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from shlex import quote
from typing import Literal

from outlast.agents.contract import ExitInfo, Failure
from outlast.agents.redaction import redact
from outlast.agents.retry import DISCONNECTED, OVERLOADED, RATE_LIMITED, RetryPolicy, sensible
from outlast.errors import naming

Recovery = Literal["resume_session", "fresh_session"]

KEPT_ELSEWHERE = "keeps this session elsewhere"
"""In a failure's message: the program goes by another file of the session than the one in its home. What was
captured helps nothing there."""

MESSAGE_LIMIT = 2_000
"""Characters of a failure's message."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One code of the taxonomy."""

    code: str
    recovery: Recovery | None
    """`resume_session`: the agent is started anew and resumes its own session. `fresh_session`: its own
    session is gone; a new one is made, visibly. None: nothing is broken that a restart would mend."""
    sentence: str
    """For the user: what happened."""
    next_step: str
    """For the user: what to do about it."""
    retry: RetryPolicy | None = None
    """How it is tried again by itself, where that can do nothing twice. None: never."""
    parks: bool = False
    """The same would happen to whatever comes next: the turn waits for a person, and the queue behind it."""


_KINDS = (
    Kind(
        "crashed",
        "resume_session",
        "The agent's process was ended by a signal.",
        "Send the next message: the agent is resumed. If it crashes again, run it by hand to see why.",
    ),
    Kind(
        "oom_killed",
        "resume_session",
        "The system killed the agent, or what it had started, for want of memory.",
        "Give it more memory or smaller work, then send the next message.",
    ),
    Kind(
        "exit_nonzero",
        "resume_session",
        "The agent ended with an error status.",
        "Read the end of its error output; mend what it names, then `outlast retry`.",
    ),
    Kind(
        "launch_failed",
        None,
        "The agent's program is not there or could not be started: no program ran.",
        "Mend what is named there: no program ran. Then `outlast retry`.",
        parks=True,
    ),
    Kind(
        "workspace_missing",
        None,
        "The folder that the agent is to work in is not there, or cannot be entered: no program ran.",
        "Put the folder back, then `outlast retry`.",
        parks=True,
    ),
    Kind(
        "home_unusable",
        None,
        "The folder in which the agent keeps its sessions cannot be used: no program ran.",
        "Mend what is named there, space or rights for instance; then `outlast retry`.",
        parks=True,
    ),
    Kind(
        "timeout_idle",
        "resume_session",
        "The agent said nothing for longer than `idle_timeout`, with no tool call and no question open.",
        "Raise `idle_timeout` if it was thinking; else `outlast retry`.",
    ),
    Kind(
        "timeout_total",
        "resume_session",
        "The turn took longer than `total_timeout`.",
        "Raise `total_timeout`, or split the work.",
    ),
    Kind(
        "transport_lost",
        "resume_session",
        "A connection was lost: the agent's to its provider, or ours to the agent, whose end was not seen.",
        "Look whether the network is there; then send the next message, or `outlast retry`.",
        retry=DISCONNECTED,
    ),
    Kind(
        "protocol_error",
        "resume_session",
        "The agent ended, or closed its output, without saying how the turn ended.",
        "Check that the program speaks the protocol and prints `done` last.",
    ),
    Kind(
        "auth_failed",
        None,
        "The provider refused the agent's credentials, or the agent has none.",
        "Log in with the agent's own command, or let its key through with `env`; then `outlast retry`.",
        parks=True,
    ),
    Kind(
        "rate_limited",
        "resume_session",
        "The provider asked for a pause: too many requests.",
        "Wait a little, then `outlast retry`.",
        retry=RATE_LIMITED,
    ),
    Kind(
        "quota_exhausted",
        None,
        "The account's quota or credit is used up.",
        "Raise it with the provider or wait until it is renewed; then `outlast retry`.",
        parks=True,
    ),
    Kind(
        "provider_overloaded",
        "resume_session",
        "The provider is overloaded or down.",
        "Wait a little, then `outlast retry`.",
        retry=OVERLOADED,
    ),
    Kind(
        "session_missing",
        "fresh_session",
        "The agent does not know its own session any more.",
        "Choose how to go on: `outlast retry` with --put-back (where it was captured), --reseed or --fresh.",
    ),
    Kind(
        "session_corrupt",
        "fresh_session",
        "The agent's own record of the session is damaged, older than it was, or cannot be read.",
        "Choose how to go on: `outlast retry` with --put-back, --as-is, --reseed or --fresh.",
    ),
    Kind(
        "session_in_use",
        "resume_session",
        "Another process writes the agent's own session.",
        "End it, or the work in it: a session has one writer. Then `outlast retry`.",
        parks=True,
    ),
    Kind(
        "version_unsupported",
        None,
        "This version of the agent cannot do what was asked of it.",
        "Install the version that `make agents` in a checkout of outlast brings; then `outlast retry`.",
    ),
    Kind(
        "input_lost",
        None,
        "What the store kept the input in is missing or damaged.",
        "Put it back from a backup, then `outlast retry`; or send the input again.",
    ),
    Kind(
        "output_limit",
        "resume_session",
        "The agent's output went over its size limit.",
        "Ask for less output, for example into a file; then send the next message.",
    ),
    Kind(
        "cancelled",
        None,
        "The turn was ended on request.",
        "Send the next message when you are ready.",
    ),
    Kind(
        "session_mismatch",
        None,
        "The agent session that is bound is not one that this agent can go on with: nothing was launched.",
        "Give the agent's name back to the program it had, then `outlast retry`; or begin another session.",
        parks=True,
    ),
    Kind(
        "effect_refused",
        None,
        "A step around the turn refused its result; the agent had done its part.",
        "Mend what it names, then `outlast settle STEP --not-done`: only that step runs again.",
    ),
    Kind(
        "effect_unknown",
        None,
        "Whether a step around the turn was done is not known.",
        "Look, then `outlast settle STEP --done` or `outlast settle STEP --not-done`.",
    ),
    Kind(
        "effect_missing",
        None,
        "A step around the turn is not known to the process that owns the session.",
        "Let the program that has it restore the session, then `outlast settle STEP --not-done`.",
    ),
    Kind(
        "unknown",
        "resume_session",
        "The agent failed for a reason that outlast does not know.",
        "Read its message and the end of its error output; then `outlast retry`.",
    ),
)
TAXONOMY: Mapping[str, Kind] = {kind.code: kind for kind in _KINDS}

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "auth_failed": (
        "authentication_error",
        "invalid_api_key",
        "invalid_authentication",
        "permission_error",
        "token_expired",
        "unauthenticated",
        "unauthorized",
    ),
    "rate_limited": ("rate_limit", "rate_limit_error", "rate_limit_exceeded", "too_many_requests"),
    "quota_exhausted": (
        "billing_error",
        "credit_balance_too_low",
        "insufficient_quota",
        "payment_required",
        "quota_exceeded",
        "resource_exhausted",
        "usage_limit_exceeded",
        "usage_limit_reached",
    ),
    "provider_overloaded": (
        "overloaded",
        "overloaded_error",
        "server_is_overloaded",
        "server_overloaded",
        "service_unavailable",
        "unavailable",
    ),
    "session_missing": (
        "conversation_not_found",
        "session_not_found",
        "thread_not_found",
        "unknown_session",
        "unknown_thread",
    ),
    "session_corrupt": ("corrupt_session", "transcript_corrupt"),
    "version_unsupported": ("unsupported_version", "upgrade_required"),
    "output_limit": ("output_too_large",),
    "transport_lost": ("broken_pipe", "connection_lost", "connection_reset"),
    "cancelled": ("aborted", "canceled", "interrupted"),
}
_CODES = {alias: code for code, aliases in _ALIASES.items() for alias in aliases}
_STATUSES = {401: "auth_failed", 402: "quota_exhausted", 403: "auth_failed", 429: "rate_limited"}
_SERVER_ERRORS = range(500, 600)

_TEXTS = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (
            r"no (conversation|session|thread|rollout) found|(session|thread|conversation) not found",
            "session_missing",
        ),
        (
            r"insufficient_quota|exceeded your current quota|usage limit|credit balance is too low",
            "quota_exhausted",
        ),
        (r"rate.?limit|too many requests", "rate_limited"),
        (r"overloaded|service (temporarily )?unavailable", "provider_overloaded"),
        (
            r"invalid (x-)?api.?key|incorrect api key|not logged in|please (run .{0,20})?log ?in",
            "auth_failed",
        ),
        (r"missing environment variable:? `?\w*(key|token)\b", "auth_failed"),
    )
)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = r"(?:ms|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?)(?![a-z])"
_AMOUNT = rf"\d{{1,9}}(?:\.\d{{1,9}})? ?{_UNIT}"
_PAUSE = re.compile(
    rf"(?:try again|retry) (?:in|after) ({_AMOUNT}(?:(?:,? and |, ?| )?{_AMOUNT}){{0,3}})", re.IGNORECASE
)
_PARTS = re.compile(r"([\d.]+) ?(ms|[smhd])", re.IGNORECASE)

_NEXT_ELSEWHERE = (
    "Do what is said there, then `outlast retry`; or begin anew: `outlast retry` with --reseed or --fresh."
)

OUTPUT_UNKEPT = (
    "the agent was ended: no file may grow so large as its output would make one; raise the limit (`ulimit -f"
    " unlimited`) for what starts outlast"
)


def kind_of(code: str) -> Kind:
    """What is known of `code`; a code that is not of the taxonomy is treated as `unknown`."""
    return TAXONOMY.get(code, TAXONOMY["unknown"])


def what_to_do(code: str, message: str, session: str, turn: str | None = None) -> str:
    """What a person can do about a failure, with the session in its commands, and the step around the turn
    that the message begins with: so that they can be pasted. `turn`: it may not be the one that `retry` means
    without a name."""
    step = _NEXT_ELSEWHERE if KEPT_ELSEWHERE in message else kind_of(code).next_step
    if turn is not None:
        step = step.replace("`outlast retry`", f"`outlast retry {quote(session)} {quote(turn)}`")
    step = naming(step, session)
    name = quote(message.partition(": ")[0])
    return step.replace("`outlast settle STEP", f"`outlast settle {quote(session)} {name}")


def recovery_of(code: str) -> Recovery | None:
    """How a session is recovered after a failure with `code`."""
    return kind_of(code).recovery


def classify_exit(info: ExitInfo) -> Failure:
    """What the end of a process says, when it never said how its turn ended."""
    if info.oom:
        whom = "the agent" if info.signal is not None else "a process that the agent waited for"
        return _exit_failure("oom_killed", f"the system killed {whom} for want of memory", info)
    if info.limited:
        return _exit_failure("output_limit", OUTPUT_UNKEPT, info)
    if info.killed and not info.lingered:
        return _exit_failure("cancelled", "the agent was ended on request", info)
    if info.killed and info.status is None:
        return _exit_failure(
            "protocol_error", "the agent closed its output and never said that it was done", info
        )
    if info.signal is not None:
        return _exit_failure("crashed", f"the agent was ended by {_signal_name(info.signal)}", info)
    if info.status is None:
        return _exit_failure("transport_lost", "how the agent ended is not known", info)
    if info.status:
        return _exit_failure(
            "exit_nonzero", f"the agent ended with status {info.status}{_status_note(info)}", info
        )
    return _exit_failure(
        "protocol_error", "the agent ended with status 0 and never said that it was done", info
    )


def classify_code(text: str) -> str:
    """The taxonomy's code for a structured code of an agent or provider (`rate_limit_error`, `429`);
    `unknown` for any other."""
    code = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text.strip()).lower()).strip("_")
    if re.fullmatch(r"[1-5]\d\d", code):
        return code_of_status(int(code))
    return code if code in TAXONOMY else _CODES.get(code, "unknown")


def code_of_status(status: int) -> str:
    """The taxonomy's code for the HTTP status with which a provider refused a model call."""
    return "provider_overloaded" if status in _SERVER_ERRORS else _STATUSES.get(status, "unknown")


def classify_text(text: str) -> str:
    """The code for a message that is known by its words; `unknown` for any other. The last resort."""
    return next((code for pattern, code in _TEXTS if pattern.search(text)), "unknown")


def reported(
    code: str,
    message: str,
    retry_after: float | None = None,
    retry: Literal["again", "continue"] | None = None,
) -> Failure:
    """The failure that an agent reports itself: by its code, else by known words in its message. The
    agent's own code stays in the message when it is none of ours."""
    known = classify_code(code)
    if known == "unknown":
        known = classify_text(message)
    shown = message if code == known or not code else f"{code}: {message}" if message else code
    retry_after = pause_in(message) if retry_after is None else retry_after
    return Failure(known, tidy(shown), retry_after=retry_after, retry=retry)


def pause_in(text: str) -> float | None:
    """Seconds that a message asks to be left alone, in a provider's words ("try again in 1m11.5s")."""
    asked = _PAUSE.search(text)
    if asked is None:
        return None
    return sensible(sum(float(number) * _UNITS[unit.lower()] for number, unit in _PARTS.findall(asked[1])))


def tidy(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` redacted and cut to what a message may hold."""
    text = redact(text[: 2 * MESSAGE_LIMIT], secrets)
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def without(failure: Failure, secrets: Iterable[str]) -> Failure:
    """`failure` with none of `secrets` in its message, nor the beginning of one where that was cut."""
    told = failure.message
    if told.endswith("…"):
        begins = (s[:n] for s in secrets if len(s) >= 8 for n in range(len(s), 3, -1))
        cut = max((b for b in begins if told[:-1].endswith(b)), key=len, default="")
        told = told[: len(told) - 1 - len(cut)] + "…"
    return replace(failure, message=redact(told, secrets))


def _exit_failure(code: str, message: str, info: ExitInfo) -> Failure:
    return Failure(code, message, signal=info.signal, exit_status=info.status)


def _signal_name(number: int) -> str:
    try:
        return f"{signals.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _status_note(info: ExitInfo) -> str:
    if info.status == 127:
        return ": a command was not found"
    if info.status == 126:
        return ": a command could not be executed"
    if info.status is not None and 128 < info.status < 160:
        return f": perhaps its child was ended by {_signal_name(info.status - 128)}"
    return ""
