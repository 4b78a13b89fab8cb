"""What the journal can hold: one frozen Struct per record type, as records.md describes them.

A type arrives with its first writer. Fields with defaults are left out of the stored JSON when they
hold the default, but for the three shapes that are read outside by themselves.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import msgspec
from msgspec.structs import replace

OnInterrupt = Literal["skip", "continue", "retry", "hold", "ask"]
WhenBusy = Literal["queue", "steer", "reject"]
EffectPhase = Literal["typed_result", "validation", "write_back", "settle"]
"""Where in a turn a named effect runs: in this order, after the host step."""
EffectReplay = Literal["never", "safe", "check"]
"""What may be done about an effect whose body began and whose outcome is not recorded: nothing, run it
again, or ask its own check first."""

OUTLINE_TEXT = 640
"""Characters of an input's text in its outline: as many as a title looks at."""


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of all bodies. `VERSION` is the version that this outlast writes; `PUBLIC` says whether
    the record is shown outside (a property of the type)."""

    VERSION: ClassVar[int] = 1
    PUBLIC: ClassVar[bool] = True

    def outline(self) -> Self | None:
        """The body without the text that nothing is folded from; None where that would leave nothing out. It
        stays in the record when the whole is kept as a blob."""
        return None


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A piece of a structure inside a body; not a record."""


# --- ownership ---------------------------------------------------------------------------------


class Fence(Body, frozen=True, kw_only=True):
    """First record of each owner."""

    epoch: int
    holder: str
    previous_epoch: int = 0


class JournalRepaired(Body, frozen=True, kw_only=True):
    """A person had the journal cut where it was damaged. What is told before it is all that is known."""

    cut_seq: int
    """The first record that was taken out, or that was not there any more."""
    lost_to: int
    """The last one that is known to have been stored; below `cut_seq` where nothing was taken out."""
    kind: Literal["record", "body", "rule", "shorter", "replaced"]
    reason: str
    quarantine: str
    """Name of the folder, in the store's quarantine, that keeps what could be read of them."""


# --- session -----------------------------------------------------------------------------------


class Manifest(Part, frozen=True, kw_only=True, omit_defaults=False):
    """Schema 1: what the session runs under. Drift over it arrives later."""

    schema: int = 1
    agent: str
    agent_kind: str
    adapter: str
    model: str | None = None
    workspace: str
    versions: dict[str, str] = {}


class SessionStarted(Body, frozen=True, kw_only=True):
    lineage: str
    manifest: Manifest
    fingerprint: str
    title: str
    workspace: str
    labels: dict[str, str] = {}


class SessionStopped(Body, frozen=True, kw_only=True):
    reason: str


# --- restore -----------------------------------------------------------------------------------


class PlannedTurn(Part, frozen=True, kw_only=True):
    """How a restore closes one open turn, and the evidence."""

    turn: str
    loop: str
    action: Literal["attach", "settle", "return", "interrupt", "resume"]
    then: Literal["none", "retry", "continue", "hold", "ask", "quarantine"] = "none"
    evidence: str
    seq: int = 0
    """The record that is the evidence, 0 where a fact outside the journal is."""


class RestoreStarted(Body, frozen=True, kw_only=True):
    """First mutation of a restore, in one batch with its fence."""

    from_seq: int
    facts: list[str] = []
    turns: list[PlannedTurn] = []
    verified_from: int = 0
    """The records after this one were read and held against the chain, the state at it was a snapshot's."""


class RestoreDone(Body, frozen=True, kw_only=True):
    """The commit point."""

    took_ms: int
    actions: list[str] = []


class RestoreErrored(Body, frozen=True, kw_only=True):
    kind: str
    message: str


# --- loops -------------------------------------------------------------------------------------


class LoopStarted(Body, frozen=True, kw_only=True):
    loop: str
    name: str
    agent: str
    agent_kind: str
    parent: str | None = None
    spawned_by: str | None = None


class LoopChanged(Body, frozen=True, kw_only=True):
    state: Literal["active", "held"]
    reason: str = ""


class AgentSessionChanged(Body, frozen=True, kw_only=True):
    provider: str
    provider_session: str
    state: Literal["bound", "confirmed", "lost", "reseeded"]
    source: Literal["chosen", "observed", "resumed", "forked"]
    reason: str = ""


