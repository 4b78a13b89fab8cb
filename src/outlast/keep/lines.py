"""What may go to an agent's stdin: exactly one line of valid UTF-8 in valid escapes.

One bad line costs a whole agent: programs exit on a bad byte or half a line, or hang on a lone surrogate.
Standard library only, light parts only.
"""

from __future__ import annotations

import _codecs

_ESCAPE, _PAIR = 6, 12
"""Bytes of an escape, and of the two that make one character together."""
_HEX = frozenset(b"0123456789abcdefABCDEF")


class BadLine(ValueError):  # noqa: N818 - a verdict that becomes the refusal `bad_line`
    """Why the bytes are not one good line."""


class LineCheck:
    """Checks a message that arrives in parts, in constant memory."""

    __slots__ = ("_escape", "_partial", "_whole")

    def __init__(self) -> None:
        self._partial = b""
        self._escape = b""
        self._whole = False

    def feed(self, part: bytes) -> None:
        """Take the next part. Raises BadLine."""
        if not part:
            return
        if self._whole or b"\r" in part:
            raise BadLine("more than one line")
        newline = part.find(b"\n")
        if newline >= 0:
            if newline != len(part) - 1:
                raise BadLine("more than one line")
            self._whole = True
        text = self._partial + part
        try:
            _, used = _codecs.utf_8_decode(text, "strict", False)
        except UnicodeDecodeError:
            raise BadLine("not UTF-8") from None
        self._partial = text[used:]
        self._scan(self._escape + part)

    def finish(self) -> None:
        """The last part has been fed. Raises BadLine."""
        if not self._whole:
            raise BadLine("no newline at the end")
        if self._partial:
            raise BadLine("not UTF-8")
        if self._escape:
            raise BadLine("an escape is cut off")

    def _scan(self, data: bytes) -> None:
        self._escape = b""
        if b"\\u" not in data:
            odd = (len(data) - len(data.rstrip(b"\\"))) % 2
            self._escape = b"\\" if odd else b""
            return
        at = data.find(b"\\")
        while at >= 0:
            size = _escape_size(data, at)
            if size == 0:
                self._escape = data[at:]
                return
            at = data.find(b"\\", at + size)


def _escape_size(data: bytes, at: int) -> int:
    """Length of the escape at `at`, 0 if it goes on in the next part. Raises BadLine."""
    following = data[at + 1 : at + 2]
    if following != b"u":
        return 2 if following else 0
    if len(data) < at + _ESCAPE:
        return 0
    code = _code(data, at)
    if not 0xD800 <= code <= 0xDFFF:
        return _ESCAPE
    if code >= 0xDC00:
        raise BadLine("a lone surrogate")
    second = data[at + _ESCAPE : at + _PAIR]
    if len(second) < _ESCAPE and b"\\u".startswith(second[:2]):
        return 0
    if second[:2] != b"\\u" or not 0xDC00 <= _code(data, at + _ESCAPE) <= 0xDFFF:
        raise BadLine("a lone surrogate")
    return _PAIR


def _code(data: bytes, at: int) -> int:
    digits = data[at + 2 : at + 6]
    if len(digits) != 4 or not _HEX.issuperset(digits):
        raise BadLine("not an escape")
    return int(digits, 16)
