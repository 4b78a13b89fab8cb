"""What a failed result says, in the words of the failure taxonomy.

The HTTP status is the structured code; without one the program's own word (`api_error`, and `error` of the
message that tells it), and known words of its text last. What the taxonomy has no word for, such as a limit
of model calls, is `unknown` with the program's own word in the message."""

from __future__ import annotations

from outlast.agents.claude.wire import Result
from outlast.agents.contract import Failure
from outlast.agents.failure import classify_code, classify_text, code_of_status, pause_in, tidy
from outlast.agents.retry import sensible

MISSING = "No conversation found"
"""How the program begins to say that it has no session of this id."""

_WORDS = {
    "authentication_failed": "auth_failed",
    "oauth_org_not_allowed": "auth_failed",
    "billing_error": "quota_exhausted",
    "rate_limit": "rate_limited",
    "overloaded": "provider_overloaded",
    "server_error": "provider_overloaded",
    "connection_failed": "transport_lost",
    "connection_error": "transport_lost",
    "timeout": "transport_lost",
}


_NOT_SPENT = "(not your usage limit)"
"""What the program says of a pause that all users are asked for (measured, with a login)."""
_MALFORMED = "empty or malformed response"
"""What it says of an answer that something on the way has cut or replaced, without a code (measured)."""
_OF_THE_API = "api_error"
"""Why a turn ended, where the error of the API says more."""
_PAUSED = frozenset({"rate_limited", "provider_overloaded"})


def turn_failure(result: Result, word: str, *, pause: float = 0.0, renewed_in: float = 0.0) -> Failure:
    """The failure of a turn that ended with an error. `word` is what the program called it in its message,
    empty where it told none; `pause`: the seconds that it waited for the provider before its last try,
    `renewed_in`: those until a limit ends; 0 where it told none."""
    said = result.result or "; ".join(result.errors)
    code = _code(result, word, said)
    reason = "" if result.terminal_reason == _OF_THE_API else result.terminal_reason
    detail = reason or result.api_error_type or result.api_error or word or result.subtype
    message = f"claude ({detail}): {tidy(said)}" if said else f"claude ended the turn: {detail}"
    asked = pause_in(said)
    if asked is None and code == "quota_exhausted":
        asked = renewed_in or None
    elif asked is None and code in _PAUSED:
        asked = renewed_in or pause or None
    return Failure(code, message, retry_after=sensible(asked))


def _code(result: Result, word: str, said: str) -> str:
    spent = classify_text(said.replace(_NOT_SPENT, ""))
    if "quota_exhausted" in (classify_code(result.api_error), classify_code(word)):
        return "quota_exhausted"
    if result.api_error_status is not None:
        if spent == "quota_exhausted":
            return spent  # A used up quota comes with the status of a rate limit, or of a bad request.
        return code_of_status(result.api_error_status)
    for name in (result.api_error, word, result.api_error_type):
        known = _WORDS.get(name) or classify_code(name)
        if known != "unknown":
            return known
    return "transport_lost" if _MALFORMED in said else spent


def session_failure(result: Result) -> Failure:
    """Why the program could not open the session."""
    said = "; ".join(result.errors) or result.result
    if MISSING in said:
        return Failure("session_missing", "claude has no conversation with this id")
    return Failure("unknown", f"claude could not open its session: {tidy(said)}")


def is_abort(result: Result) -> bool:
    """Whether the turn ended because it was interrupted."""
    return result.terminal_reason.startswith("aborted")
