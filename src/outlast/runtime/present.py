"""What is going on in a session just now: its state, and of its journal no more than the running turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outlast.journal import load_state, read_record, read_records
from outlast.records.types import InputAccepted, TurnAttemptStarted
from outlast.runtime.view import Gate, QueuedInput, gate_of, take, waiting_input
from outlast.state.delays import delays
from outlast.state.history import History
from outlast.state.messages import Message, OwnerMessage, text_of
from outlast.state.model import Delay, OpenTurn, State
from outlast.store import refusals
from outlast.store.contract import Entry, Listed, Store
from outlast.turns.decided import waiting_answers


@dataclass(frozen=True, slots=True)
class Present:
    """`seq` is the journal position that it shows: `follow(after=seq)` goes on from it."""

    seq: int
    row: Listed
    running: str | None
    """The turn that runs."""
    messages: list[Message]
    """Of that turn, so far."""
    attempts: Mapping[str, TurnAttemptStarted]
    """The newest attempt of each turn that runs."""
    queue: list[QueuedInput]
    gates: list[Gate]
    delay: Delay | None = None
    """What the session's next turn waits for: it failed, and is tried again by itself then."""


async def present(store: Store, session: str) -> Present:
    """Costs what came after the last snapshot, the running turn and the inputs that wait. Raises
    SessionNotFoundError, and as `read_records`."""
    row = await store.listed(session)
    if row is None:
        raise refusals.no_session(session)
    state = await load_state(store, session)
    if row.entry.seq > 0 == state.seq:
        raise refusals.nothing_left(session)
    pending = await store.pending(session)
    answers = waiting_answers(pending)
    turn = state.running
    return Present(
        seq=state.seq,
        row=row,
        running=None if turn is None else turn.turn,
        messages=[] if turn is None else await _messages(store, state, turn),
        attempts={each.turn: each.attempt for each in state.open_turns.values() if each.attempt is not None},
        queue=await _queue(store, state, pending),
        gates=[gate_of(gate, answers) for gate in state.gates.values()],
        delay=next((delay for _, delay in delays(state)), None),
    )


async def _messages(store: Store, state: State, turn: OpenTurn) -> list[Message]:
    """From the turn's input on: whatever was given to the turn was accepted after that."""
    history = History()
    async for record in read_records(store, state.session, turn.input_seq - 1, lost=[]):
        if record.seq > state.seq:
            break  # Whoever follows is given it.
        if record.turn == turn.turn or isinstance(record.body, InputAccepted):
            take(history, record)
    return [message for message in history.messages if not isinstance(message, OwnerMessage)]


async def _queue(store: Store, state: State, pending: Sequence[Entry]) -> list[QueuedInput]:
    """Accepted inputs in their order, then those that no owner has taken. One that is accepted between the
    two looks is given to whoever follows."""
    queue = [
        QueuedInput(waiting.request_id, await _text(store, state.session, waiting.seq), True)
        for waiting in state.queue.values()
    ]
    accepted = state.queue.keys() | state.open_turns.keys()
    return queue + [waiting_input(e) for e in pending if e.kind == "input" and e.request_id not in accepted]


async def _text(store: Store, session: str, seq: int) -> str:
    body = (await read_record(store, session, seq, lost=[])).body
    return text_of(body.content) if isinstance(body, InputAccepted) else ""
