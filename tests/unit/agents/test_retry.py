"""The policies of retries, and what they make of a provider's wish."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.agents.failure import TAXONOMY
from outlast.agents.retry import SPREAD_MOST, RetryPolicy, chance_of

POLICY = RetryPolicy(attempts=6, first=5.0, longest=60.0, patience=600.0)
CHANCES = st.floats(0, 1, exclude_max=True)


def test_only_what_passes_by_itself_has_a_policy() -> None:
    assert {code for code, kind in TAXONOMY.items() if kind.retry is not None} == {
        "rate_limited",
        "provider_overloaded",
        "transport_lost",
    }
    assert not any(kind.parks and kind.retry for kind in TAXONOMY.values())
    assert TAXONOMY["quota_exhausted"].parks


@pytest.mark.parametrize("code", [code for code, kind in TAXONOMY.items() if kind.retry is not None])
def test_a_policy_is_bounded(code: str) -> None:
    policy = TAXONOMY[code].retry
    assert policy is not None
    assert 0 < policy.attempts <= 20
    assert 0 < policy.first <= policy.longest <= policy.patience <= 3600


@pytest.mark.parametrize(
    ("retry", "least", "most"), [(1, 2.5, 5), (2, 5, 10), (4, 20, 40), (5, 30, 60), (9, 30, 60)]
)
def test_waits_double_up_to_the_longest(retry: int, least: float, most: float) -> None:
    assert POLICY.wait(retry, None, 0.0) == least
    assert POLICY.wait(retry, None, 1.0) == most


@given(st.integers(1, 1000), st.floats(0, 600), CHANCES)
def test_what_the_provider_asked_for_is_waited_in_full(retry: int, asked: float, chance: float) -> None:
    wait = POLICY.wait(retry, asked, chance)
    assert asked <= wait <= max(POLICY.longest, asked + SPREAD_MOST)


def test_a_provider_that_asks_for_no_pause_is_not_asked_again_at_once() -> None:
    assert POLICY.wait(1, 0.0, 0.0) == 2.5


def test_a_pause_past_all_patience_is_not_borne() -> None:
    assert POLICY.bears(None)
    assert POLICY.bears(600.0)
    assert not POLICY.bears(600.5)


@given(st.text(), st.integers())
def test_chance_is_the_same_for_who_asks_again(text: str, number: int) -> None:
    assert 0 <= chance_of(text, number) < 1
    assert chance_of(text, number) == chance_of(text, number)


def test_sessions_that_failed_together_do_not_come_back_together() -> None:
    waits = {round(POLICY.wait(1, 30.0, chance_of(f"session {i}", "turn", 1)), 3) for i in range(100)}
    assert len(waits) > 90
