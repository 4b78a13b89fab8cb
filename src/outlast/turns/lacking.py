"""Turns that the journal knows and the provider's session has lost again: its file was put back from an older
copy, or a crash of the machine took its end. Where all that was captured of it is still there, its file shows
no damage, and no model would ever hear of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from outlast.agents.contract import Agent
from outlast.agents.transcript import HoldsPrompts, ReadsTranscript, SentPrompt
from outlast.journal import Journal
from outlast.records.envelope import Record
from outlast.records.types import (
    AgentEventRecorded,
    AgentSessionChanged,
    CallObserved,
    InputReserved,
    InputReturned,
    ReplyInterrupted,
    TurnAttemptStarted,
    TurnRetried,
    TurnStarted,
)
from outlast.state.model import Loop
from outlast.turns.hosting import Hosting


@dataclass(slots=True)
class _Worked:
    """A turn, as far as it is known from the records that were looked at."""

    turn: str
    seq: int
    """Of its first record among them."""
    attempts: int = 0
    given: bool = False
    began: bool = False
    """The agent has said or begun something in it: its session held the prompt by then."""


async def lacking_since(
    journal: Journal, agent: Agent, loop: Loop, hosting: Hosting, after: int
) -> tuple[int, str] | None:
    """The record after which the session lacks the turns that were worked on, and the first of these; None
    where it lacks none, or that can't be told: a program that stores a prompt after the model was asked may
    never have held it, and what such a one has lost of its calls is told by `turns.dropped_calls`. Looked at
    are those after record `after` that are closed. Raises OSError."""
    session = loop.provider_session
    if session is None or not (isinstance(agent, HoldsPrompts) and isinstance(agent, ReadsTranscript)):
        return None
    first: _Worked | None = None
    for one in reversed(await _worked(journal, loop, after)):
        if one.turn in journal.state.open_turns or not (one.given and one.began):
            continue
        sent = SentPrompt(one.turn, one.attempts)
        held = await asyncio.to_thread(agent.holds_prompt, sent, session, hosting.workspace, hosting.environ)
        if held is not False:
            break  # What is cut off is an end: what came before this is there, or was told with this.
        first = one
    return None if first is None else (first.seq - 1, first.turn)


async def _worked(journal: Journal, loop: Loop, after: int) -> list[_Worked]:
    """In the order in which they were worked on last, in the session that the loop has now."""
    found: dict[str, _Worked] = {}
    session = loop.provider_session if after else None
    async for record in journal.read(after=after):
        if record.loop != loop.loop:
            continue
        if isinstance(record.body, AgentSessionChanged):
            if record.body.provider_session != session:
                session = record.body.provider_session
                found = {turn: _Worked(turn, one.seq, one.attempts) for turn, one in found.items()}
        elif record.turn is not None:
            _note(found, record, record.turn)
    return list(found.values())


def _note(found: dict[str, _Worked], record: Record, turn: str) -> None:
    match record.body:
        case TurnStarted() | TurnRetried():
            found[turn] = _Worked(turn, record.seq, attempts=_attempts(found.pop(turn, None)))
        case TurnAttemptStarted(attempt=attempt):
            found.setdefault(turn, _Worked(turn, record.seq)).attempts = attempt
        case InputReserved(key=key) if turn in found and key == turn:
            found[turn].given = True
        case InputReturned(request_id=key) if key in found:
            found[key] = _Worked(key, found[key].seq, found[key].attempts)
        case CallObserved() | ReplyInterrupted() if turn in found:
            found[turn].began = True
        case AgentEventRecorded(kind=kind) if turn in found:
            found[turn].began |= kind in ("message", "thought")
        case _:
            pass


def _attempts(before: _Worked | None) -> int:
    return 0 if before is None else before.attempts
