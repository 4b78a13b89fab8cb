"""A plain table: columns as wide as what is in them, the last one cut to the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import east_asian_width


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """`width` None: nothing is cut (a pipe)."""
    widths = [max(map(cells, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        padded = [text + " " * (size - cells(text)) for text, size in zip(row[:-1], widths, strict=False)]
        line = "  ".join([*padded, row[-1]])
        lines.append(line if width is None else cut(line, width))
    return lines


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, width: int) -> str:
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += cells(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"
