"""The piece that all newline-JSON protocols share: raw stdout into lines, values into lines.

Pure: no pipe, no clock. Memory is constant whatever the agent prints: a line over the limit is delivered
as its first bytes and its length, however long it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

HEAD = 64 * 1024
"""Bytes that are kept of a line over the limit."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline, as valid UTF-8."""

    data: bytes
    end_offset: int
    """Stdout offset of the first byte after the line and its newline: a cursor that can be resumed at."""
    replaced: int = 0
    """Invalid sequences that were replaced by U+FFFD."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line over the limit: its first bytes, as valid UTF-8, and how many bytes it had."""

    head: bytes
    size: int
    end_offset: int
    replaced: int = 0


class LineSplitter:
    """Cuts raw stdout into lines, chunk by chunk.

    `offset` is the stdout offset of the first byte that will be fed: the `end_offset` of the last line
    that was consumed. Whatever the chunks, the same bytes give the same lines.
    """

    def __init__(self, limit: int, *, offset: int = 0) -> None:
        if limit < 1:
            raise ValueError("the line limit is at least one byte")
        self._limit = limit
        self._held = bytearray()
        self._size = 0
        self._offset = offset

    @property
    def offset(self) -> int:
        """Stdout offset up to which bytes have been fed."""
        return self._offset

    def feed(self, chunk: bytes) -> Iterator[Line | LongLine]:
        """The lines that end in this chunk. The iterator must be used up before the next call."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._keep(chunk, start, end)
            self._offset += end + 1 - start
            start = end + 1
            yield self._take()
        self._keep(chunk, start, len(chunk))
        self._offset += len(chunk) - start

    def finish(self) -> Line | LongLine | None:
        """The last line, when stdout ended without a newline after it."""
        return self._take() if self._size else None

    def _keep(self, chunk: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._size <= self._limit:
            self._held += memoryview(chunk)[start:end]
            return
        head = min(HEAD, self._limit)
        del self._held[head:]
        self._held += memoryview(chunk)[start : min(end, start + head - len(self._held))]

    def _take(self) -> Line | LongLine:
        data, size = bytes(self._held), self._size
        self._held, self._size = bytearray(), 0
        if size > self._limit:
            head, replaced = _valid(_whole_characters(data))
            return LongLine(head, size, self._offset, replaced)
        data, replaced = _valid(data)
        return Line(data, self._offset, replaced)


def encode_line(value: object) -> bytes:
    """`value` as one JSON line, newline included.

    U+0085, U+2028 and U+2029 are escaped: some line readers take them for the end of the line. Raises
    UnicodeEncodeError for text with lone surrogates, which no input may hold.
    """
    data = msgspec.json.encode(value)
    for raw, escape in (
        (b"\xc2\x85", b"\\u0085"),
        (b"\xe2\x80\xa8", b"\\u2028"),
        (b"\xe2\x80\xa9", b"\\u2029"),
    ):
        data = data.replace(raw, escape)
    return data + b"\n"


def repair_surrogates(line: bytes) -> bytes:
    """A JSON line with each escape of a lone surrogate (`\\ud800`) replaced by U+FFFD: it is no text,
    and one of them must not cost the line."""
    if not _SURROGATE.search(line):
        return line
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], line)


def _valid(data: bytes) -> tuple[bytes, int]:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        own = data.count(_REPLACEMENT.encode())
        return text.encode("utf-8"), text.count(_REPLACEMENT) - own
    return data, 0


def _whole_characters(data: bytes) -> bytes:
    """`data` without the character that was cut at its end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            length = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
            return data[:-back] if length > back else data
    return data
