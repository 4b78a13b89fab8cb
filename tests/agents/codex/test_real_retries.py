"""The real codex against a model that refuses: what is tried again by itself, how, and what is not.

Most waits are cut short by `outlast retry`; one is waited in full here, others with quicker agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, CodexPlace, codex_place
from tests.support.processes import Child

from outlast.records.types import (
    InputReserved,
    LoopChanged,
    PlannedRetry,
    TurnDone,
    TurnFailed,
    TurnParked,
    TurnRetried,
)
from outlast.testing.scripted_model import Conversation, HttpError, Reply, StreamError

pytestmark = pytest.mark.real_agent
PROMPT = "do it, please"
LIMITED = HttpError(429, "rate_limit_exceeded", "slow down")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def refuses(
    place: CodexPlace, error: HttpError | StreamError, when: Callable[[Conversation], bool] = lambda _: True
) -> None:
    """The model refuses once, when `when` says so; else it does what it is told."""
    usual = place.model.script
    refused: list[bool] = []

    def script(conversation: Conversation) -> Reply:
        if not refused and when(conversation):
            refused.append(True)
            return Reply(error=error)
        return usual(conversation)

    place.model.script = script


def waits(place: CodexPlace, text: str) -> Child:
    runtime = place.run(text)
    place.until_recorded("job", "TurnRetried")
    return runtime


def planned(place: CodexPlace) -> PlannedRetry:
    retry = place.journal("job").the(TurnFailed).receipt.retry
    assert retry is not None
    return retry


def goes_on(place: CodexPlace, runtime: Child) -> None:
    place.call("retry", "job")
    ended = runtime.wait()
    assert ended.status == 0, ended
    journal = place.journal("job")
    assert journal.the(TurnRetried).mode == "continue"
    assert len(journal.bodies(TurnDone)) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_thread()


def prompts(place: CodexPlace) -> int:
    """How often the input stands in what the model was told last."""
    return sum(PROMPT in item.text for item in place.told().of_kind("user"))


def test_a_refused_turn_goes_on_in_its_thread(place: CodexPlace) -> None:
    """Codex has stored the prompt: it is asked to go on, and the model sees the prompt once."""
    refuses(place, LIMITED)
    runtime = waits(place, PROMPT)
    error = place.journal("job").the(TurnFailed).receipt.error
    assert error.code == "rate_limited"
    assert planned(place).mode == "continue"
    goes_on(place, runtime)
    assert prompts(place) == 1


def test_a_call_that_was_made_is_not_made_again(place: CodexPlace) -> None:
    """Refused after a command has run: the model is told its result, and the command has run once."""
    refuses(place, LIMITED, lambda conversation: bool(conversation.results))
    runtime = waits(place, f"{PROMPT} {ONCE}")
    goes_on(place, runtime)
    assert place.lines("begun") == 1
    assert prompts(place) == 1


def test_owner_killed_in_the_wait(place: CodexPlace) -> None:
    """The next owner adopts the living codex, waits, and goes on in it."""
    refuses(place, LIMITED)
    waits(place, PROMPT).kill()
    codex = place.codex
    owner = place.start("resume", "job", "--json")
    place.until_recorded("job", "RestoreDone")
    assert place.codex == codex
    place.call("retry", "job")
    assert owner.wait().outcomes == ["done"]
    assert prompts(place) == 1
    assert len(place.journal("job").bodies(InputReserved)) == 2


@pytest.mark.parametrize(
    ("error", "code", "wait"),
    [
        (StreamError("rate_limit_exceeded", "please try again in 35s"), "rate_limited", 35),
        (StreamError("server_is_overloaded", "busy"), "provider_overloaded", 0),
        (HttpError(503, "", "down"), "provider_overloaded", 0),
    ],
)
def test_kinds_that_pass_by_themselves(
    place: CodexPlace, error: HttpError | StreamError, code: str, wait: float
) -> None:
    refuses(place, error)
    runtime = waits(place, PROMPT)
    assert place.journal("job").the(TurnFailed).receipt.error.code == code
    assert planned(place).wait >= wait
    goes_on(place, runtime)


def test_a_pause_that_the_provider_names_is_waited_in_full(place: CodexPlace) -> None:
    refuses(place, StreamError("rate_limit_exceeded", "please try again in 0m3s"))
    ended = place.run(PROMPT).wait()
    assert ended.status == 0, ended
    journal = place.journal("job")
    assert planned(place).wait >= 3
    due = datetime.fromisoformat(planned(place).not_before).timestamp()
    given_again = journal.of("InputReserved")[-1].at / 1_000_000  # from microseconds
    assert given_again >= due - 0.001
    assert len(journal.bodies(TurnDone)) == 1
    assert prompts(place) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HttpError(401, "invalid_api_key", "who are you"), "auth_failed"),
        (HttpError(400, "invalid_request_error", "what"), "unknown"),
    ],
)
def test_kinds_that_only_a_person_can_mend(place: CodexPlace, error: HttpError, code: str) -> None:
    refuses(place, error)
    ended = place.run(PROMPT).wait()
    assert ended.status == 1
    journal = place.journal("job")
    assert journal.the(TurnFailed).receipt.error.code == code
    assert not journal.bodies(TurnRetried)


@pytest.mark.parametrize("worked", [False, True])
def test_a_quota_that_is_used_up(place: CodexPlace, worked: bool) -> None:
    """The turn is parked and the queue held; what waits is not sent to a provider that refuses it. A person's
    retry goes on in the thread: the model sees the prompt once. `worked`: refused after a command has run."""
    error = HttpError(429, "insufficient_quota", "You exceeded your current quota")
    refuses(place, error, (lambda conversation: bool(conversation.results)) if worked else lambda _: True)
    ended = place.run(f"{PROMPT} {ONCE}" if worked else PROMPT).wait()
    assert "parked" in ended.stderr
    journal = place.journal("job")
    assert journal.the(TurnFailed).receipt.error.code == "quota_exhausted"
    assert "the quota is used up" in journal.the(TurnParked).detail
    assert journal.the(LoopChanged).state == "held"
    place.call("retry", "job")
    assert place.resume().outcomes == ["done"]
    assert place.journal("job").the(TurnRetried).mode == "continue"
    assert prompts(place) == 1
    assert place.lines("begun") == (1 if worked else 0)
    place.assert_one_thread()
