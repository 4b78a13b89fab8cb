"""Which choice is meant by what a person types."""

from __future__ import annotations

import pytest

from outlast.cli.gates import choice_of
from outlast.errors import UsageError
from outlast.records.types import Choice

PERMISSION = [
    Choice(id="yes", label="Yes, once", kind="allow_once"),
    Choice(id="no", label="No", kind="reject_once"),
]
COUNTS = [
    Choice(id="2", label="two"),
    Choice(id="1", label="one"),
    Choice(id="c", label="3"),
    Choice(id="d", label="x"),
]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("yes", "yes"), ("allow_once", "yes"), (" yes, ONCE ", "yes"), ("2", "no"), ("#2", "no"), ("=no", "no")],
)
def test_a_choice_is_an_id_a_kind_a_label_or_a_number(typed: str, meant: str) -> None:
    assert choice_of(typed, PERMISSION) == meant


@pytest.mark.parametrize("typed", ["", "0", "3", "#", "=", "#no", "=2", "9" * 5_000])
def test_anything_else_is_refused_and_names_the_choices(typed: str) -> None:
    with pytest.raises(UsageError, match="choose one of: yes, no"):
        choice_of(typed, PERMISSION)


def test_a_name_that_is_another_ones_number_is_asked_again() -> None:
    """Whoever reads `1) 2` and types 1 must not answer the second one."""
    for typed in ("1", "2"):
        with pytest.raises(UsageError, match=f"write ={typed} for the name, #{typed} for the number"):
            choice_of(typed, COUNTS)
    assert (choice_of("#1", COUNTS), choice_of("=1", COUNTS)) == ("2", "1")
    assert choice_of("3", COUNTS) == "c"