# --- input and turns ---------------------------------------------------------------------------


class Content(Part, frozen=True, kw_only=True, omit_defaults=False):
    """One block of an input: text, or an image. `text` of an image is what people are shown in its place;
    `data` are its bytes in base64, `media_type` is such as `image/png`. Text has neither."""

    type: Literal["text", "image"] = "text"
    text: str
    media_type: str | msgspec.UnsetType = msgspec.UNSET
    data: str | msgspec.UnsetType = msgspec.UNSET


class InputAccepted(Body, frozen=True, kw_only=True):
    request_id: str
    content: list[Content]
    on_interrupt: OnInterrupt | None = None
    joins: str | None = None
    """The running turn that it is to be given to; if that ends without it, it waits as any other."""

    def outline(self) -> Self:
        # A session without a title is called by the beginning of its first input.
        return replace(self, content=[Content(text=block.text[:OUTLINE_TEXT]) for block in self.content[:1]])


class InputReturned(Body, frozen=True, kw_only=True):
    """Back to its place in the queue: proven never sent, or, when it was to join the record's `turn`, proven
    not taken."""

    request_id: str
    evidence: str


class InputJoined(Body, frozen=True, kw_only=True):
    """Landed in the running turn (the record's `turn`)."""

    request_id: str


class InputCancelled(Body, frozen=True, kw_only=True):
    request_id: str
    reason: Literal["busy", "cancelled", "closed", "withdrawn", "lost", "damaged"]
    """`lost`: a repair cut its record away; whether it was carried out is not known. `damaged`: what waited
    was not what had been sent; it was not carried out."""


class CommandSettled(Body, frozen=True, kw_only=True):
    """A command that has no record of its own has had its effect, or came too late."""

    request_id: str
    command: str
    outcome: Literal["done", "too_late", "refused"]
    detail: str = ""


class PlannedEffect(Part, frozen=True, kw_only=True):
    """An effect that is to run after the turn's host step."""

    name: str
    phase: EffectPhase
    replay: EffectReplay


class TurnStarted(Body, frozen=True, kw_only=True):
    """Turn id = the input's id, in the envelope."""

    index: int
    request_id: str
    config_epoch: int = 1
    settings: dict[str, str] = {}
    effects: list[PlannedEffect] = []
    """In the order in which they run. Whoever goes on with the turn owes it these."""


class Process(Part, frozen=True, kw_only=True):
    role: Literal["guard", "shim"]
    pid: int
    start_ticks: int
    pid_ns: int = 0


class TurnAttemptStarted(Body, frozen=True, kw_only=True):
    """Appended when the idle shim holds its lock, before START; for a turn given to an agent that lives
    already, before its first INPUT."""

    attempt: int
    folder: str
    generation: str
    machine: str
    boot_id: str
    processes: list[Process] = []


class InputReserved(Body, frozen=True, kw_only=True):
    """The next line to the agent's stdin carries an input: `seq` is the input frame it will be. `key` is the
    turn's own id, or that of a waiting input which is to join the turn."""

    generation: str
    seq: int
    key: str
    digest: str
    continues: bool = False
    """It does not carry the input itself: the agent's session was given that before."""


class TurnAttached(Body, frozen=True, kw_only=True):
    """A later owner goes on with a living agent; the turn was never interrupted."""

    attempt: int
    generation: str
    spool_offset: int


class AgentEventRecorded(Body, frozen=True, kw_only=True):
    """Merged output of the agent, 64 KiB of text at most. Messages merged into one record are separated
    by a newline; `more` says that the text goes on in the next record without one."""

    kind: Literal["message", "thought", "plan", "usage", "raw"]
    text: str = ""
    more: bool = False
    count: int = 1
    """How many events of the agent this record stands for."""
    dropped: int = 0
    """Bytes that were counted but not kept (raw output past its cap)."""
    usage: dict[str, int] = {}

    def outline(self) -> Self:
        return replace(self, text="")


class CallObserved(Body, frozen=True, kw_only=True):
    """A foreign agent's own tool call: evidence, not control. Input and output are bounded."""

    call: str
    name: str
    status: Literal["started", "completed", "failed"]
    input: str = ""
    output: str = ""

    def outline(self) -> Self:
        return replace(self, input="", output="")


