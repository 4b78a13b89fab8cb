"""JSON of other programs, as far as its shape is known."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode(data: bytes | msgspec.Raw, shape: type[T]) -> T | None:
    """Decode JSON of a known shape; None when it has another one."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def plain(data: msgspec.Raw) -> str:
    """JSON as text for people, empty for null."""
    text = bytes(data).decode(errors="replace")
    return "" if text == "null" else text
