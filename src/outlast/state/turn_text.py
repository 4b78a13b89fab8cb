"""The text of a turn's outcome."""

from __future__ import annotations

from outlast.records import types as t
from outlast.records.envelope import Record


class TurnText:
    """The text of one turn's outcome: the assistant's messages in the turn's last attempt, joined by
    newlines. Feed it the turn's records in order; others are passed over."""

    def __init__(self, turn: str) -> None:
        self.turn = turn
        self._pieces: list[str] = []
        self._more = False

    def apply(self, record: Record) -> None:
        """Take one record in."""
        if record.turn != self.turn:
            return
        body = record.body
        if isinstance(body, t.TurnAttemptStarted | t.TurnRetried | t.TurnStarted):
            self._pieces.clear()
        elif isinstance(body, t.AgentEventRecorded) and body.kind == "message":
            if self._pieces and not self._more:
                self._pieces.append("\n")
            self._pieces.append(body.text)
            self._more = body.more

    @property
    def text(self) -> str:
        """What has come so far."""
        return "".join(self._pieces)
