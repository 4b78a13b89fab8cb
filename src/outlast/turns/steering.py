"""Inputs that are to join the running turn: offered to its agent while it runs, decided before it is closed.

An input joins by `InputJoined` when the agent has shown that it took it. One that it provably has not taken
stays in the queue. One whose fate died with the agent becomes a turn of its own, interrupted and parked: only
a person lets it be sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.agents.contract import Prompt
from outlast.journal import Journal
from outlast.records.envelope import Draft
from outlast.records.types import (
    Content,
    InputAccepted,
    InputReserved,
    InputReturned,
    TurnInterrupted,
    TurnParked,
    TurnStarted,
)
from outlast.state.lookup import steered_into
from outlast.state.model import OpenTurn, Queued, State

Unlanded = frozenset[str] | None
"""Request ids of the inputs that an agent was given and has not shown to have taken; None where nobody can
tell what it was given."""


@dataclass(slots=True)
class Steering:
    """What is to join `turn`, read from the journal as it comes."""

    journal: Journal
    turn: str
    _content: dict[str, tuple[Content, ...]] = field(default_factory=dict)

    async def prompts(self) -> tuple[Prompt, ...]:
        """The waiting inputs that are to join the turn, in the order of their acceptance."""
        waiting = [entry for entry in self.journal.state.queue.values() if entry.joins == self.turn]
        for entry in waiting:
            if entry.request_id not in self._content:
                self._content[entry.request_id] = await content_of(self.journal, entry.seq)
        return tuple(
            Prompt(self.turn, 1, entry.request_id, self._content[entry.request_id]) for entry in waiting
        )

    def given(self, key: str) -> bool:
        """Whether `key` was reserved for the agent and is not decided yet."""
        return any(entry.request_id == key for entry in steered_into(self.journal.state, self.turn))


async def content_of(journal: Journal, seq: int) -> tuple[Content, ...]:
    """The content of the InputAccepted at `seq`."""
    async for record in journal.read(after=seq - 1):
        assert isinstance(record.body, InputAccepted)
        return tuple(record.body.content)
    return ()


def reservation(state: State, turn: OpenTurn, reserved: InputReserved) -> Draft | None:
    """The record that must be durable before the line with `reserved` is written; None where it is."""
    steered = state.queue.get(reserved.key)
    before = turn.reserved if steered is None else steered.reserved
    return None if before == reserved else Draft(body=reserved, loop=turn.loop, turn=turn.turn)


def unknown(state: State, turn: OpenTurn, unlanded: Unlanded) -> set[str]:
    """Of the inputs that were to join `turn`: those of which nobody can tell whether they landed."""
    keys = {entry.request_id for entry in steered_into(state, turn.turn)}
    return keys if unlanded is None else keys & unlanded


def decided(state: State, turn: OpenTurn, unlanded: Unlanded) -> list[Draft]:
    """What became of the inputs that were to join `turn`, where the journal does not say it yet: the records
    that must stand before the turn's terminal."""
    drafts: list[Draft] = []
    newest, lost = state.loops[turn.loop].turns, unknown(state, turn, unlanded)
    for entry in steered_into(state, turn.turn):
        if entry.request_id not in lost:
            back = InputReturned(request_id=entry.request_id, evidence="it was never written to the agent")
            drafts.append(Draft(body=back, loop=turn.loop, turn=turn.turn))
            continue
        newest += 1 if entry.index is None else 0
        drafts += _parked(state, turn, entry, newest if entry.index is None else entry.index)
    return drafts


def _parked(state: State, turn: OpenTurn, entry: Queued, index: int) -> list[Draft]:
    own, loop = entry.request_id, state.loops[turn.loop]
    evidence = f"steered into turn {turn.turn}, landing unknown: its agent ended before it had shown it"
    bodies = (
        TurnStarted(index=index, request_id=own, settings={"agent": loop.agent}),
        TurnInterrupted(index=index, reason="crash", evidence=evidence),
        TurnParked(reason="held", detail="whether the agent took it is not known"),
    )
    return [Draft(body=body, loop=turn.loop, turn=own, cause=own) for body in bodies]
