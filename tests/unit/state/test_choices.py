"""What a choice may be called."""

import pytest

from outlast.records.types import Choice
from outlast.state.choices import chosen

CHOICES = (
    Choice(id="y", label="Yes", kind="allow_once"),
    Choice(id="n", label="No", kind="reject_once"),
    Choice(id="never", label="Never", kind="reject_once"),
    Choice(id="allow_always", label="Odd", kind="reject_always"),
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("y", "y"),
        ("allow_once", "y"),
        ("reject_once", None),
        ("allow_always", "allow_always"),
        ("reject_always", "allow_always"),
        ("Yes", None),
        ("1", None),
        ("", None),
    ],
)
def test_a_choice_is_called_by_its_id_or_by_a_kind_that_no_other_has(name: str, meant: str | None) -> None:
    assert chosen(name, CHOICES) == meant


def test_a_question_without_choices_takes_any_text_but_an_empty_one() -> None:
    assert chosen("the left one", ()) == "the left one"
    assert chosen("", ()) is None
