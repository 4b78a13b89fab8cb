"""The real codex, and a model whose answer ends too early."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, CodexPlace, codex_place

from outlast.records.types import TurnDone, TurnFailed, TurnRetried
from outlast.testing.scripted_model import Conversation, HttpError, Reply, StreamCut

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


@pytest.mark.parametrize(
    "error", [StreamCut(0), StreamCut(3), HttpError(200, message="log in to this network first")]
)
def test_a_cut_answer_is_a_lost_connection_and_the_turn_goes_on(
    place: CodexPlace, error: HttpError | StreamCut
) -> None:
    """Once a command has run: it does not run again, and the model has the prompt once."""
    usual, left = place.model.script, [error]

    def script(conversation: Conversation) -> Reply:
        fails = conversation.results and left
        return Reply(text="never whole", error=left.pop()) if fails else usual(conversation)

    place.model.script = script
    ended = place.run(f"do it, please {ONCE}").wait()

    assert ended.status == 0, ended
    journal = place.journal("job")
    assert [body.receipt.error.code for body in journal.bodies(TurnFailed, "one")] == ["transport_lost"]
    assert journal.the(TurnRetried, "one").mode == "continue"
    journal.the(TurnDone, "one")
    assert place.lines("begun") == 1
    assert sum("do it, please" in item.text for item in place.told().of_kind("user")) == 1
    place.assert_one_thread()
