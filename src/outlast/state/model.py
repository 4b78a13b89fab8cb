"""What a session is, as its journal says: open things, counters and pointers only.

Its size follows what is open, never what was ever written: contents stay in the journal and are
pointed to by sequence number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar

from outlast.records.envelope import Cursor
from outlast.records.types import (
    AgentStateFolded,
    Choice,
    GateOpened,
    GatePrepared,
    InputReserved,
    Manifest,
    OnInterrupt,
    TurnAttemptStarted,
)


@dataclass(frozen=True, slots=True)
class Queued:
    """An accepted input that waits for its turn."""

    request_id: str
    seq: int
    """Of its InputAccepted: the content is there."""
    on_interrupt: OnInterrupt | None
    index: int | None = None
    """The turn's index if it had started before and was returned, proven never sent."""
    attempts: int = 0
    since_progress: int = 0
    retried: str | None = None
    """`again` or `continue`: the turn had been reopened by a TurnRetried before it was returned."""
    joins: str | None = None
    """The turn that it is to be given to while that runs."""
    reserved: InputReserved | None = None
    """It was, or was about to be: whether it landed is decided before the turn is closed."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer for the agent: what `GateAnswer` needs."""

    name: str
    generation: str
    payload: bytes
    choice: str


@dataclass(slots=True)
class OpenTurn:
    turn: str
    index: int
    loop: str
    seq: int
    """Of its TurnStarted or TurnRetried."""
    input_seq: int
    """Of its InputAccepted."""
    on_interrupt: OnInterrupt | None
    started_at: int
    epoch: int
    """Of the owner that started it or attached to it last."""
    attempts: int = 0
    since_progress: int = 0
    attempt: TurnAttemptStarted | None = None
    attempt_seq: int = 0
    reserved: InputReserved | None = None
    reserved_seq: int = 0
    mode: str = "first"
    """first, again or continue."""
    open_calls: dict[str, str] = field(default_factory=dict)
    """Call id -> name of calls that started and have no outcome, up to a limit."""
    more_calls: int = 0
    """Those past the limit."""
    answers: dict[str, Answered] = field(default_factory=dict)
    """Gates of this turn that were resolved with an answer: a later owner delivers what the agent has not
    been told yet."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The last turn of a loop that did not end as done, or a parked one: what `retry` can reopen."""

    turn: str
    index: int
    loop: str
    seq: int
    """Of the record that closed it."""
    input_seq: int
    on_interrupt: OnInterrupt | None
    outcome: str
    """failed, interrupted, cancelled or parked."""
    attempts: int
    reason: str = ""
    since_progress: int = 0


@dataclass(frozen=True, slots=True)
class OpenGate:
    gate: str
    loop: str
    turn: str | None
    seq: int
    opened_at: int
    opened: GateOpened
    name: str
    """The agent's own name of it."""
    generation: str
    payload: bytes
    choices: tuple[Choice, ...]


@dataclass(slots=True)
class Loop:
    loop: str
    name: str
    agent: str
    agent_kind: str
    held: bool = False
    held_reason: str = ""
    provider: str | None = None
    provider_session: str | None = None
    provider_state: str | None = None
    """bound, confirmed, lost or reseeded."""
    provider_source: str | None = None
    attempt: TurnAttemptStarted | None = None
    """The newest agent life that this loop was given; it may still live after its turn."""
    cursor: Cursor | None = None
    folded: AgentStateFolded | None = None
    turns: int = 0
    """Index of the newest turn."""


@dataclass(slots=True)
class State:
    """Folded from the records; `apply` is in `state.fold`."""

    session: str
    seq: int = 0
    epoch: int = 0
    chain: bytes = b""
    holder: str = ""
    epoch_first_seq: int = 0
    """Of the newest Fence."""
    lineage: str = ""
    manifest: Manifest | None = None
    title: str = ""
    workspace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    created_at: int = 0
    last_activity_at: int = 0
    stopped: str | None = None
    """Reason of SessionStopped; the next accepted input reopens the session."""
    root: str | None = None
    loops: dict[str, Loop] = field(default_factory=dict)
    queue: dict[str, Queued] = field(default_factory=dict)
    """Accepted and waiting, in order; a returned input keeps its place."""
    open_turns: dict[str, OpenTurn] = field(default_factory=dict)
    parked: dict[str, Closed] = field(default_factory=dict)
    retryable: dict[str, Closed] = field(default_factory=dict)
    """Older turns that did not end as done, by turn: a person may still want them. The newest few only."""
    last_unsuccessful: dict[str, Closed] = field(default_factory=dict)
    """Per loop: the newest turn if it did not end as done."""
    gates: dict[str, OpenGate] = field(default_factory=dict)
    prepared: dict[str, GatePrepared] = field(default_factory=dict)
    """Gates prepared and not yet opened."""
    turns: int = 0
    restores_without_done: int = 0
    """RestoreStarted in a row without RestoreDone."""
    restoring: bool = False
    """The newest owner has begun a restore and not finished it."""

    def copy(self) -> State:
        """An independent state; cheap, because only open things are held."""
        twin = _copy_state(self)
        twin.labels = dict(self.labels)
        twin.loops = {k: _copy_loop(v) for k, v in self.loops.items()}
        twin.queue = dict(self.queue)
        twin.open_turns = {k: _copy_turn(v) for k, v in self.open_turns.items()}
        twin.parked = dict(self.parked)
        twin.retryable = dict(self.retryable)
        twin.last_unsuccessful = dict(self.last_unsuccessful)
        twin.gates = dict(self.gates)
        twin.prepared = dict(self.prepared)
        return twin

    @property
    def running(self) -> OpenTurn | None:
        """The open turn of the root loop."""
        return next((t for t in self.open_turns.values() if t.loop == self.root), None)


T = TypeVar("T")


def _shallow(kind: type[T]) -> Callable[[T], T]:
    """A shallow copy of a dataclass. Every append makes some, and `copy.copy` takes six times as long."""
    values: Callable[[T], tuple[Any, ...]] = attrgetter(*(field.name for field in fields(kind)))  # type: ignore[arg-type]
    return lambda one: kind(*values(one))


_copy_state = _shallow(State)
_copy_loop = _shallow(Loop)
_copy_open_turn = _shallow(OpenTurn)


def _copy_turn(turn: OpenTurn) -> OpenTurn:
    twin = _copy_open_turn(turn)
    twin.open_calls = dict(turn.open_calls)
    twin.answers = dict(turn.answers)
    return twin
