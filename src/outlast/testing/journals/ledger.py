"""Writing records with the real codec, so that their chain holds."""

from __future__ import annotations

from collections.abc import Callable

from outlast.ids import derived_uuid
from outlast.records import types as t
from outlast.records.codec import encode_body, output_record_id, record_of, row_of
from outlast.records.envelope import Cursor, Draft, Record, Stamp
from outlast.store.contract import Row
from outlast.testing.journals.expected import Expected, ExpectedTurn, GeneratedJournal

LOOP = "main"


class Ledger:
    """The records of one session so far. `pick(n)` decides what is open: a number from 0 to n - 1."""

    def __init__(self, pick: Callable[[int], int], session: str = "session") -> None:
        self.session = session
        self.expected = Expected()
        self._pick = pick
        self._rows: list[Row] = []
        self._records: list[Record] = []
        self._ends: list[int] = []
        self._at = 1_700_000_000_000_000
        self._named = 0
        self._generation = ""
        self._stdout = 0
        self._frame = 0
        self._last_input = 0
        self._shown_input = 0
        """What the newest output of this generation had seen of them."""

    def journal(self) -> GeneratedJournal:
        """What has been written so far."""
        return GeneratedJournal(
            self.session, tuple(self._rows), tuple(self._records), tuple(self._ends), self.expected
        )

    def _write(self, *drafts: Draft) -> None:
        for draft in drafts:
            seq = len(self._rows) + 1
            self._at += 1 + self._pick(3) * 1000
            stamp = Stamp(seq, self.expected.epoch, derived_uuid(self.session, seq), self._at)
            previous = self._rows[-1].chain if self._rows else b""
            row = row_of(draft, encode_body(draft.body), stamp, self.session, previous)
            self._rows.append(row)
            self._records.append(record_of(row, self.session))
        self._ends.append(len(self._rows))

    def _name(self, what: str) -> str:
        self._named += 1
        return f"{what}-{self._named}"

    def _of_loop(self, body: t.Body) -> Draft:
        return Draft(body, loop=LOOP)

    def _of_turn(self, body: t.Body, turn: ExpectedTurn) -> Draft:
        return Draft(body, loop=LOOP, turn=turn.request, cause=turn.request)

    def _of_output(self, body: t.Body, turn: ExpectedTurn | None) -> Draft:
        """A record made from the next line of the agent's output."""
        size = 10 + self._pick(5)
        self._stdout += size
        self._frame += size + 40
        cursor = Cursor(self._generation, self._frame, self._stdout, self._last_input)
        self.expected.cursor = cursor
        self._shown_input = self._last_input
        return Draft(
            body,
            loop=LOOP,
            turn=None if turn is None else turn.request,
            cursor=cursor,
            id=output_record_id(self._generation, self._stdout, 0),
        )
