"""What a session is, as its journal says: open things, counters and pointers only.

Its size follows what is open, never what was ever written: contents stay in the journal and are
pointed to by sequence number.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from outlast.records.agent_state import AgentStateCaptured, LostChoice
from outlast.records.effects import HostDone
from outlast.records.envelope import Cursor
from outlast.records.types import (
    AgentStateFolded,
    Choice,
    EffectPhase,
    EffectReplay,
    GateOpened,
    GatePrepared,
    HostRecovery,
    InputReserved,
    Manifest,
    OnInterrupt,
    PlannedEffect,
    PlannedRetry,
    TurnAttemptStarted,
)
from outlast.state.queue import Queue

Retried = Literal["again", "continue"]
ClosedAs = Literal["failed", "interrupted", "cancelled", "parked"]


class Delay(msgspec.Struct, frozen=True):
    """A turn that failed waits for its next attempt, which comes by itself."""

    until: int
    """UTC in microseconds, for people; whoever waits takes `wait` as the most that may be left."""
    wait: float
    """Seconds from its beginning."""
    retry: int
    of: int
    code: str
    message: str
    """What it failed of, its beginning."""
    boot_id: str = ""
    due: int = 0
    """As in PlannedRetry."""


class Queued(msgspec.Struct, frozen=True):
    """An accepted input that waits for its turn."""

    request_id: str
    seq: int
    """Of its InputAccepted: the content is there."""
    on_interrupt: OnInterrupt | None
    index: int | None = None
    """The turn's index if it had started before and was returned, proven never sent."""
    attempts: int = 0
    given: int = 0
    """As in `OpenTurn`, like the next."""
    since_progress: int = 0
    retried: Retried | None = None
    """The turn had been reopened by a TurnRetried before it was returned."""
    joins: str | None = None
    """The turn that it is to be given to while that runs."""
    reserved: InputReserved | None = None
    """It was, or was about to be: whether it landed is decided before the turn is closed."""
    retries: int = 0
    """As in `OpenTurn`, like the next."""
    delay: Delay | None = None
    asked: int = 0
    begun_anew: int = 0


class Answered(msgspec.Struct, frozen=True):
    """An answer for the agent: what `GateAnswer` needs."""

    name: str
    generation: str
    payload: bytes
    choice: str


class Effect(msgspec.Struct, frozen=True):
    """A named effect of a turn whose host step is done."""

    effect: str
    name: str
    phase: EffectPhase
    replay: EffectReplay
    key: str
    digest: str
    seq: int
    """Of the newest record that tells of it."""
    bodies: int = 0
    """How often its body began."""
    outcome: str = ""
    """done, absent or unknown; empty while nobody has said."""
    by: str = ""
    """Who said so: run, check or person."""
    result: str | None = None
    reason: str = ""


class FailedHost(msgspec.Struct, frozen=True):
    """A host step that failed, until the loop's agent is given an input again."""

    turn: str
    code: str
    phase: str
    recovery: HostRecovery | None
    provider: str | None
    provider_session: str | None
    """What the loop's agent was bound to when it failed."""


class OpenTurn(msgspec.Struct):
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
    """Agent lives that were begun or taken for it."""
    given: int = 0
    """Those for which its input was reserved: what the recovery budget counts."""
    since_progress: int = 0
    """Of these, the ones since the turn last made progress."""
    attempt: TurnAttemptStarted | None = None
    attempt_seq: int = 0
    reserved: InputReserved | None = None
    reserved_seq: int = 0
    mode: Literal["first"] | Retried = "first"
    open_calls: dict[str, str] = msgspec.field(default_factory=dict)
    """Call id -> name of calls that started and have no outcome, up to a limit."""
    more_calls: int = 0
    """Those past the limit."""
    answers: dict[str, Answered] = msgspec.field(default_factory=dict)
    """Gates of this turn that were resolved with an answer: a later owner delivers what the agent has not
    been told yet."""
    owed: list[PlannedEffect] = []
    """What is to run after its host step."""
    host_done: HostDone | None = None
    effects: dict[str, Effect] = msgspec.field(default_factory=dict)
    """By effect id, in the order in which they run."""
    calls: int = 0
    """Calls that have started since it was opened."""
    retries: int = 0
    """By a policy, in a row: since the turn last made progress or a person opened it."""
    delay: Delay | None = None
    """It is not given to an agent before that."""
    asked: int = 0
    """The record that reserved its whole input for the provider session which the loop has now; 0: nothing
    shows that this session was given it."""
    begun_anew: int = 0
    """The epoch of the owner that has decided without a person to begin a new provider session for it."""


class Closed(msgspec.Struct, frozen=True):
    """The last turn of a loop that did not end as done, or a parked one: what `retry` can reopen."""

    turn: str
    index: int
    loop: str
    seq: int
    """Of the record that closed it."""
    input_seq: int
    on_interrupt: OnInterrupt | None
    outcome: ClosedAs
    attempts: int
    given: int = 0
    reserved: bool = False
    """The input was, for its last attempt."""
    reason: str = ""
    since_progress: int = 0
    owed: list[PlannedEffect] = []
    host_done: HostDone | None = None
    attempt_seq: int = 0
    effects: dict[str, Effect] = msgspec.field(default_factory=dict)
    retries: int = 0
    planned: PlannedRetry | None = None
    """Of a failed one that its next record opens again."""
    message: str = ""
    """What a failed one failed of, its beginning."""
    code: str = ""
    """What a failed one failed of, in the taxonomy's word, also once it is parked."""
    asked: int = 0


class OpenGate(msgspec.Struct, frozen=True):
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


