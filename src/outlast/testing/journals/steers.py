"""Inputs that are to join the running turn, in generated journals."""

from __future__ import annotations

from outlast.records import types as t
from outlast.records.envelope import Draft
from outlast.testing.journals.expected import ExpectedTurn
from outlast.testing.journals.lives import Lives

MOST_WAITING = 4
"""Inputs in the queue, and parked turns: what grows without bound would hide what must not."""


class Steers(Lives):
    """Offered to the agent, landed or given back, and decided before the turn ends."""

    def _given(self) -> list[ExpectedTurn]:
        return [entry for entry in self.expected.queue if entry.given]

    def _give(self, turn: ExpectedTurn) -> None:
        """The first that was not given yet is reserved for the agent."""
        entry = next(entry for entry in self.expected.queue if not entry.given)
        entry.given = True
        self._last_input += 1
        reserved = t.InputReserved(
            generation=self._generation, seq=self._last_input, key=entry.request, digest="d" * 64
        )
        self._write(self._of_turn(reserved, turn))

    def _join(self, turn: ExpectedTurn) -> None:
        joined = self._given()[0]
        self.expected.queue.remove(joined)
        del self.expected.outcomes[joined.request]
        self._write(self._of_output(t.InputJoined(request_id=joined.request), turn))

    def _give_back(self, turn: ExpectedTurn) -> None:
        self._write(self._back(self._given()[0], turn))

    def _back(self, entry: ExpectedTurn, turn: ExpectedTurn) -> Draft:
        entry.given = False
        return self._of_turn(t.InputReturned(request_id=entry.request, evidence="refused"), turn)

    def _decided(self, turn: ExpectedTurn) -> list[Draft]:
        """What stands before the end of `turn`: none of them is left undecided."""
        drafts: list[Draft] = []
        for entry in self._given():
            if len(self.expected.parked) < MOST_WAITING and self._pick(2):
                drafts += self._unknown(entry)
            else:
                drafts.append(self._back(entry, turn))
        return drafts

    def _unknown(self, entry: ExpectedTurn) -> list[Draft]:
        e = self.expected
        e.queue.remove(entry)
        if entry.index == 0:
            e.turns += 1
            entry.index = e.turns
        entry.given, entry.before_parked = False, "interrupted"
        e.parked[entry.request], e.outcomes[entry.request] = entry, "parked"
        e.unsuccessful = None
        interrupted = t.TurnInterrupted(index=entry.index, reason="crash", evidence="landing unknown")
        bodies = (t.TurnStarted(index=entry.index, request_id=entry.request), interrupted)
        return [self._of_turn(body, entry) for body in (*bodies, t.TurnParked(reason="held"))]
