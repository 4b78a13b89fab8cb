"""What an agent adapter is: configuration, a way to launch, and a pure fold over the spool.

The shim's spool holds both directions in one order. An adapter folds it: its state changes only by
reading frames, so that a live agent and one found after a restart run the same code. The session turns
events into records and asks `next` for the next line only when the records of all that was folded are
durable. No adapter touches the journal, a clock or a file while folding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from outlast.records.types import Choice, Content

# --- launching ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What an adapter may use for a launch. `environ` is the runtime's environment: only names that the
    agent's configuration lets through, beside the safe default list, may reach the agent."""

    session: str
    loop: str
    workspace: str
    environ: Mapping[str, str]
    provider_session: str | None
    """The provider's session id to resume, None for a new one."""
    confirmed: bool
    """Whether the agent ever acknowledged a finished turn on `provider_session`."""
    given: bool = False
    """Whether an agent was given an input on `provider_session`: what is not there any more is lost then."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    input_limit: int = 64 * 1024 * 1024
    """Bytes of one input line."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the program can do; checked before it is asked to."""

    resume: bool = False
    steer: bool = False
    choose_id: bool = False
    message_key: bool = False
    images: bool = False
    many_turns: bool = False
    """One process serves many turns; else a process is one turn."""
    landing_precedes_model_call: bool = False
    """It stores a prompt before it calls a model with it: what its transcript lacks, no model was told while
    the machine stayed up."""
    prompt_characters: int | None = None
    """The most that it takes in the texts of one prompt; None: no limit is known."""


# --- what the session wants --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prompt:
    turn: str
    attempt: int
    request_id: str
    content: tuple[Content, ...]
    continues: bool = False
    """Go on from where the agent's own transcript ends (on_interrupt = continue)."""
    notice: str = ""
    """What the agent's model is told before the content: facts about earlier turns that its own session
    lacks. Empty where there are none, or the program tells them itself."""


@dataclass(frozen=True, slots=True)
class GateAnswer:
    gate: str
    """The agent's own name of the gate, as `GateRequested.gate` gave it."""
    payload: bytes
    choice: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that the session wants of the agent now; the fold knows what of it is already written."""

    prompt: Prompt | None = None
    steer: tuple[Prompt, ...] = ()
    """Inputs that are to join the prompt's turn while it runs; never written after its end."""
    answers: tuple[GateAnswer, ...] = ()
    cancel: bool = False
    session_durable: bool = False
    """The observed provider session id is in the journal; before that no prompt may be sent."""


@dataclass(frozen=True, slots=True)
class InputLine:
    """One line for the agent's stdin, newline included. `carries` is the request id of the prompt or steer in
    it: it is reserved in the journal before it is written."""

    line: bytes
    carries: str | None = None


@dataclass(frozen=True, slots=True)
class CloseStdin:
    pass


# --- what the agent did ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionObserved:
    provider_session: str
    source: Literal["chosen", "observed", "resumed", "forked"] = "observed"


@dataclass(frozen=True, slots=True)
class SessionConfirmed:
    provider_session: str


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The provider cannot resume `provider_session`, or resumed another one."""

    provider_session: str
    reason: str


@dataclass(frozen=True, slots=True)
class Landed:
    """The agent's own record holds the prompt or steer with this key."""

    key: str


@dataclass(frozen=True, slots=True)
class NotLanded:
    """The agent has not taken the steer with this key and never will."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message, the next piece of one when `more`, or what had arrived of one that was `cut` off."""

    role: Literal["assistant", "thought", "plan"]
    text: str
    more: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that is still being written; shown live, never stored."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """What the agent says of its own state, such as that it waits for the network: shown live, never stored,
    and no sign that the turn goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    call: str
    name: str
    status: Literal["started", "completed", "failed"]
    input: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class GateRequested:
    gate: str
    """The agent's own name for it; unique within the generation."""
    kind: Literal["permission", "question"]
    question: str
    choices: tuple[Choice, ...]
    payload: bytes = b""
    """What `next` needs to answer it."""


@dataclass(frozen=True, slots=True)
class GateClosed:
    """The agent waits for this gate no more (cancelled by itself)."""

    gate: str


@dataclass(frozen=True, slots=True)
class Usage:
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Raw:
    """Output that is not of the protocol: kept (bounded) and counted."""

    text: str
    dropped: int = 0
    """Bytes of the line that `text` leaves out."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn failed, in the words of the taxonomy (`agents.failure`)."""

    code: str
    message: str
    signal: int | None = None
    exit_status: int | None = None
    retry_after: float | None = None
    retry: Literal["again", "continue"] | None = None
    """How the turn can be taken up once more so that nothing is done twice: `again`, nothing was done for it
    and the agent's own record does not hold its input; `continue`, that record holds the input and all that
    was done. None: this is not known, and only a person lets the turn run once more."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The agent cannot serve the session in this process, though its session may be intact. No prompt was
    written and none will be."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The agent's own terminal of `turn`: done with `stop_reason`, or failed. `cancelled` when it ended
    because it was asked to."""

    turn: str
    stop_reason: str = "end_turn"
    failure: Failure | None = None
    cancelled: bool = False
    usage: Mapping[str, int] = field(default_factory=dict)


