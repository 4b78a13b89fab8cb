"""codex's error codes in the words of the failure taxonomy.

`codexErrorInfo` is the structured code; the text of a message decides only where codex has no code: a
thread that is not there, one that another process writes and a broken configuration are all JSON-RPC -32600
(measured with 0.163; a damaged transcript is -32603). What the taxonomy has no word for, such as a full
context window, is `unknown` with codex's own word in the message.
"""

from __future__ import annotations

import msgspec

from outlast.agents.codex.wire import RpcError, TurnError
from outlast.agents.contract import Failure
from outlast.agents.failure import classify_text, code_of_status, pause_in, tidy
from outlast.agents.shapes import decode

_CODES = {
    "usageLimitExceeded": "quota_exhausted",
    "sessionBudgetExceeded": "quota_exhausted",
    "rateLimitExceeded": "rate_limited",
    "serverOverloaded": "provider_overloaded",
    "flexUnavailable": "provider_overloaded",
    "internalServerError": "provider_overloaded",
    "unauthorized": "auth_failed",
}
_INTERNAL_ERROR = -32603
_MISSING = ("no rollout found", "thread not found", "invalid session id")
_TRANSPORT = (
    "httpConnectionFailed",
    "responseStreamConnectionFailed",
    "responseStreamDisconnected",
    "responseTooManyFailedAttempts",
)
_CUT = "stream disconnected before completion"
"""How codex tells of an answer that ended too early (measured: its code is `other` then)."""


_NO_KEY = "Missing environment variable: "


def turn_failure(error: TurnError | None) -> Failure:
    """The failure of a turn that codex ended with an error."""
    if error is None:
        return Failure("unknown", "codex ended the turn as failed and gave no reason")
    info = error.codex_error_info
    name = info if isinstance(info, str) else next(iter(info), "") if info else ""
    status = info[name].http_status_code if isinstance(info, dict) and name else None
    code = _CODES.get(name, "unknown")
    if name in _TRANSPORT:
        code = _transport_code(status)
    elif name in ("", "other") and error.message.startswith(_CUT):
        code = "transport_lost"
    elif name in ("", "other"):
        code = _of_words(error.message)
    detail = f" ({name})" if name else ""
    return Failure(code, f"codex{detail}: {tidy(error.message)}", retry_after=pause_in(error.message))


def _of_words(message: str) -> str:
    """That codex has no credentials it tells in words alone: the key that its provider is configured to use
    may be in an environment variable of any name."""
    if message.startswith(_NO_KEY) or classify_text(message) == "auth_failed":
        return "auth_failed"
    return "unknown"


def _transport_code(status: int | None) -> str:
    if status is None:
        return "transport_lost"
    return code_of_status(status)


def session_failure(error: RpcError) -> Failure:
    """Why codex refused to start or resume a thread. Only what is wrong with the thread itself is a failure
    of the session: a refusal for another reason leaves the thread as good as it was."""
    if "active writer" in error.message:
        message = "another process has this codex thread open: look for a codex in another terminal or editor"
        return Failure("session_in_use", message)
    if _is_missing(error):
        return Failure("session_missing", "codex has no record of this thread")
    if error.code == _INTERNAL_ERROR:
        return Failure("session_corrupt", f"codex cannot load this thread: {tidy(error.message)}")
    return Failure(_of_words(error.message), f"codex refused to open a thread: {tidy(error.message)}")


def _is_missing(error: RpcError) -> bool:
    return any(text in error.message for text in _MISSING)


def prompt_failure(error: RpcError) -> Failure:
    """Why codex refused to start a turn: nothing of it ran."""
    if _is_missing(error):
        return Failure("session_missing", "codex does not know this thread")
    refused = decode(error.data, _RefusedInput)
    if refused is not None and refused.input_error_code == "input_too_large":
        return Failure("unknown", f"the input is too long for codex: it takes {refused.max_chars} characters")
    code = _of_words(error.message)
    code = "protocol_error" if code == "unknown" else code
    return Failure(code, f"codex refused the turn: {tidy(error.message)}")


class _RefusedInput(msgspec.Struct, frozen=True):
    input_error_code: str = ""
    max_chars: int = 0
