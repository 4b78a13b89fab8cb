"""Turns that the journal knows and the provider's session has lost again: its file was put back from an older
copy, or a crash of the machine took its end. Where all that was captured of it is still there, its file shows
no damage, and no model would ever hear of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from outlast.agents.contract import Agent
from outlast.agents.transcript import ReadsTranscript, Transcript
from outlast.records.envelope import Record
from outlast.records.types import (
    AgentEventRecorded,
    CallObserved,
    InputReserved,
    InputReturned,
    ReplyInterrupted,
    TurnAttemptStarted,
    TurnRetried,
    TurnStarted,
)
from outlast.state.model import Loop, State
from outlast.turns.hosting import Hosting

LOOKED_AT = 2_000
"""Records at the journal's end that are read first: mostly the newest turn is among them, and is held as all
before it are then. Where it is not, four times as many are read, and so on."""


@dataclass(slots=True)
class _Worked:
    """A turn, as far as it is known from the records that were looked at."""

    turn: str
    seq: int
    """Of its first record among them."""
    given: bool = False
    began: bool = False
    """The agent has said or begun something in it: its session held the prompt by then."""


class Told(Protocol):
    """A journal, as far as it is read here: an owner's, or one that is only looked at."""

    @property
    def state(self) -> State: ...

    def read(self, after: int = 0) -> AsyncIterator[Record]: ...


async def news_lacking(journal: Told, agent: Agent, loop: Loop, hosting: Hosting) -> tuple[int, str] | None:
    """What of `lacking_since` what was captured is not known to lack yet. Raises OSError."""
    captured = loop.followed
    known = 0 if captured is None else captured.through_seq
    lacks = await lacking_since(journal, agent, loop, hosting, known)
    told = lacks is not None and loop.untold is not None and loop.untold <= lacks[0]
    return None if told else lacks


async def lacking_since(
    journal: Told, agent: Agent, loop: Loop, hosting: Hosting, after: int
) -> tuple[int, str] | None:
    """The record after which the session lacks the turns that were worked on, and the first of these; None
    where it lacks none, or that can't be told: a program that stores a prompt after the model was asked may
    never have held it, and what such a one has lost of its calls is told by `turns.dropped_calls`. Looked at
    are those after record `after` that are closed. Raises OSError."""
    session, stores_first = loop.provider_session, agent.capabilities.landing_precedes_model_call
    if session is None or not stores_first or not isinstance(agent, ReadsTranscript):
        return None
    transcript: Transcript | None = None
    tip, looked_at = journal.state.seq, LOOKED_AT
    while True:
        since = max(after, tip - looked_at)
        worked = await _worked(journal, loop, since)
        given = [
            one for one in worked if one.given and one.began and one.turn not in journal.state.open_turns
        ]
        if given and transcript is None:
            transcript = await asyncio.to_thread(agent.read_transcript, session, hosting.environ)
            if transcript is None:
                return None
        first: _Worked | None = None
        for one in reversed(given):
            if transcript is not None and transcript.holds(one.turn) is not False:
                # What is cut off is an end: what came before this is there, or was told with this.
                return None if first is None else (first.seq - 1, first.turn)
            first = one
        # A turn from before the session: all that was given to the session is after it.
        if since == after or any(one.seq < loop.session_since for one in worked):
            return None if first is None else (first.seq - 1, first.turn)
        looked_at *= 4


async def _worked(journal: Told, loop: Loop, after: int) -> list[_Worked]:
    """Those that begin after record `after`, in the order in which they were worked on last; `given` and
    `began` are of the session that the loop has now."""
    found: dict[str, _Worked] = {}
    async for record in journal.read(after=after):
        if record.seq == loop.session_since:
            found = {turn: _Worked(turn, one.seq) for turn, one in found.items()}
        if record.loop == loop.loop and record.turn is not None:
            _note(found, record, record.turn)
    return list(found.values())


def _note(found: dict[str, _Worked], record: Record, turn: str) -> None:
    match record.body:
        case TurnStarted() | TurnRetried():
            found.pop(turn, None)
            found[turn] = _Worked(turn, record.seq)
        case TurnAttemptStarted():
            found.setdefault(turn, _Worked(turn, record.seq))
        case InputReserved(key=key) if turn in found and key == turn:
            found[turn].given = True
        case InputReturned(request_id=key) if key in found:
            found[key] = _Worked(key, found[key].seq)
        case CallObserved() | ReplyInterrupted() if turn in found:
            found[turn].began = True
        case AgentEventRecorded(kind=kind) if turn in found:
            found[turn].began |= kind in ("message", "thought")
        case _:
            pass
