"""What looks like a credential is taken out, and nothing else; at any length."""

from __future__ import annotations

import pytest

from outlast.agents.redaction import redact


def test_values_that_are_known_to_be_secret_are_taken_out_wherever_they_are() -> None:
    assert redact("xhunter2hunter2x", ["hunter2hunter2", "short"]) == "x[redacted]x"


@pytest.mark.parametrize(
    "text",
    [
        "the token expired",
        "max_tokens is too high",
        "no api key found",
        "see https://example.com/a@b",
        "task-123456",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["token", "-eyJ", "api_key ", "token\t", "://a", "bearer ", "a=token="])
def test_a_long_text_holds_nobody_up(piece: str) -> None:
    """A program may say a megabyte of anything: hours, where a pattern goes back over all of it each time."""
    told = redact(piece * 100_000 + " password=canarycanary")
    assert "canary" not in told[-100:]
