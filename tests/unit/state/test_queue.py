"""A queue is a dict in the order of acceptance, and neither its copies nor their changes cost what waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from outlast.state.catalog import catalog_entry
from outlast.state.lookup import steered_into
from outlast.state.model import Queued
from outlast.state.queue import LEAST, Queue
from outlast.testing.journals import JournalBuilder

MANY = 2_000


def entry(number: int, joins: str | None = None) -> Queued:
    return Queued(f"r{number}", number, None, joins=joins)


moves = st.lists(
    st.tuples(st.sampled_from(["put", "mark", "take", "copy", "back"]), st.integers(1, 60)), max_size=200
)


@examples(max_examples=60)
@given(moves)
def test_a_queue_is_what_a_dict_sorted_by_acceptance_is(done: list[tuple[str, int]]) -> None:
    """Whatever is put, taken and put back, in it or in a copy; what was copied stays as it was."""
    queue, told = Queue(), dict[str, Queued]()
    kept: list[tuple[Queue, list[Queued]]] = []
    for move, number in done:
        name = f"r{number}"
        if move == "copy":
            kept.append((queue, list(queue.values())))
            queue = queue.copy()
        elif move == "back":
            queue = Queue(told.values())
        elif move == "take":
            assert (queue.pop(name, None) is None) == (told.pop(name, None) is None)
        else:
            queue[name] = told[name] = entry(number, "t" if move == "mark" else None)
        told = dict(sorted(told.items(), key=lambda item: item[1].seq))
        assert list(queue.items()) == list(told.items())
        assert (len(queue), name in queue, queue.get(name)) == (len(told), name in told, told.get(name))
        assert queue.marked() == [each for each in told.values() if each.joins]
    for before, entries in kept:
        assert list(before.values()) == entries


def test_what_does_not_wait_cannot_be_taken() -> None:
    queue = Queue([entry(1), entry(2)]).copy()
    del queue["r1"]
    for name in ("r1", "r3"):
        with pytest.raises(KeyError):
            queue[name]
        with pytest.raises(KeyError):
            del queue[name]


class Watched(dict[str, Queued]):
    """Entries that nobody may copy, and that are counted as they are gone through."""

    seen = 0

    def copy(self) -> NoReturn:
        raise AssertionError("all that waits is copied")

    keys = values = copy

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.seen += 1
            yield name

    def items(self) -> Iterator[tuple[str, Queued]]:  # type: ignore[override]
        return ((name, self[name]) for name in self)


def test_a_turn_costs_the_same_however_much_waits() -> None:
    """Its appends copy the state and tell the catalog, and it takes the first that waits: what of the queue
    is gone through for that is the little that was taken lately, and never the queue."""
    state = JournalBuilder().accept(*(f"r{number}" for number in range(MANY))).state().copy()
    waiting = state.queue._whole = Watched(state.queue._whole)
    for number in range(LEAST):
        for _ in range(10):
            state = state.copy()
            assert catalog_entry(state).queued == MANY - number
            assert steered_into(state, "r0") == []
        assert next(iter(state.queue)) == f"r{number}"
        del state.queue[f"r{number}"]
        assert waiting.seen <= number + 2
        waiting.seen = 0
