"""The pure fold of the `Command` protocol: frames in, events out.

State changes only by what is folded. A line that is not of the protocol, comes after the end of the turn
or carries a wrong nonce changes nothing; it is kept as `Raw`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import msgspec

from outlast.agents import command_wire as wire
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    ExitInfo,
    Failure,
    FoldContext,
    GateClosed,
    GateRequested,
    InputLine,
    Message,
    Notice,
    Prompt,
    Raw,
    SessionConfirmed,
    SessionLost,
    SessionObserved,
    ToolCall,
    TurnEnded,
    Usage,
    Wanted,
)
from outlast.agents.failure import classify_exit, reported, tidy
from outlast.agents.peer import encode_line
from outlast.errors import InvalidRecordError
from outlast.records.types import Content

TOO_LONG = "a line of {} bytes, which is more than a line may have"
RAW_LIMIT = 4_096
"""Bytes that are kept of a line that is not of the protocol."""
OPEN_LIMIT = 1_000
"""Calls that are followed at a time, and gates of one process: what bounds the state."""


class _State(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    version: Literal[1] = 1
    last_input: int = 0
    turn: str | None = None
    nonce: str = ""
    provider_session: str | None = None
    stdin_closed: bool = False
    unheard: bool = False
    """A gate came that could not be answered, because stdin was closed."""
    left_out: int = 0
    """Bytes of the first line of the answer that was too long to be taken in."""
    unknown: int = 0
    """Bytes of the first line too long to be told what it was, that may have been one of the protocol."""
    ended: bool = False
    """The turn has its terminal."""
    eof: bool = False
    early: tuple[str, str, float | None] | None = None
    """An error (code, message, retry after) that came before the prompt was folded."""
    early_retryable: bool = False
    called: bool = False
    """It has told of a call."""
    calls: dict[str, str] = {}
    """Open calls: id to name."""
    gates: dict[str, bool] = {}
    """Gates of this process: whether each is still open."""
    usage: dict[str, int] = {}


class CommandFold:
    """See `outlast.agents.contract.Fold`."""

    def __init__(
        self,
        context: FoldContext,
        *,
        stdin: Literal["close", "open"],
        require_nonce: bool,
        state: bytes | None,
    ) -> None:
        self._context = context
        self._keeps_stdin = stdin == "open"
        self._require_nonce = require_nonce
        try:
            self._state = msgspec.json.decode(state, type=_State) if state is not None else _State()
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidRecordError("the folded state is not one of a command agent") from error
        self._handlers: Mapping[type[wire.Said], Callable[..., list[AgentEvent] | None]] = {
            wire.Session: self._session,
            wire.Text: self._message,
            wire.Tool: self._tool,
            wire.Gate: self._gate,
            wire.BrokenGate: self._broken_gate,
            wire.Counts: self._usage,
            wire.Done: self._done,
            wire.Error: self._error,
        }

    @property
    def last_input(self) -> int:
        return self._state.last_input

    @property
    def turn(self) -> str | None:
        return self._state.turn

    @property
    def open_calls(self) -> int:
        return len(self._state.calls)

    @property
    def unsettled(self) -> frozenset[str]:
        """None: the protocol has no steer."""
        return frozenset()

    @property
    def ending(self) -> bool:
        return self._state.ended or self._state.eof

    def dump(self) -> bytes:
        return msgspec.json.encode(self._state)

    # --- frames --------------------------------------------------------------------------------

    def apply_in(self, line: bytes, seq: int) -> list[AgentEvent]:
        self._state.last_input = seq
        ours = wire.decode_input(line)
        if isinstance(ours, wire.Answer):
            if ours.gate in self._state.gates:
                self._state.gates[ours.gate] = False
            return []
        if ours is None or self._state.turn is not None:
            return []
        self._state.turn, self._state.nonce = ours.turn, ours.nonce
        if self._state.early is None:
            return []
        return self._end(failure=reported(*self._state.early, self._taken_up(self._state.early_retryable)))

    def apply_stdin_closed(self, seq: int) -> list[AgentEvent]:
        self._state.last_input = seq
        self._state.stdin_closed = True
        return []

    def apply_out(self, line: bytes) -> list[AgentEvent]:
        if not line.strip():
            return []
        said = None if self._state.ended else wire.decode_output(line)
        if said is not None and self._trusted(said):
            events = self._handlers[type(said)](said)
            if events is not None:
                refused = isinstance(said, wire.Gate | wire.BrokenGate) and self._state.ended
                return [_raw(line, len(line)), *events] if refused else events
        return [_raw(line, len(line))]

    def apply_long(self, head: bytes, size: int) -> list[AgentEvent]:
        """What such a line says is lost; that it was said is not, as far as its beginning tells."""
        return [_raw(head, size), *self._too_long(head, size)]

    def _too_long(self, head: bytes, size: int) -> list[AgentEvent]:
        fields = None if self._state.ended else wire.beginning_of(head)
        if fields is None:
            return []
        kind, signed = fields.get("type"), fields.get("nonce")
        trusted = self._trusted(wire.Signed(nonce=signed if isinstance(signed, str) else None))
        match kind:
            case "message":
                text = f"[{TOO_LONG.format(size)}, was left out]"
                if fields.get("role") == "thought":
                    return [Message("thought", text)]
                self._state.left_out = self._state.left_out or size
                return [Message("assistant", text)]
            case "tool":
                return self._long_tool(fields, size)
            case "gate" if trusted:
                return self._unaskable(TOO_LONG.format(size), "output_limit") or []
            case "done" | "error" if trusted and self._state.turn is not None:
                said = f"the agent ended the turn with {TOO_LONG.format(size)}"
                return self._end(failure=Failure("output_limit", said))
            case None | "gate" | "done" | "error":
                self._state.unknown = self._state.unknown or size
                return [Notice(f"the agent printed {TOO_LONG.format(size)}: it was left out")]
        return []

    def _long_tool(self, fields: Mapping[str, object], size: int) -> list[AgentEvent]:
        call, status, name = fields.get("id"), fields.get("status"), fields.get("name", "")
        if not isinstance(call, str) or not isinstance(name, str):
            return []
        said = f"[{TOO_LONG.format(size)}]"
        if status == "started":
            return self._tool(wire.Tool(id=call, status="started", name=name))
        if status in ("completed", "failed"):
            ended: Literal["completed", "failed"] = "completed" if status == "completed" else "failed"
            line = wire.Tool(id=call, status=ended, name=name, output=msgspec.Raw(msgspec.json.encode(said)))
            return self._tool(line)
        return []

    def apply_eof(self) -> list[AgentEvent]:
        self._state.eof = True
        return []

    def apply_exit(self, info: ExitInfo, /) -> list[AgentEvent]:
        self._state.eof = True
        if self._state.turn is None or self._state.ended:
            return []
        return self._end(failure=self._exit_failure(info))

    # --- what to write -------------------------------------------------------------------------

    def next(self, wanted: Wanted) -> InputLine | CloseStdin | None:
        """Cancelling has no line in this protocol: stdin is closed, and who wants more ends the process."""
        state = self._state
        if state.stdin_closed:
            return None
        if wanted.cancel or self.ending:
            return CloseStdin()
        if state.turn is None:
            return None if wanted.prompt is None else self._prompt(wanted.prompt)
        for answer in wanted.answers:
            if state.gates.get(answer.gate):
                return InputLine(
                    encode_line({"type": "answer", "gate": answer.gate, "choice": answer.choice})
                )
        return None if self._keeps_stdin else CloseStdin()

    def _prompt(self, prompt: Prompt) -> InputLine:
        context = self._context
        line: dict[str, object] = {
            "outlast": 1,
            "nonce": nonce(context, prompt),
            "session": context.session,
            "loop": context.loop,
            "turn": prompt.turn,
            "attempt": prompt.attempt,
            "request_id": prompt.request_id,
            "idempotency_key": f"{context.session}/{prompt.turn}",
            "resume": context.provider_session,
            "workspace": context.workspace,
            "input": [_block(content) for content in prompt.content],
        }
        if prompt.continues:
            line["continue"] = True
        return InputLine(encode_line(line), carries=prompt.request_id)

    # --- what the agent said -------------------------------------------------------------------

    def _trusted(self, said: wire.Said) -> bool:
        """A nonce that is given must be the prompt's; where it is required, it must be given."""
        if not isinstance(said, wire.Signed):
            return True
        if said.nonce is None:
            return not self._require_nonce
        return bool(self._state.nonce) and said.nonce == self._state.nonce

    def _session(self, said: wire.Session) -> list[AgentEvent]:
        if said.id == self._state.provider_session:
            return []
        before = self._state.provider_session or self._context.provider_session
        self._state.provider_session = said.id
        if before is None:
            return [SessionObserved(said.id)]
        if said.id == before:
            return [SessionObserved(said.id, source="resumed")]
        return [SessionLost(before, "the agent went on in another session"), SessionObserved(said.id)]

    def _message(self, said: wire.Text) -> list[AgentEvent]:
        return [Message(said.role, said.text)]

    def _tool(self, said: wire.Tool) -> list[AgentEvent]:
        calls, self._state.called = self._state.calls, True
        name = said.name or calls.get(said.id, "")
        if said.status != "started":
            calls.pop(said.id, None)
        elif said.id in calls or len(calls) < OPEN_LIMIT:
            calls[said.id] = name
        return [ToolCall(said.id, name, said.status, wire.text_of(said.input), wire.text_of(said.output))]

    def _gate(self, said: wire.Gate) -> list[AgentEvent] | None:
        state = self._state
        if state.turn is None:
            return None
        if state.stdin_closed or not self._keeps_stdin:
            state.unheard = True
            return None
        if state.gates.get(said.id):
            return None  # It is asked already, and will be answered.
        choices = wire.choices_of(said)
        if choices is None:
            return self._unaskable("two of its choices have the same id")
        if said.id in state.gates:
            return self._unaskable("its id was used before")
        if len(state.gates) >= OPEN_LIMIT:
            return self._unaskable(f"it is the agent's {OPEN_LIMIT + 1}th in one turn")
        state.gates[said.id] = True
        kind: Literal["permission", "question"] = (
            "permission" if any(choice.kind for choice in choices) else "question"
        )
        return [GateRequested(said.id, kind, said.question, choices)]

    def _broken_gate(self, said: wire.BrokenGate) -> list[AgentEvent] | None:
        return self._unaskable(said.why)

    def _unaskable(self, why: str, code: str = "protocol_error") -> list[AgentEvent] | None:
        """A gate that no person can be asked. The agent would wait for its answer for ever."""
        state = self._state
        if state.turn is None:
            return None
        if state.stdin_closed or not self._keeps_stdin:
            state.unheard = True
            return None
        return self._end(failure=Failure(code, tidy(f"the agent asked what cannot be asked: {why}")))

    def _usage(self, said: wire.Counts) -> list[AgentEvent]:
        for name, count in said.counts.items():
            if name in self._state.usage or len(self._state.usage) < wire.COUNTS_LIMIT:
                self._state.usage[name] = min(self._state.usage.get(name, 0) + count, wire.COUNT_MAX)
        return [Usage(said.counts)]

    def _done(self, said: wire.Done) -> list[AgentEvent] | None:
        if self._state.turn is None:
            return None
        if self._state.left_out:
            said_of = f"the answer is not whole: {TOO_LONG.format(self._state.left_out)}, was left out"
            return self._end(failure=Failure("output_limit", said_of))
        return self._end(stop_reason=said.stop_reason or "end_turn")

    def _error(self, said: wire.Error) -> list[AgentEvent] | None:
        retryable = said.retryable is True
        if self._state.turn is not None:
            pause, retry = wire.pause_of(said), self._taken_up(retryable)
            return self._end(failure=reported(str(said.code), said.message, pause, retry))
        if self._state.early is not None:
            return None
        self._state.early = (str(said.code), tidy(said.message), wire.pause_of(said))
        self._state.early_retryable = retryable
        return []

    def _taken_up(self, retryable: bool) -> Literal["again", "continue"] | None:
        """A program may do what it does not tell: that the turn can be taken up again is its own word."""
        if not retryable:
            return None
        return "continue" if self._state.called else "again"

    def _end(self, *, stop_reason: str = "end_turn", failure: Failure | None = None) -> list[AgentEvent]:
        state = self._state
        events: list[AgentEvent] = [GateClosed(gate) for gate, is_open in state.gates.items() if is_open]
        state.gates = dict.fromkeys(state.gates, False)
        state.calls = {}
        state.ended = True
        if failure is None and state.provider_session is not None:
            events.append(SessionConfirmed(state.provider_session))
        events.append(TurnEnded(state.turn or "", stop_reason, failure, usage=dict(state.usage)))
        return events

    def _exit_failure(self, info: ExitInfo) -> Failure:
        failure = classify_exit(info)
        if failure.code == "protocol_error" and self._state.unknown:
            printed = f"{failure.message}; it had printed {TOO_LONG.format(self._state.unknown)}"
            return replace(failure, code="output_limit", message=printed)
        if self._state.unheard:
            note = 'it asked a question, but its stdin was closed: set stdin = "open" for this agent'
            return replace(failure, message=f"{failure.message}; {note}")
        return failure


def nonce(context: FoldContext, prompt: Prompt) -> str:
    """The prompt's nonce: no tool can guess it, every owner of the generation computes the same."""
    digest = hashlib.sha256()
    for part in (
        context.secret,
        context.session.encode(),
        prompt.turn.encode(),
        str(prompt.attempt).encode(),
    ):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def _block(content: Content) -> dict[str, str]:
    return {"type": content.type, "text": content.text}


def _raw(data: bytes, size: int) -> Raw:
    kept = data[:RAW_LIMIT]
    return Raw(kept.decode("utf-8", "replace"), dropped=size - len(kept))
