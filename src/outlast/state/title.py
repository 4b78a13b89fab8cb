"""Titles for lists."""

from __future__ import annotations

from outlast.records.types import OUTLINE_TEXT

TITLE_LIMIT = 80
"""Characters of a title."""


def one_line(text: str, limit: int = TITLE_LIMIT) -> str:
    """The beginning of `text` as a single line of at most `limit` characters, for titles."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:OUTLINE_TEXT]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
