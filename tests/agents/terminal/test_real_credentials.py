"""A provider that repeats the key in its refusal: a person at a terminal does not see it, no record of the
failure has it, and what people and the model said to each other is kept as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agents.matrix.programs import PROGRAMS, Program

from outlast.records.types import InputAccepted, TurnFailed
from outlast.testing.scripted_model import HttpError, Reply

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]

KEY = "correct-horse-battery"
"""It has no shape by which a key is known."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_refusal_is_told_without_the_key_that_the_agent_was_given(program: Program, tmp_path: Path) -> None:
    with program.place(tmp_path / "place", False) as place:
        place.variables |= {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
        error = HttpError(401, "authentication_error", f"this key is not known: {KEY}")
        place.model.script = lambda conversation: Reply(error=error)
        with place.at_terminal(
            "run", "-a", program.agent, "--session", "job", "--key", "one", "hi"
        ) as terminal:
            assert terminal.wait() == 1
            assert KEY not in terminal.shown
            assert "auth_failed" in terminal.shown
        journal = place.journal("job")
        assert "this key is not known" in journal.the(TurnFailed).receipt.error.message
        assert not [record for record in journal.records if KEY in repr(record.body)]
        for words in (("show", "job"), ("show", "job", "--json"), ("plan", "job")):
            assert KEY.encode() not in place.call(*words).stdout

        place.model.script = lambda conversation: Reply("understood")
        assert place.call("run", "-c", "--key", "two", f"I call it {KEY}").status == 0
        assert place.journal("job").bodies(InputAccepted)[-1].content[0].text == f"I call it {KEY}"
