"""Agent lives in generated journals, and the inputs that are named for them."""

from __future__ import annotations

from outlast.records import types as t
from outlast.testing.journals import bodies
from outlast.testing.journals.expected import ExpectedTurn
from outlast.testing.journals.ledger import Ledger


class Lives(Ledger):
    """Begun, or taken for one more turn; given the turn's input."""

    def _attempt(self, turn: ExpectedTurn) -> None:
        turn.attempts += 1
        turn.reserved = turn.delayed = False
        if not self._generation or self._pick(2):
            self._begun()
        turn.attempt = bodies.attempt(turn.attempts, self._generation)
        self._write(self._of_turn(turn.attempt, turn))

    def _begun(self) -> None:
        e = self.expected
        self._generation = self._name("generation")
        self._stdout = self._frame = self._last_input = self._shown_input = 0
        resumed = None if e.decided in ("fresh", "reseed") else e.provider_session
        e.launched, e.cursor = (resumed, e.confirmed), None

    def _reserve(self, turn: ExpectedTurn) -> None:
        turn.tries += 1
        turn.since_progress += 1
        self._last_input += 1
        self._name_line(turn, "d")

    def _reserve_anew(self, turn: ExpectedTurn) -> None:
        """Nothing was written: another owner has another line, or another line comes first."""
        self._last_input += self._pick(2)
        self._name_line(turn, "e")

    def _name_line(self, turn: ExpectedTurn, digit: str) -> None:
        turn.reserved, turn.reserved_seq = True, self._last_input
        reserved = t.InputReserved(
            generation=self._generation, seq=self._last_input, key=turn.request, digest=digit * 64
        )
        self._write(self._of_turn(reserved, turn))

    def _taken(self, turn: ExpectedTurn) -> bool:
        """Whether its input may have been written."""
        return turn.reserved and not self._shown_input < turn.reserved_seq == self._last_input
