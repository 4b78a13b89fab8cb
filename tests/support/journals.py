"""A session's journal as tests look at it: read through the verifying reader, folded, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from outlast.journal import read_records
from outlast.records.envelope import Record
from outlast.records.types import (
    Body,
    InputAccepted,
    InputCancelled,
    InputJoined,
    InputReturned,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
    TurnStarted,
)
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.store.contract import Store

B = TypeVar("B", bound=Body)

TERMINALS = (TurnDone, TurnFailed, TurnInterrupted)


@dataclass(frozen=True)
class Journal:
    """Verified by the reader (numbers, chain, bodies) and by the fold (the rules of records.md)."""

    records: list[Record]
    state: State

    @classmethod
    async def read(cls, store: Store, session: str) -> Journal:
        records = [record async for record in read_records(store, session)]
        state = State(session)
        for record in records:
            apply(state, record)
        return cls(records, state)

    def of(self, *types: str, turn: str | None = None) -> list[Record]:
        """The records of these types, in order."""
        return [r for r in self.records if r.type in types and turn in (None, r.turn)]

    def bodies(self, kind: type[B], turn: str | None = None) -> list[B]:
        return [r.body for r in self.records if isinstance(r.body, kind) and turn in (None, r.turn)]

    def the(self, kind: type[B], turn: str | None = None) -> B:
        """The one body of its kind. Fails where there is none, or more."""
        found = self.bodies(kind, turn)
        assert len(found) == 1, f"{len(found)} × {kind.__name__} of {turn}: {self.types}"
        return found[0]

    @property
    def types(self) -> list[str]:
        return [record.type for record in self.records]

    @property
    def epochs(self) -> int:
        """How many owners the session has had."""
        return len(self.of("Fence"))

    def assert_every_input_ends_once(self) -> None:
        """Each accepted input has ended, and each time that its turn was opened it was closed once."""
        assert not self.state.open_turns, f"turns are open: {list(self.state.open_turns)}"
        assert not self.state.queue, f"inputs wait: {list(self.state.queue)}"
        accepted = Counter(body.request_id for body in self.bodies(InputAccepted))
        assert set(accepted.values()) <= {1}, f"accepted more than once: {accepted}"
        for request in accepted:
            self._assert_ends_once(request)

    def _assert_ends_once(self, request: str) -> None:
        opened = len(self.bodies(TurnStarted, request)) + len(self.bodies(TurnRetried, request))
        closed = sum(isinstance(r.body, TERMINALS) and r.turn == request for r in self.records)
        returned = sum(body.request_id == request for body in self.bodies(InputReturned, request))
        parked_only = self._parked_without_terminal(request)
        gone: list[InputCancelled | InputJoined] = [
            *self.bodies(InputCancelled),
            *self.bodies(InputJoined),
        ]
        away = sum(body.request_id == request for body in gone)
        assert opened == closed + returned + parked_only, f"{request}: {self.types}"
        assert closed + parked_only + away >= 1, f"{request} never ended: {self.types}"
        if away:
            assert opened == returned, f"{request} was taken away and had a turn: {self.types}"

    def _parked_without_terminal(self, request: str) -> int:
        found, last = 0, ""
        for record in self.records:
            if record.turn != request:
                continue
            if isinstance(record.body, TurnParked) and last not in (
                "TurnDone",
                "TurnFailed",
                "TurnInterrupted",
            ):
                found += 1
            last = record.type
        return found
