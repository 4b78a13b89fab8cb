"""Journals that a session could have written, for property tests (`journals` needs Hypothesis).

A small model of a session makes one plausible batch after another: inputs, turns, output, gates, ends,
crashes, restores. It keeps its own books, apart from `outlast.state`, so that a fold can be held
against them (`Expected`).

    @given(journals())
    def test_something(journal: GeneratedJournal) -> None: ...
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from outlast.testing.journals.builder import JournalBuilder
from outlast.testing.journals.expected import Expected, ExpectedTurn, GeneratedJournal
from outlast.testing.journals.writer import JournalWriter
from outlast.testing.journals.written import written

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "Expected",
    "ExpectedTurn",
    "GeneratedJournal",
    "JournalBuilder",
    "JournalWriter",
    "journals",
    "random_journal",
    "written",
]


def random_journal(seed: int, moves: int) -> GeneratedJournal:
    """The journal of `moves` moves that `seed` leads to; for long ones, where Hypothesis is too slow."""
    source = random.Random(seed)  # noqa: S311
    writer = JournalWriter(source.randrange)
    for _ in range(moves):
        writer.move()
    return writer.journal()


def journals(max_moves: int = 60) -> SearchStrategy[GeneratedJournal]:
    """Journals of up to `max_moves` moves; they shrink to few and plain ones."""
    from hypothesis import strategies as st  # noqa: PLC0415

    @st.composite
    def build(draw: st.DrawFn) -> GeneratedJournal:
        choices = iter(draw(st.binary(min_size=max_moves * 6, max_size=max_moves * 6)))
        writer = JournalWriter(lambda n: next(choices, 0) % n)
        for _ in range(draw(st.integers(0, max_moves))):
            writer.move()
        return writer.journal()

    return build()
