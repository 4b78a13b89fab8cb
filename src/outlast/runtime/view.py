"""A session as it is now, for people and programs: built from the journal, the inbox and the live lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from outlast.errors import IntegrityError, InvalidRecordError, OutlastError, RecordError
from outlast.journal import read_records
from outlast.keep.folder import stderr_path
from outlast.records.envelope import Record
from outlast.records.types import Choice, TurnAttemptStarted
from outlast.state.fold import apply
from outlast.state.history import History
from outlast.state.listing import listed_json
from outlast.state.messages import Message, text_of
from outlast.state.model import OpenGate, State
from outlast.state.summaries import AgentSession, GateShown, Restore, TurnSummary
from outlast.store import refusals
from outlast.store.contract import Entry, Listed, Store
from outlast.turns.decided import WaitingCommand, waiting_answers, waiting_commands
from outlast.turns.recovery import NextSession, next_session
from outlast.turns.requests import InputRequest, decode


@dataclass(frozen=True, slots=True)
class Gate:
    """An open question. `opened_at` is UTC in microseconds."""

    id: str
    turn: str | None
    kind: str
    question: str
    choices: tuple[Choice, ...]
    opened_at: int
    requested_by: str
    resolver: str = "agent"
    """Who waits for the answer: `agent`, or `runtime` where a parked turn does and the queue goes on."""
    answered: WaitingCommand | None = None
    """The answer that was given and that no owner has taken yet."""


@dataclass(frozen=True, slots=True)
class QueuedInput:
    """An input that waits: accepted by an owner, or still in the inbox."""

    request_id: str
    input: str
    accepted: bool


@dataclass(frozen=True, slots=True)
class View:
    """`seq` is the journal position that it shows: `follow(after=seq)` goes on from it."""

    seq: int
    row: Listed
    history: History
    messages: list[Message]
    turns: list[TurnSummary]
    queue: list[QueuedInput]
    gates: list[Gate]
    commands: list[WaitingCommand]
    """All that was decided and no owner has carried out yet."""
    agent_sessions: list[AgentSession]
    restores: list[Restore]
    next_sessions: tuple[NextSession, ...] = ()
    """What the next start of each loop's agent does with the provider's session; none where the journal
    cannot be read to its end."""

    @property
    def attempts(self) -> dict[str, TurnAttemptStarted]:
        """The newest attempt of each turn that runs."""
        return {
            turn.turn: turn.attempt
            for turn in self.turns
            if turn.attempt and turn.attempt_open and turn.outcome == "running"
        }

    def to_json(self) -> dict[str, object]:
        """The shape of `show --json`."""
        shape = self.history.to_json()
        shape["session"] = listed_json(self.row)
        shape["turns"] = [_turn_json(turn) for turn in self.turns]
        shape["queue"] = [
            {"request_id": q.request_id, "input": q.input, "accepted": q.accepted} for q in self.queue
        ]
        shape["next_sessions"] = [session.to_json() for session in self.next_sessions]
        shape["commands"] = msgspec.to_builtins(self.commands)
        return shape


async def build_view(store: Store, session: str) -> View:
    """Raises SessionNotFoundError, and as `read_records`; where only a text is lost, that is marked."""
    view, fault, _ = await _as_far_as_it_goes(store, session)
    if fault is not None:
        raise fault
    return view


async def view_until_fault(store: Store, session: str) -> tuple[View, OutlastError | None]:
    """The session as far as its journal can be read, and what is wrong there, or the first text in it that is
    lost. Raises SessionNotFoundError."""
    view, fault, lost = await _as_far_as_it_goes(store, session)
    return view, fault or next(iter(lost), None)


async def _as_far_as_it_goes(
    store: Store, session: str
) -> tuple[View, OutlastError | None, Sequence[OutlastError]]:
    row = await store.listed(session)
    if row is None:
        raise refusals.no_session(session)
    pending = await store.pending(session)
    history, folded = History(), _Folded(session)
    fault: OutlastError | None = None
    lost: list[IntegrityError] = []
    try:
        async for record in read_records(store, session, lost=lost):
            take(history, record)
            folded.take(record)
    except (IntegrityError, RecordError) as error:
        fault = error
    if fault is None and row.entry.seq > 0 == history.seq:
        fault = refusals.nothing_left(session)
    accepted = {turn.turn for turn in history.turns}
    answers = waiting_answers(pending)
    view = View(
        seq=history.seq,
        row=row,
        history=history,
        messages=history.messages,
        turns=history.turns,
        queue=_queue(history, pending, accepted),
        gates=[gate_of(gate, answers) for gate in history.gates.values()],
        commands=waiting_commands(pending),
        agent_sessions=history.agent_sessions,
        restores=history.restores,
        next_sessions=() if fault else folded.next_sessions(),
    )
    return view, fault, lost


class _Folded:
    """The state beside the history: what is decided by it is decided as its owner will decide."""

    def __init__(self, session: str) -> None:
        self._state: State | None = State(session)

    def take(self, record: Record) -> None:
        """A journal that contradicts itself has a history and no state; `verify` says why."""
        if self._state is not None:
            try:
                apply(self._state, record)
            except IntegrityError:
                self._state = None

    def next_sessions(self) -> tuple[NextSession, ...]:
        if self._state is None:
            return ()
        return tuple(next_session(self._state, loop) for loop in self._state.loops)


def take(history: History, record: Record) -> None:
    """A history trusts the journal: what it cannot take in contradicts what came before. Raises
    IntegrityError."""
    try:
        history.apply(record)
    except KeyError as error:
        raise IntegrityError(
            f"record {record.seq} ({record.type}) tells of {error}, which nothing before it has begun",
            seq=record.seq,
            reason="it contradicts the journal",
        ) from error


def gate_of(gate: GateShown | OpenGate, answers: Mapping[str, WaitingCommand]) -> Gate:
    """An open question, as the history or the state has it. `answers`: those that wait, by gate."""
    return Gate(
        id=gate.gate,
        turn=gate.turn,
        kind=gate.opened.kind,
        question=gate.opened.question,
        choices=tuple(gate.opened.choices),
        opened_at=gate.opened_at,
        requested_by=gate.opened.requested_by,
        resolver=gate.opened.resolver,
        answered=answers.get(gate.gate),
    )


def _turn_json(turn: TurnSummary) -> dict[str, object]:
    """With the place of what a failed agent wrote to its standard error. Its words are private: they stay
    there."""
    shape = turn.to_json()
    if turn.outcome == "failed" and turn.attempt is not None:
        shape["stderr"] = stderr_path(turn.attempt.folder, turn.attempt.generation)
    return shape


def _queue(history: History, pending: list[Entry], accepted: set[str]) -> list[QueuedInput]:
    queue = [QueuedInput(turn.turn, turn.input, True) for turn in history.queue]
    for entry in pending:
        # An entry that was settled between the two looks is in the history already.
        if entry.kind == "input" and entry.request_id not in accepted:
            queue.append(waiting_input(entry))
    return queue


def waiting_input(entry: Entry) -> QueuedInput:
    """An input that no owner has taken yet. One that nobody can read its owner will take back."""
    try:
        said = text_of(decode(InputRequest, entry.body).content)
    except InvalidRecordError:
        said = "(cannot be read)"
    return QueuedInput(entry.request_id, said, False)
