"""What a failure is called, what is done about it, and what its message may hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.agents.contract import ExitInfo, Failure
from outlast.agents.failure import (
    MESSAGE_LIMIT,
    TAXONOMY,
    classify_code,
    classify_exit,
    classify_text,
    kind_of,
    pause_in,
    recovery_of,
    reported,
    tidy,
)

CODES = [
    "crashed",
    "oom_killed",
    "exit_nonzero",
    "launch_failed",
    "workspace_missing",
    "home_unusable",
    "timeout_idle",
    "timeout_total",
    "transport_lost",
    "protocol_error",
    "auth_failed",
    "rate_limited",
    "quota_exhausted",
    "provider_overloaded",
    "session_missing",
    "session_corrupt",
    "session_in_use",
    "version_unsupported",
    "input_lost",
    "output_limit",
    "cancelled",
    "session_mismatch",
    "effect_refused",
    "effect_unknown",
    "effect_missing",
    "unknown",
]


def test_every_code_says_what_happened_and_what_to_do() -> None:
    assert list(TAXONOMY) == CODES
    for kind in TAXONOMY.values():
        assert kind.sentence.endswith(".")
        assert kind.next_step.endswith(".")


def test_only_a_session_that_is_gone_is_begun_afresh() -> None:
    fresh = {code for code in CODES if recovery_of(code) == "fresh_session"}
    assert fresh == {"session_missing", "session_corrupt"}
    assert recovery_of("crashed") == "resume_session"
    assert recovery_of("cancelled") is None


def test_a_code_of_nobody_is_treated_as_unknown() -> None:
    assert kind_of("no_such_code") is TAXONOMY["unknown"]


@pytest.mark.parametrize(
    ("info", "code", "says"),
    [
        (ExitInfo(None, 9), "crashed", "SIGKILL (signal 9)"),
        (ExitInfo(None, 11), "crashed", "SIGSEGV"),
        (ExitInfo(None, 250), "crashed", "signal 250"),
        (ExitInfo(None, 9, oom=True), "oom_killed", "memory"),
        (ExitInfo(None, 9, oom=True, killed=True), "oom_killed", "memory"),
        (ExitInfo(3, None), "exit_nonzero", "status 3"),
        (ExitInfo(127, None), "exit_nonzero", "not found"),
        (ExitInfo(137, None), "exit_nonzero", "SIGKILL"),
        (ExitInfo(0, None), "protocol_error", "never said that it was done"),
        (ExitInfo(None, None), "transport_lost", "not known"),
        (ExitInfo(None, 9, killed=True), "cancelled", "on request"),
        (ExitInfo(None, 9, killed=True, limited=True), "output_limit", "ulimit -f"),
        (ExitInfo(None, 9, killed=True, lingered=True), "protocol_error", "closed its output"),
        (ExitInfo(3, None, killed=True, lingered=True), "exit_nonzero", "status 3"),
    ],
)
def test_signal_and_status_are_told_apart(info: ExitInfo, code: str, says: str) -> None:
    failure = classify_exit(info)
    assert failure.code == code
    assert says in failure.message
    assert (failure.signal, failure.exit_status) == (info.signal, info.status)


@pytest.mark.parametrize(
    ("given_code", "code"),
    [
        *((code, code) for code in CODES),
        ("rate_limit_error", "rate_limited"),
        ("rateLimitExceeded", "rate_limited"),
        ("Rate-Limited", "rate_limited"),
        ("429", "rate_limited"),
        ("401", "auth_failed"),
        ("403", "auth_failed"),
        ("500", "provider_overloaded"),
        ("504", "provider_overloaded"),
        ("404", "unknown"),
        ("600", "unknown"),
        ("insufficient_quota", "quota_exhausted"),
        ("overloaded_error", "provider_overloaded"),
        ("thread_not_found", "session_missing"),
        ("", "unknown"),
        ("my_own_code", "unknown"),
        ("\0💥", "unknown"),
    ],
)
def test_structured_codes_are_recognised(given_code: str, code: str) -> None:
    assert classify_code(given_code) == code


def test_known_words_decide_only_where_no_code_does() -> None:
    assert classify_text("Error: No conversation found with session ID x") == "session_missing"
    assert classify_text("the weather is bad") == "unknown"
    assert classify_text("Missing environment variable: `OPENAI_API_KEY`.") == "auth_failed"
    assert classify_text("Missing environment variable: `EDITOR`.") == "unknown"
    assert reported("oops", "429 Too Many Requests").code == "rate_limited"
    assert reported("auth_failed", "Too Many Requests").code == "auth_failed"


def test_an_agents_own_code_stays_readable() -> None:
    assert reported("disk_melted", "it is hot").message == "disk_melted: it is hot"
    assert reported("crashed", "boom").message == "boom"
    assert reported("", "boom").message == "boom"
    assert reported("disk_melted", "").message == "disk_melted"


CANARIES = [
    "sk-ant-api03-canary-canary",
    "ghp_canarycanarycanary",
    "Bearer canary.canary",
    "Authorization: Bearer canarycanary",
    'api_key="canarycanary"',
    "OPENAI_API_KEY=canarycanary",
    '{"access_token": "canarycanary"}',
    "password: canarycanary",
    "https://user:canary@proxy.example/x",
    "AKIACANARYCANARY1234",
    "eyJhbGciOiJIUzI1NiJ9.canarycanary.canary",
    "my-secret=canarycanary&x=1",
]


@pytest.mark.parametrize("text", CANARIES)
def test_credential_leak(text: str) -> None:
    """What looks like a credential in a provider's error text reaches no message."""
    for message in (text, f"request failed ({text}), giving up", f"{{'error': '{text}'}}"):
        told = reported("oops", message).message
        assert "canary" not in told.lower()
        assert "[redacted]" in told


@given(st.text())
def test_a_message_is_bounded(text: str) -> None:
    assert len(tidy(text * 500)) <= MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("rate limit exceeded: please try again in 11.5s", 11.5),
        ("Rate limit reached. Please try again in 20 seconds.", 20.0),
        ("Try again in 850ms", 0.85),
        ("please retry after 2 minutes", 120.0),
        ("Please try again in 7m12s.", 432.0),
        ("try again in 1h30m", 5400.0),
        ("Try again in 2 hours and 5 minutes.", 7500.0),
        ("retry after 1 day, 3 hrs", 97200.0),
        ("try again in 3 days", 259200.0),
        ("try again in 12 mins 30 secs", 750.0),
        ("try again in 5 months", None),
        ("or try again at 6:19 AM", None),
        ("try again in a moment", None),
        ("try again in 3 steps", None),
    ],
)
def test_a_pause_is_known_by_its_words(text: str, seconds: float | None) -> None:
    assert pause_in(text) == seconds
    assert reported("429", text) == Failure("rate_limited", f"429: {text}", retry_after=seconds)
    assert reported("429", text, 3.0).retry_after == 3.0
