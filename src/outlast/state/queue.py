"""The inputs that wait, in the order of their acceptance. Every append copies them: a copy, and a change of
one, cost the same however much waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from heapq import merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.state.model import Queued

LEAST = 32
"""Changes that a queue keeps beside what it has in common with its copies, however little that is."""


class Queue(MutableMapping[str, "Queued"]):
    """By request id. What copies have in common is changed by none of them: each keeps its own changes beside
    it, and has a whole of its own again when those are more than the root of it."""

    __slots__ = ("_changes", "_common", "_length", "_marked", "_newest", "_whole")

    def __init__(self, entries: Iterable[Queued] = ()) -> None:
        self._whole: dict[str, Queued] = {}
        """In order, but for what `_changes` says otherwise."""
        self._common = False
        """Copies have `_whole` too."""
        self._changes: dict[str, Queued | None] = {}
        """None: it waits no more."""
        self._length = 0
        self._newest = 0
        """No entry of `_whole` was accepted after that record."""
        self._marked: dict[str, Queued] = {}
        for entry in entries:
            self[entry.request_id] = entry

    def marked(self) -> list[Queued]:
        """Those that do not simply wait: which join a turn, were given to an agent before, or wait for their
        time."""
        return sorted(self._marked.values(), key=_place)

    def copy(self) -> Queue:
        """An independent queue."""
        twin = Queue()
        self._common = twin._common = True
        twin._whole, twin._length, twin._newest = self._whole, self._length, self._newest
        twin._changes, twin._marked = self._changes.copy(), self._marked.copy()
        return twin

    def __getitem__(self, request: str) -> Queued:
        if request not in self._changes:
            return self._whole[request]
        found = self._changes[request]
        if found is None:
            raise KeyError(request)
        return found

    def __contains__(self, request: object) -> bool:
        if request in self._changes:
            return self._changes[request] is not None
        return request in self._whole

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return (entry.request_id for entry in self._ordered()) if self._changes else iter(self._whole)

    def __setitem__(self, request: str, entry: Queued) -> None:
        self._length += request not in self
        self._marked.pop(request, None)
        waits = entry.joins is None and entry.reserved is None and entry.delay is None
        if not waits or entry.asked:
            self._marked[request] = entry
        if not self._common and request not in self._changes and self._in_order(entry):
            self._whole[request] = entry
            self._newest = max(self._newest, entry.seq)
        else:
            self._changes[request] = entry
            self._settle()

    def __delitem__(self, request: str) -> None:
        if request not in self:
            raise KeyError(request)
        self._length -= 1
        self._marked.pop(request, None)
        if request not in self._whole:
            del self._changes[request]
        elif self._common:
            self._changes[request] = None
            self._settle()
        else:
            del self._whole[request]
            self._changes.pop(request, None)

    def __repr__(self) -> str:
        return f"Queue({list(self.values())!r})"

    def _in_order(self, entry: Queued) -> bool:
        """Whether it may stand in `_whole`: in the place of itself, or at the end."""
        return entry.seq > self._newest or entry.request_id in self._whole

    def _ordered(self) -> Iterator[Queued]:
        changed = sorted((entry for entry in self._changes.values() if entry is not None), key=_place)
        same = (entry for request, entry in self._whole.items() if request not in self._changes)
        return merge(same, changed, key=_place)

    def _settle(self) -> None:
        if len(self._changes) > LEAST and len(self._changes) ** 2 > len(self._whole):
            self._whole = {entry.request_id: entry for entry in self._ordered()}
            self._newest = next((entry.seq for entry in reversed(self._whole.values())), 0)
            self._changes, self._common = {}, False


def _place(entry: Queued) -> int:
    return entry.seq
