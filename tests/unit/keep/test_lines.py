"""What may go to an agent: exactly one line of valid UTF-8 in valid escapes."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outlast.keep.lines import BadLine, LineCheck


def check(line: bytes, step: int = 1 << 20) -> None:
    checker = LineCheck()
    for at in range(0, len(line), step):
        checker.feed(line[at : at + step])
    checker.finish()


@given(st.text(), st.booleans(), st.integers(1, 9))
@example("\N{GRINNING FACE}\\u\\ \x00 \r\n", True, 1)
def test_every_text_that_json_can_say_passes_however_it_is_cut(text: str, escaped: bool, step: int) -> None:
    check(json.dumps({"text": text}, ensure_ascii=escaped).encode() + b"\n", step)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"{}\n{}\n",
        b"{}\n\n",
        b"{}\r\n",
        b"\xff\n",
        b"\xe2\x82\n",
        b"\xed\xa0\x80\n",
        b'"\\ud83d"\n',
        b'"\\ud83d\\n"\n',
        b'"\\ud83dx"\n',
        b'"\\ud83d\\ud83d"\n',
        b'"\\ude00"\n',
        b'"\\uZZZZ"\n',
        b'"\\u+123"\n',
    ],
)
@pytest.mark.parametrize("step", [1, 2, 3, 5, 100])
def test_a_bad_line_is_refused_however_it_is_cut(line: bytes, step: int) -> None:
    with pytest.raises(BadLine):
        check(line, step)


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_an_escaped_backslash_before_a_surrogate_is_no_escape(step: int) -> None:
    check(b'"\\\\ud83d"\n', step)


@given(st.binary(max_size=40), st.integers(1, 7), st.integers(1, 7))
def test_the_verdict_does_not_depend_on_the_cuts(line: bytes, one: int, other: int) -> None:
    verdicts = []
    for step in (one, other, 100):
        try:
            check(line, step)
            verdicts.append(True)
        except BadLine:
            verdicts.append(False)
    assert len(set(verdicts)) == 1