AgentEvent = (
    SessionObserved
    | SessionConfirmed
    | SessionLost
    | Landed
    | NotLanded
    | Message
    | Delta
    | Notice
    | ToolCall
    | GateRequested
    | GateClosed
    | Usage
    | Raw
    | StartFailed
    | TurnEnded
)


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """How the agent's process ended, as the shim or guard recorded it."""

    status: int | None
    signal: int | None
    oom: bool = False
    """The kernel killed it for want of memory, or what it waited for."""
    killed: bool = False
    """The runtime or the shim ended it (a kill began before the exit): the signal is not the agent's own."""
    limited: bool = False
    """The shim ended it because no file may grow so large as its output would make one."""
    lingered: bool = False
    """It had closed its stdout before that kill began."""
    verified: bool = True
    """The whole tree is proven gone."""
    last_input: int | None = None
    """Seq of the newest input that was accepted for it, 0 for none; None where that is not known."""
    read_input: int | None = None
    """Seq of the newest input of which anybody read a byte, 0 for none; None where that is not known."""


class Fold(Protocol):
    """The pure fold of one generation. Deterministic: the same frames give the same state and events.

    A line from the agent comes whole, without its newline, invalid UTF-8 already replaced; a line over
    the adapter's `line_limit` comes to `apply_long` as its first bytes and its length.
    """

    @property
    def last_input(self) -> int:
        """Seq of the last input frame folded; the next line's seq is one more."""
        ...

    @property
    def turn(self) -> str | None:
        """The turn that the agent is working on, as the frames show it."""
        ...

    @property
    def open_calls(self) -> int:
        """Tool calls that have started and not ended: the idle clock stands still while there are any."""
        ...

    @property
    def unsettled(self) -> frozenset[str]:
        """Keys of the steers that were written, and of which the agent has not yet shown whether they
        landed. The turn of a living agent is not closed while there are any."""
        ...

    @property
    def ending(self) -> bool:
        """The agent has said all that it will say (done, error, end of stdout): its process may be ended."""
        ...

    def apply_in(self, line: bytes, seq: int) -> list[AgentEvent]: ...

    def apply_out(self, line: bytes) -> list[AgentEvent]: ...

    def apply_long(self, head: bytes, size: int) -> list[AgentEvent]: ...

    def apply_eof(self) -> list[AgentEvent]:
        """The agent closed its stdout."""
        ...

    def apply_stdin_closed(self, seq: int) -> list[AgentEvent]: ...

    def apply_exit(self, info: ExitInfo, /) -> list[AgentEvent]: ...

    def next(self, wanted: Wanted) -> InputLine | CloseStdin | None:
        """The next line to write, if any; asked again after it has been folded."""
        ...

    def dump(self) -> bytes:
        """The folded state, bounded; `Agent.fold(context, dump)` goes on from it."""
        ...


@dataclass(frozen=True, slots=True)
class FoldContext:
    session: str
    loop: str
    workspace: str
    provider_session: str | None
    confirmed: bool
    secret: bytes = b""
    """Random bytes that no tool of the agent can guess; the same for every owner of a generation, so that
    the same prompt gives the same line. The nonce of a prompt is derived from it."""


class Agent(Protocol):
    """Configuration of one foreign agent: a frozen dataclass of plain values."""

    @property
    def kind(self) -> str: ...
    @property
    def adapter(self) -> str:
        """Name and version of the adapter, for the manifest."""
        ...

    @property
    def model(self) -> str | None: ...
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def line_limit(self) -> int: ...
    @property
    def idle_timeout(self) -> float | None: ...
    @property
    def total_timeout(self) -> float | None: ...
    @property
    def on_interrupt(self) -> Literal["skip", "continue", "retry", "hold", "ask"]: ...
    @property
    def after_failure(self) -> Literal["continue", "hold", "withdraw"]: ...
    @property
    def on_lost(self) -> Literal["ask", "refuse", "fresh", "reseed"]:
        """What becomes of a session of its own that it cannot resume: a person is asked, the turn is refused,
        or a new one is begun, which knows nothing or is told what happened so far."""
        ...

    @property
    def retry_attempts(self) -> int:
        """The most retries in a row that a policy may make of a failed turn, whatever it says; 0: none."""
        ...

    @property
    def idle_park(self) -> float | None: ...
    @property
    def orphan_grace(self) -> float | None: ...

    def launch(self, context: LaunchContext) -> LaunchSpec:
        """Called in a thread. Raises AgentError when the program is not there."""
        ...

    def fold(self, context: FoldContext, state: bytes | None = None) -> Fold: ...

    def versions(self) -> Mapping[str, str]:
        """Of the program and the adapter, for the manifest; reads nothing that costs over a millisecond."""
        ...
