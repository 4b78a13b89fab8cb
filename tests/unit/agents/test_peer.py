"""Raw stdout becomes lines, whatever the chunks and in constant memory."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.agents.peer import HEAD, Line, LineSplitter, LongLine, encode_line, repair_surrogates

STDOUT = st.lists(st.one_of(st.binary(max_size=12), st.sampled_from([b"\n", b"x" * 30, "é😀".encode()]))).map(
    b"".join
)


def split(data: bytes, limit: int, sizes: list[int], offset: int = 0) -> list[Line | LongLine]:
    splitter = LineSplitter(limit, offset=offset)
    lines: list[Line | LongLine] = []
    for size in [*sizes, len(data)]:
        chunk, data = data[:size], data[size:]
        lines.extend(splitter.feed(chunk))
    last = splitter.finish()
    return lines if last is None else [*lines, last]


@given(STDOUT, st.lists(st.integers(0, 20)))
def test_the_same_bytes_give_the_same_lines_whatever_the_chunks(data: bytes, sizes: list[int]) -> None:
    assert split(data, 20, sizes) == split(data, 20, [])


@given(STDOUT)
def test_lines_are_what_lies_between_newlines(data: bytes) -> None:
    parts = data.split(b"\n")
    if not parts[-1]:
        parts.pop()
    lines = split(data, 10_000, [])
    assert [line.data for line in lines if isinstance(line, Line)] == [
        part.decode("utf-8", "replace").encode() for part in parts
    ]


@given(STDOUT, st.lists(st.integers(0, 20)))
def test_reading_goes_on_at_the_end_of_any_line(data: bytes, sizes: list[int]) -> None:
    lines = split(data, 20, [])
    for done, line in enumerate(lines, start=1):
        rest = split(data[line.end_offset :], 20, sizes, offset=line.end_offset)
        assert rest == lines[done:]


def test_a_line_over_the_limit_is_delivered_as_its_head_and_its_length() -> None:
    lines = split(b"a\n" + b"b" * 100_000 + b"\nc\n", 90_000, [40_000] * 3)
    assert lines == [Line(b"a", 2), LongLine(b"b" * HEAD, 100_000, 100_003), Line(b"c", 100_005)]


def test_a_line_of_exactly_the_limit_is_a_line() -> None:
    assert split(b"12345\n123456\n", 5, []) == [Line(b"12345", 6), LongLine(b"12345", 6, 13)]


def test_the_last_line_needs_no_newline() -> None:
    assert split(b"a\nb", 9, []) == [Line(b"a", 2), Line(b"b", 3)]


def test_torn_utf8() -> None:
    """A character cut by a chunk's edge is whole in its line; what is no text is replaced and counted."""
    data = "é😀é\n".encode() + b"caf\xe9 \xff\n" + "�\n".encode()
    for size in range(1, len(data)):
        assert split(data, 100, [size] * len(data)) == [
            Line("é😀é".encode(), 9),
            Line("caf� �".encode(), 16, replaced=2),
            Line("�".encode(), 20),
        ]


@pytest.mark.parametrize("limit", range(1, 12))
def test_the_head_of_a_long_line_ends_with_a_whole_character(limit: int) -> None:
    (line,) = split("aé€😀aé€😀".encode(), limit, [])
    assert isinstance(line, LongLine)
    assert "aé€😀aé€😀".startswith(line.head.decode())
    assert len(line.head) > limit - 4
    assert line.replaced == 0


def test_huge_output() -> None:
    """A line of 64 MB, and as much in small pieces, in constant memory."""
    splitter = LineSplitter(4 * 1024 * 1024)
    chunk, crumb = b"x" * (1 << 20), b"y" * 7
    tracemalloc.start()
    try:
        for _ in range(64):
            assert list(splitter.feed(chunk)) == []
        for _ in range(1 << 16):
            assert list(splitter.feed(crumb)) == []
        (line,) = splitter.feed(b"\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(line, LongLine)
    assert line.size == (64 << 20) + 7 * (1 << 16)
    assert peak < 16 << 20


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT)
def test_a_line_that_we_write_is_one_line_for_every_reader(text: str) -> None:
    line = encode_line({"text": text})
    assert json.loads(line) == {"text": text}
    assert line.decode().splitlines() == [line.decode()[:-1]]


def test_lone_surrogates_are_not_written() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_line({"text": "\ud800"})


@given(st.text())
def test_escaped_surrogates_are_repaired_and_nothing_else(text: str) -> None:
    line = json.dumps({"text": text}).encode()
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert json.loads(repair_surrogates(line)) == {"text": whole}


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        (rb'"\ud800"', rb'"\ufffd"'),
        (rb'"\udc00\ud83d\ude00\ud83d"', rb'"\ufffd\ud83d\ude00\ufffd"'),
        (rb'"\\ud800 \\\ud800"', rb'"\\ud800 \\\ufffd"'),
        (rb'"\uD83D\u0041"', rb'"\ufffd\u0041"'),
        (rb'"\ud8', rb'"\ud8'),
    ],
)
def test_only_lone_surrogates_are_repaired(line: bytes, repaired: bytes) -> None:
    assert repair_surrogates(line) == repaired


def test_a_limit_below_one_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one byte"):
        LineSplitter(0)
