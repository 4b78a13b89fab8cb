"""The answers that questions have had: one that comes again is settled as the same, a contrary one is told
which was first."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from outlast.errors import InvalidRecordError, OutlastError
from outlast.journal import read_records
from outlast.records.types import Choice, GateOpened, GateResolved
from outlast.state.choices import chosen
from outlast.state.model import State
from outlast.store.contract import Entry, Store
from outlast.turns.requests import AnswerRequest, decode


@dataclass(frozen=True, slots=True)
class Given:
    """The answer that counts. `choices` are those that the question had."""

    answer: str
    by: str | None
    choices: tuple[Choice, ...]

    def same(self, choice: str) -> bool:
        """Whether `choice`, however it is called, is that answer."""
        return chosen(choice, self.choices) == self.answer

    @property
    def told(self) -> str:
        """For whoever gave another one."""
        return f"it was answered {self.answer}{f' by {self.by}' if self.by else ''} first"


async def given_before(store: Store, state: State, entries: Iterable[Entry]) -> dict[str, Given]:
    """By gate, what was answered of those that are not open any more and that `entries` answer again. Reads
    the journal where there are such, which is seldom."""
    late = {gate for entry in entries if (gate := _about(entry)) and gate not in state.gates}
    found: dict[str, Given] = {}
    if not late:
        return found
    choices: dict[str, tuple[Choice, ...]] = {}
    # An owner lives on what came after its snapshot: a fault far back ends none for the sake of a word to
    # somebody whose answer is too late either way.
    with suppress(OutlastError):
        async for record in read_records(store, state.session, large="outline"):
            body = record.body
            if isinstance(body, GateOpened) and body.gate in late:
                choices[body.gate] = tuple(body.choices)
            elif isinstance(body, GateResolved) and body.gate in late and body.answer is not None:
                found[body.gate] = Given(body.answer, body.by, choices.get(body.gate, ()))
    return found


def _about(entry: Entry) -> str | None:
    if entry.kind != "answer":
        return None
    try:
        return decode(AnswerRequest, entry.body).gate
    except InvalidRecordError:
        return None