class Launched(msgspec.Struct, frozen=True):
    """What an agent was told of the provider's session when it was started. Its reading goes on with that
    to the end of its life, whatever it says meanwhile: else another owner would read it otherwise."""

    provider_session: str | None = None
    confirmed: bool = False
    given: bool = False
    """An agent was given an input on it."""


class Loop(msgspec.Struct):
    loop: str
    name: str
    agent: str
    agent_kind: str
    held: bool = False
    provider: str | None = None
    provider_session: str | None = None
    provider_state: str | None = None
    """bound, confirmed, lost or reseeded."""
    confirmed: bool = False
    """The agent has once acknowledged a finished turn on `provider_session`, whatever became of it since."""
    session_since: int = 0
    """The record that named `provider_session`; what was given before went to another one, or to none."""
    inputs: int = 0
    """Those that an agent was given on `provider_session`, less what provably was not."""
    lost_because: str = ""
    """Why the newest provider session that was lost is."""
    lost_at: int = 0
    """The record that says so; 0 where none was lost."""
    decided: LostChoice | None = None
    """What is to be done about the provider session at the next start of the agent."""
    untold: int | None = None
    """The record after which the agent's own session lacks what happened: the next prompt tells it."""
    called_since: int | None = None
    """The record after which calls were made in the newest turn that ended as done and in those after it: the
    agent's own session may lack them, if its life has ended since. None: there are none."""
    captured: AgentStateCaptured | None = None
    """What is put back where the session is lost."""
    accepted: AgentStateCaptured | None = None
    """What is resumed as it is, until a turn was done on it or it is lost."""
    attempt: TurnAttemptStarted | None = None
    """The newest agent life that this loop was given; it may still live after its turn."""
    life_since: int = 0
    """The record with which that life began here."""
    launched: Launched | None = None
    cursor: Cursor | None = None
    """Of that life, like `folded`; None while nothing was taken from it."""
    folded: AgentStateFolded | None = None
    turns: int = 0
    """Index of the newest turn."""
    failed: FailedHost | None = None

    @property
    def resumes(self) -> str | None:
        """The provider session that the agent is to resume; None: it begins a new one."""
        return None if self.decided in ("fresh", "reseed") else self.provider_session

    @property
    def followed(self) -> AgentStateCaptured | None:
        """What the program's own file begins with, of the session that the loop has now."""
        latest = self.accepted or self.captured
        return latest if latest and latest.provider_session == self.provider_session else None

    @property
    def launches(self) -> Launched:
        """With what an agent that is started now is launched."""
        resumes = self.resumes
        return Launched(resumes, self.confirmed, given=resumes is not None and self.inputs > 0)

    def goes_on(self, turn: OpenTurn) -> bool:
        """Whether the agent is asked to go on with `turn`: it was to be continued, and the session that the
        agent works in was given its input before. Else it is given that."""
        known = 0 < turn.asked < turn.attempt_seq and self.decided not in ("fresh", "reseed")
        return turn.mode == "continue" and known


class State(msgspec.Struct):
    """Folded from the records; `apply` is in `state.fold`. A Struct, and so is what changes in it: each
    append copies them, and a dataclass takes ten times as long."""

    session: str
    seq: int = 0
    epoch: int = 0
    chain: bytes = b""
    holder: str = ""
    lineage: str = ""
    manifest: Manifest | None = None
    title: str = ""
    workspace: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    created_at: int = 0
    last_activity_at: int = 0
    stopped: str | None = None
    """Reason of SessionStopped; the next accepted input reopens the session."""
    root: str | None = None
    loops: dict[str, Loop] = msgspec.field(default_factory=dict)
    queue: Queue = msgspec.field(default_factory=Queue)
    """Accepted and waiting, in order; a returned input keeps its place."""
    open_turns: dict[str, OpenTurn] = msgspec.field(default_factory=dict)
    parked: dict[str, Closed] = msgspec.field(default_factory=dict)
    retryable: dict[str, Closed] = msgspec.field(default_factory=dict)
    """Older turns that did not end as done, and those that were skipped, by turn: a person may still want
    them. The newest few only."""
    last_unsuccessful: dict[str, Closed] = msgspec.field(default_factory=dict)
    """Per loop: the newest turn if it did not end as done."""
    gates: dict[str, OpenGate] = msgspec.field(default_factory=dict)
    prepared: dict[str, GatePrepared] = msgspec.field(default_factory=dict)
    """Gates prepared and not yet opened."""
    turns: int = 0
    restoring: bool = False
    """The newest owner has begun a restore and not finished it."""

    def copy(self) -> State:
        """An independent state; cheap, because only open things are held."""
        twin = replace(self)
        twin.labels = self.labels.copy()
        twin.loops = {name: replace(loop) for name, loop in self.loops.items()}
        twin.queue = self.queue.copy()
        twin.open_turns = {name: _copy_turn(turn) for name, turn in self.open_turns.items()}
        twin.parked = self.parked.copy()
        twin.retryable = self.retryable.copy()
        twin.last_unsuccessful = self.last_unsuccessful.copy()
        twin.gates = self.gates.copy()
        twin.prepared = self.prepared.copy()
        return twin

    @property
    def running(self) -> OpenTurn | None:
        """The open turn of the root loop."""
        return next((t for t in self.open_turns.values() if t.loop == self.root), None)


def _copy_turn(turn: OpenTurn) -> OpenTurn:
    twin = replace(turn)
    twin.open_calls = turn.open_calls.copy()
    twin.answers = turn.answers.copy()
    twin.effects = turn.effects.copy()
    return twin
