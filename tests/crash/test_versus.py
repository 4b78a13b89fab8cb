"""Our side of examples/versus: what its README says of us is so."""

from __future__ import annotations

import pytest
from examples.versus.ours import all_killed, runtime_killed, two_owners

pytestmark = pytest.mark.slow


def test_of_two_that_resume_a_session_at_once_one_is_refused_and_each_step_is_done_once() -> None:
    outcome = two_owners()
    assert outcome.done == (1, 1, 1, 1, 1, 1)
    assert outcome.ended == "one owner went on, the other was refused; the turn is done"


def test_an_agent_whose_runtime_is_killed_twice_does_each_step_once() -> None:
    outcome = runtime_killed()
    assert outcome.done == (1, 1, 1, 1, 1, 1)
    assert outcome.ended == "the turn is done"


def test_a_step_that_was_cut_off_with_its_agent_is_not_done_again() -> None:
    outcome = all_killed()
    assert outcome.done == (1, 1, 1, 0, 0, 0)
    assert outcome.ended == "the turn is interrupted"
