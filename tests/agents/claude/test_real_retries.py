"""The real Claude Code against a model that asks for a pause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import ONCE, ClaudePlace, claude_place

from outlast.records.types import TurnFailed, TurnRetried
from outlast.testing.scripted_model import Conversation, HttpError, Reply

pytestmark = pytest.mark.real_agent
PROMPT = "do it, please"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        made.variables["CLAUDE_CODE_MAX_RETRIES"] = "1"
        yield made


def test_retry_after_is_waited_for_and_the_command_runs_once(place: ClaudePlace) -> None:
    """Claude Code waits for it once by itself, and is asked to go on when that was not enough."""
    usual, refused = place.model.script, list[bool]()

    def script(conversation: Conversation) -> Reply:
        if conversation.results and len(refused) < 2:
            refused.append(True)
            return Reply(error=HttpError(429, message="slow down", retry_after=6.0))
        return usual(conversation)

    place.model.script = script
    runtime = place.run(f"{PROMPT} {ONCE}")
    place.until_recorded("job", "TurnRetried")
    receipt = place.journal("job").the(TurnFailed, "one").receipt
    asked, planned = receipt.error.retry_after, receipt.retry
    assert receipt.error.code == "rate_limited"
    assert asked is not None
    assert asked >= 6.0
    assert planned is not None
    assert planned.wait >= asked
    place.call("retry", "job")  # Now: that it is waited in full is shown with quicker agents.
    assert runtime.wait().status == 0
    assert place.journal("job").the(TurnRetried, "one").mode == "continue"
    assert place.lines("begun") == 1
    assert sum(PROMPT in item.text for item in place.told().of_kind("user")) == 1
    place.assert_one_session()
