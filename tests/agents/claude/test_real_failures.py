"""What the real Claude Code says of a provider that fails, in the words of the taxonomy: its kind, its retry,
its sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import ONCE, ClaudePlace, claude_place

from outlast.agents.failure import kind_of
from outlast.records.types import InputReserved, TurnDone, TurnFailed, TurnParked, TurnRetried
from outlast.testing.scripted_model import Conversation, HttpError, Reply, StreamCut, StreamError

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]

PORTAL = HttpError(200, message="log in to this network first")
"""What something on the way says in the place of an answer."""
LIMITED = HttpError(429, message="slow down")
TOO_LONG = HttpError(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
NO_CREDIT = HttpError(400, "invalid_request_error", "Your credit balance is too low to access the API.")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        yield made


def log_in(place: ClaudePlace) -> None:
    """With a subscription's token in the place of a key: only then does Claude Code tell of limits."""
    place.variables |= {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy"}


def fails(place: ClaudePlace, error: HttpError | StreamError | StreamCut) -> None:
    """The model fails so."""
    place.model.script = lambda _: Reply(text="never whole", error=error)


def fails_after_a_call(place: ClaudePlace, error: HttpError | StreamCut, times: int) -> None:
    """The model fails so this often, once a command has run."""
    usual, left = place.model.script, [error] * times

    def script(conversation: Conversation) -> Reply:
        fails = conversation.results and left
        return Reply(text="never whole", error=left.pop()) if fails else usual(conversation)

    place.model.script = script


CAUSES: list[tuple[HttpError | StreamError | StreamCut, str, str]] = [
    (HttpError(401, message="invalid x-api-key"), "auth_failed", "Invalid API key"),
    (HttpError(403, "permission_error", "no"), "auth_failed", "403"),
    (HttpError(529, message="Overloaded"), "provider_overloaded", "529"),
    (HttpError(500, message="Internal server error"), "provider_overloaded", "500"),
    (StreamError("overloaded_error", "Overloaded"), "provider_overloaded", "Overloaded"),
    (LIMITED, "rate_limited", "slow down"),
    (NO_CREDIT, "quota_exhausted", "Credit balance is too low"),
    (StreamCut(0), "transport_lost", "ECONNRESET"),
    (StreamCut(3), "transport_lost", "ECONNRESET"),
    (StreamCut(5), "transport_lost", "mid-response"),
    (PORTAL, "transport_lost", "empty or malformed response"),
    (TOO_LONG, "unknown", "prompt_too_long"),
    (HttpError(404, "not_found_error", "model: none"), "unknown", "selected model"),
]


@pytest.mark.parametrize(("error", "code", "told"), CAUSES)
def test_a_failure_of_the_provider_is_of_its_kind_and_the_session_goes_on(
    place: ClaudePlace, error: HttpError | StreamError | StreamCut, code: str, told: str
) -> None:
    with place.config.open("a", encoding="utf-8") as config:
        config.write("retry_attempts = 0\n")
    usual = place.model.script
    fails(place, error)
    ended = place.run("hello").wait()
    place.model.script = usual

    assert ended.status == 1, ended
    receipt = place.journal("job").the(TurnFailed, "one").receipt
    assert (receipt.error.code, told in receipt.error.message) == (code, True), receipt.error
    assert kind_of(code).next_step.replace("`outlast retry`", "`outlast retry job`") in ended.stderr
    if kind_of(code).parks:
        assert place.journal("job").bodies(TurnParked, "one")
        assert place.call("skip", "job").status == 0
    assert place.run("and now?", key="two").wait().status == 0
    place.journal("job").assert_every_input_ends_once()
    place.assert_one_session()


@pytest.mark.parametrize("error", [StreamCut(3), PORTAL])
def test_a_lost_connection_is_tried_again_without_the_prompt_a_second_time(
    place: ClaudePlace, error: HttpError | StreamCut
) -> None:
    """Claude Code asks twice by itself: for a stream, then for a whole answer."""
    fails_after_a_call(place, error, times=2)
    ended = place.run(f"do it, please {ONCE}").wait()

    assert ended.status == 0, ended
    journal = place.journal("job")
    assert [body.receipt.error.code for body in journal.bodies(TurnFailed, "one")] == ["transport_lost"]
    assert journal.the(TurnRetried, "one").mode == "continue"
    journal.the(TurnDone, "one")
    assert len(journal.bodies(InputReserved, "one")) == 2
    assert place.lines("begun") == 1
    assert sum("do it, please" in item.text for item in place.told().of_kind("user")) == 1
    place.assert_one_session()


def test_a_used_up_limit_of_a_login_parks_and_says_when_it_is_renewed(place: ClaudePlace) -> None:
    log_in(place)
    resets = int(time.time()) + 7_200
    name = "anthropic-ratelimit-unified"
    headers = {
        f"{name}-status": "rejected",
        f"{name}-reset": f"{resets}",
        f"{name}-representative-claim": "five_hour",
        f"{name}-5h-status": "rejected",
        f"{name}-5h-reset": f"{resets}",
        f"{name}-5h-utilization": "1.0",
    }
    usual = place.model.script
    fails(place, HttpError(429, message="This request would exceed your account's limit.", headers=headers))
    for key, text in (("one", "hello"), ("two", "and now?")):
        place.send("job", text, key=key, agent="claude")
    ended = place.resume()
    place.model.script = usual

    assert ended.status == 1, ended
    error = place.journal("job").the(TurnFailed, "one").receipt.error
    assert error.code == "quota_exhausted"
    assert "5-hour limit" in error.message
    assert error.retry_after is not None
    assert 7_000 < error.retry_after <= 7_200
    assert "it is renewed in" in place.journal("job").the(TurnParked, "one").detail
    assert len(place.model.requests) == 1
    assert place.call("retry", "job").status == 0
    assert place.resume().outcomes == ["done", "done"]
    assert place.asked()[-1][-1] == "and now?"
    assert place.journal("job").the(TurnRetried, "one").mode == "continue"
    assert [text for text in place.asked()[-1] if "hello" in text] == ["hello"], "it has the prompt once"
    place.assert_one_session()


@pytest.mark.parametrize("error", [NO_CREDIT, HttpError(401, message="invalid x-api-key")])
def test_what_was_parked_after_work_is_gone_on_with_and_not_begun_again(
    place: ClaudePlace, error: HttpError
) -> None:
    usual = place.model.script
    fails_after_a_call(place, error, times=3)
    ended = place.run(f"do it, please {ONCE}").wait()
    assert ended.status == 1, ended
    place.model.script = usual
    assert place.journal("job").bodies(TurnParked, "one")
    assert place.call("retry", "job").status == 0
    assert place.resume().outcomes == ["done"]
    assert place.lines("begun") == 1
    assert sum("do it, please" in item.text for item in place.told().of_kind("user")) == 1
    place.assert_one_session()


def test_a_pause_that_all_users_are_asked_for_is_no_used_up_limit(place: ClaudePlace) -> None:
    """Claude Code says so in words that name the limit."""
    log_in(place)
    with place.config.open("a", encoding="utf-8") as config:
        config.write("retry_attempts = 0\n")
    fails(place, LIMITED)
    place.run("hello").wait()
    error = place.journal("job").the(TurnFailed, "one").receipt.error
    assert "not your usage limit" in error.message
    assert error.code == "rate_limited"
    assert not place.journal("job").bodies(TurnParked, "one")