class AgentStateFolded(Body, frozen=True, kw_only=True):
    """The adapter's folded state; a later owner's fold starts here and the spool below may be trimmed."""

    PUBLIC: ClassVar[bool] = False

    generation: str
    offset: int
    """Spool offset of the first frame to read again."""
    stdout: int
    """Stdout offset after the last line in the state; bytes before it are skipped."""
    last_input: int
    """Seq of the last input frame in the state."""
    state: bytes


class TurnDone(Body, frozen=True, kw_only=True):
    stop_reason: str
    usage: dict[str, int] = {}


class HostRecovery(Part, frozen=True, kw_only=True, omit_defaults=False):
    schema_version: str = "outlast_turn_host_recovery_v1"
    kind: str = "resume_session"


class ReceiptError(Part, frozen=True, kw_only=True):
    code: str
    message: str
    signal: int | None = None
    exit_status: int | None = None
    retry_after: float | None = None
    """Seconds."""


class PlannedRetry(Part, frozen=True, kw_only=True):
    """That the turn is tried again by itself: the `retry`-th time in a row, of at most `of`, `wait` seconds
    after this record. `not_before` is that time for people (RFC 3339)."""

    mode: Literal["again", "continue"]
    retry: int
    of: int
    wait: float
    not_before: str
    boot_id: str = ""
    """Of the boot in which it was planned; empty where the system tells none."""
    due: int = 0
    """In that boot the time for it, in nanoseconds of a clock that nobody can set."""


class Receipt(Part, frozen=True, kw_only=True):
    """The typed outcome of one failed attempt."""

    attempt: int
    completed_phases: list[str]
    failed_phase: str
    error: ReceiptError
    host_recovery: HostRecovery | None = None
    retry: PlannedRetry | None = None


class TurnFailed(Body, frozen=True, kw_only=True):
    receipt: Receipt


class TurnInterrupted(Body, frozen=True, kw_only=True):
    index: int
    reason: Literal["crash", "cancelled", "closed", "killed"]
    evidence: str = ""


class TurnParked(Body, frozen=True, kw_only=True):
    reason: Literal["quarantined", "held"]
    detail: str = ""


BY_ON_INTERRUPT = "on_interrupt"
"""`TurnRetried.by` of a retry that no person asked for: it spends the recovery budget."""
BY_POLICY = "policy:"
"""What `TurnRetried.by` begins with, before the failure's code, of a retry that the receipt before it
planned: the turn waits until its time has come."""


class TurnRetried(Body, frozen=True, kw_only=True):
    """Reopens the same turn id."""

    by: str
    """Who asked for it, BY_ON_INTERRUPT, or BY_POLICY and a code."""
    mode: Literal["again", "continue"]
    """`continue`: from where the agent's own transcript ends, or behind its host step where that is done."""
    effects: list[PlannedEffect] | None = None
    """What it owes from now on; None: what it owed before."""


class ReplyInterrupted(Body, frozen=True, kw_only=True):
    """What had arrived of a reply that was cut off."""

    text: str

    def outline(self) -> Self:
        return replace(self, text="")


# --- gates -------------------------------------------------------------------------------------


class Choice(Part, frozen=True, kw_only=True):
    id: str
    label: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"] | None = None


class GatePrepared(Body, frozen=True, kw_only=True):
    """What the agent needs to hear an answer; never leaves."""

    PUBLIC: ClassVar[bool] = False

    gate: str
    name: str
    """The agent's own name of the gate, unique within the generation."""
    generation: str
    payload: bytes


class GateOpened(Body, frozen=True, kw_only=True):
    gate: str
    kind: Literal["permission", "question"]
    question: str
    choices: list[Choice]
    restorable: bool = True
    resolver: Literal["agent", "runtime"] = "agent"
    requested_by: str = ""


class GateResolved(Body, frozen=True, kw_only=True):
    gate: str
    reason: Literal["answered", "policy", "abandoned", "expired", "restore_unavailable"]
    answer: str | None = None
    by: str | None = None


class BlobRef(Body, frozen=True, kw_only=True):
    """Stands in the place of a body over 256 KiB that was not fetched; no record type of its own."""

    digest: str
    size: int
