"""How a turn that codex has ended with an error can be taken up, and when a used-up limit is over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.codex.test_fold import Lab, a_prompt, command

from outlast.agents.contract import AgentEvent, ExitInfo, Failure, TurnEnded

LIMIT: dict[str, Any] = {"message": "the limit", "codexErrorInfo": "usageLimitExceeded"}
RATE: dict[str, Any] = {"message": "slow down", "codexErrorInfo": "rateLimitExceeded"}
NOW = 1_790_000_000


def failure_of(events: list[AgentEvent]) -> Failure:
    (ended,) = (event for event in events if isinstance(event, TurnEnded))
    assert ended.failure is not None
    return ended.failure


def test_a_prompt_that_codex_has_stored_is_gone_on_from() -> None:
    lab = Lab().ready().running()
    assert failure_of(lab.ends(status="failed", error=RATE)).retry == "continue"


def test_a_prompt_that_codex_has_not_stored_is_given_again() -> None:
    lab = Lab().ready()
    [frame] = lab.write(prompt=a_prompt(), session_durable=True)
    lab.answers(frame["id"], {"turn": {"id": "t1", "items": [], "status": "inProgress"}})
    assert failure_of(lab.ends(status="failed", error=RATE)).retry == "again"


def test_a_call_that_has_ended_stands_in_the_thread() -> None:
    lab = Lab().ready().running()
    lab.item("started", command())
    lab.item("completed", command(status="completed", exitCode=0))
    assert failure_of(lab.ends(status="failed", error=RATE)).retry == "continue"


def test_a_call_without_an_end_is_a_persons() -> None:
    lab = Lab().ready().running()
    lab.item("started", command())
    assert failure_of(lab.ends(status="failed", error=RATE)).retry is None


def test_codex_that_died_has_not_said_what_it_had_done() -> None:
    lab = Lab().ready().running()
    assert failure_of(lab.fold.apply_exit(ExitInfo(None, None))).retry is None


def test_a_pause_in_the_message_is_the_retry_after() -> None:
    lab = Lab().ready().running()
    error = {**RATE, "message": "rate limit exceeded: try again in 11.5s"}
    assert failure_of(lab.ends(status="failed", error=error)).retry_after == 11.5


@pytest.mark.parametrize(
    ("info", "message", "code"),
    [
        (None, "Missing environment variable: `OPENAI_API_KEY`.", "auth_failed"),
        ("other", "Missing environment variable: `MY_PROVIDER`. Set it.", "auth_failed"),
        ("other", "Not logged in", "auth_failed"),
        ("other", "the weather is bad", "unknown"),
        ("usageLimitExceeded", "please log in", "quota_exhausted"),
    ],
)
def test_that_codex_has_no_key_is_known_by_its_words_where_it_has_no_code(
    info: str | None, message: str, code: str
) -> None:
    lab = Lab().ready().running()
    error = {"message": message, "codexErrorInfo": info}
    assert failure_of(lab.ends(status="failed", error=error)).code == code


def window(used: float, over: int | None) -> dict[str, Any]:
    return {"usedPercent": used, "windowDurationMins": 300, "resetsAt": over}


@pytest.mark.parametrize(
    ("primary", "secondary", "error", "seconds"),
    [
        (window(100, NOW + 7200), window(40, NOW + 90_000), LIMIT, 7200.0),
        (window(100, NOW + 7200), window(100, NOW + 90_000), LIMIT, 90_000.0),
        (window(100, NOW + 7200), None, RATE, None),
        (window(99, NOW + 7200), window(40, NOW + 90_000), LIMIT, None),
        (window(100, None), None, LIMIT, None),
        (window(100, NOW - 5), None, LIMIT, None),
        (window(100, NOW * 1000), None, LIMIT, None),
        (window(100, 10**400), None, LIMIT, None),
        (None, None, LIMIT, None),
    ],
)
def test_the_end_of_a_used_up_limit(
    primary: dict[str, Any] | None, secondary: dict[str, Any] | None, error: Any, seconds: float | None
) -> None:
    lab = Lab().ready().running()
    limits = {"limitId": "codex", "primary": primary, "secondary": secondary}
    told = {"method": "account/rateLimits/updated", "params": {"rateLimits": limits}}
    assert lab.out({**told, "emittedAtMs": NOW * 1000}) == []
    turn = {"id": "t1", "status": "failed", "error": error, "items": []}
    ended = {"method": "turn/completed", "params": {"threadId": "", "turn": turn}}
    failure = failure_of(lab.out({**ended, "emittedAtMs": NOW * 1000 + 400}))
    assert failure.retry_after == seconds


def test_an_answer_that_ends_too_early_is_a_lost_connection() -> None:
    """Codex has no code of its own for it."""
    words = "stream disconnected before completion: stream closed before response.completed"
    lab = Lab().ready().running()
    failure = failure_of(lab.ends(status="failed", error={"message": words, "codexErrorInfo": "other"}))
    assert (failure.code, failure.retry) == ("transport_lost", "continue")


def test_another_error_without_a_code_stays_unknown() -> None:
    lab = Lab().ready().running()
    other = {"message": "The model x does not exist", "codexErrorInfo": "other"}
    assert failure_of(lab.ends(status="failed", error=other)).code == "unknown"
