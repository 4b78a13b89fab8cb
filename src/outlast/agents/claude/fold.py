"""The fold of one life of Claude Code: frames in, events out, and the next line to write.

State changes only by reading frames, our own among them, so that an owner that comes later reads itself
into the same state. One process serves many turns."""

from __future__ import annotations

import re

import msgspec

from outlast.agents.claude import requests
from outlast.agents.claude.frames import apply_frame
from outlast.agents.claude.gates import Payload, is_of, response
from outlast.agents.claude.state import State, Steer
from outlast.agents.claude.turn import end_turn, end_with_process
from outlast.agents.claude.wire import ControlRequest, ControlResponse, Frame, decode_frame
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    ExitInfo,
    Failure,
    FoldContext,
    InputLine,
    ToolCall,
    Wanted,
)
from outlast.agents.failure import classify_exit
from outlast.agents.peer import repair_surrogates
from outlast.agents.shapes import decode
from outlast.agents.turnwise import failed, note_sent, prompt_name, raw_line
from outlast.errors import InvalidRecordError

_LONG_TYPE = re.compile(rb'^\{"type":"(\w+)"')
_LONG_RESULT = re.compile(rb'"tool_use_id":"([^"\\]+)"')


class ClaudeFold:
    """See `outlast.agents.contract.Fold`."""

    def __init__(self, context: FoldContext, state: bytes | None) -> None:
        if state is not None:
            try:
                self._state = msgspec.json.decode(state, type=State)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise InvalidRecordError("the folded state is not one of claude") from error
        else:
            session = context.provider_session or ""
            self._state = State(session=session, confirmed=context.confirmed)

    @property
    def last_input(self) -> int:
        """Seq of the last input frame folded."""
        return self._state.last_input

    @property
    def turn(self) -> str | None:
        """The turn that Claude Code works on: the request id of its prompt."""
        return self._state.turn

    @property
    def open_calls(self) -> int:
        """Tool calls that have started and not ended in the running turn."""
        return len(self._state.calls)

    @property
    def unsettled(self) -> frozenset[str]:
        """Keys of the steers that were written and have neither joined the turn nor been dropped."""
        return frozenset(steer.key for steer in self._state.steers.values())

    @property
    def ending(self) -> bool:
        """Claude Code will say no more, or can't serve the session."""
        return self._state.stdout_closed or self._state.stage == "failed"

    def dump(self) -> bytes:
        """The state as JSON."""
        return msgspec.json.encode(self._state)

    # --- reading ---------------------------------------------------------------------------

    def apply_in(self, line: bytes, seq: int) -> list[AgentEvent]:
        """Read a line that an owner wrote."""
        state = self._state
        state.last_input = seq
        frame = decode_frame(line)
        if frame is None:
            return []
        if frame.type == "user":
            self._apply_message(frame)
        elif frame.type == "control_request":
            self._apply_request(frame, seq)
        elif frame.type == "control_response":
            self._apply_answer(frame)
        return []

    def _apply_message(self, frame: Frame) -> None:
        state, sent = self._state, frame.outlast
        if sent is None:
            return
        if sent.steer:
            state.steered.append(sent.request)
            over = state.turn is None or state.ended is not None
            state.steers[frame.uuid] = Steer(sent.request, late=over)
            return
        note_sent(state.sent, prompt_name(sent.request, sent.attempt))
        # By the frame, not by what the session knows now: it may have another one since.
        state.session = frame.session_id or state.session
        state.turn, state.uuid = sent.request, frame.uuid
        state.queued = state.begun = state.landed = state.interrupted = False
        state.ended, state.error, state.partial = None, "", ""
        state.pause = state.renewed_in = 0.0
        state.usage.clear()
        state.steered.clear()

    def _apply_request(self, frame: Frame, seq: int) -> None:
        state, request = self._state, decode(frame.request, ControlRequest)
        if request is None:
            return
        if request.subtype == "initialize":
            state.stage, state.hello = "greeting", seq
        elif request.subtype == "interrupt":
            state.interrupted = state.turn is not None
        elif request.subtype == "cancel_async_message" and request.message_uuid in state.steers:
            state.steers[request.message_uuid].withdrawn = True

    def _apply_answer(self, frame: Frame) -> None:
        state, told = self._state, decode(frame.response, ControlResponse)
        if told is None:
            return
        if told.request_id in state.refuse:
            state.refuse.remove(told.request_id)
        for gate in state.gates:
            if is_of(gate, told.request_id):
                state.gates[gate] = True

    def apply_out(self, line: bytes) -> list[AgentEvent]:
        """Read a line that Claude Code wrote."""
        frame = decode_frame(line)
        if frame is None:
            line = repair_surrogates(line)
            frame = decode_frame(line)
        events = None if frame is None else apply_frame(self._state, frame, line)
        return [raw_line(line, len(line))] if events is None else events

    def apply_long(self, head: bytes, size: int) -> list[AgentEvent]:
        """Read the beginning of a line that is too long: what must not be missed is which call or turn
        ended."""
        events: list[AgentEvent] = [raw_line(head, size)]
        state, said = self._state, _LONG_TYPE.search(head)
        kind = said[1] if said is not None else b""
        call = _LONG_RESULT.search(head)
        if kind == b"user" and call is not None:
            name = state.calls.pop(call[1].decode(), None)
            if name is not None:
                events.append(ToolCall(call[1].decode(), name, "completed", output=f"[{size} bytes]"))
        if kind == b"result" and state.turn is not None and state.begun:
            failure = Failure("output_limit", f"claude ended the turn with a line of {size} bytes")
            events += end_turn(state, failed(failure))
        return events

    def apply_eof(self) -> list[AgentEvent]:
        """Claude Code closed its stdout."""
        self._state.stdout_closed = True
        return []

    def apply_stdin_closed(self, seq: int) -> list[AgentEvent]:
        """An owner closed Claude Code's stdin: it ends with the turn that runs."""
        self._state.last_input = seq
        self._state.stdin_closed = True
        return []

    def apply_exit(self, info: ExitInfo, /) -> list[AgentEvent]:
        """Claude Code's process ended."""
        self._state.stdout_closed = self._state.stdin_closed = True
        return end_with_process(self._state, classify_exit(info))

    # --- writing ---------------------------------------------------------------------------

    def next(self, wanted: Wanted) -> InputLine | CloseStdin | None:
        """The next line to write, given what the session wants."""
        state = self._state
        if state.stdin_closed or state.stdout_closed:
            return None
        if state.stage == "failed":
            return CloseStdin()  # Nothing will ever be asked of it.
        if state.refuse:
            return requests.refuse(state.refuse[0])
        if state.stage != "ready":
            return requests.initialize(state.last_input + 1) if state.stage == "silent" else None
        return (
            self._next_answer(wanted)
            or self._next_of_cancel(wanted)
            or self._next_withdrawal()
            or self._next_prompt(wanted)
            or self._next_steer(wanted)
        )

    def _next_answer(self, wanted: Wanted) -> InputLine | None:
        answered: dict[str, tuple[Payload, str]] = {}
        for answer in wanted.answers:
            if self._state.gates.get(answer.gate) is not False:
                continue
            payload = decode(answer.payload, Payload)
            if payload is not None and answer.gate in payload.gates:
                answered[answer.gate] = payload, answer.choice
        for payload, _ in answered.values():
            try:
                told = response(answered, payload)
            except KeyError:
                # A choice that was not offered must never become an approval.
                return requests.refuse(payload.id)
            if told is not None:
                return requests.answer(payload.id, told)
        return None

    def _next_of_cancel(self, wanted: Wanted) -> InputLine | None:
        state = self._state
        if wanted.cancel and state.turn is not None and not state.interrupted:
            return requests.interrupt(state.last_input + 1)
        return None

    def _next_withdrawal(self) -> InputLine | None:
        """An input that came after the turn's end must not become a turn that nobody has begun."""
        for uuid, steer in self._state.steers.items():
            if steer.late and not (steer.begun or steer.withdrawn):
                return requests.withdraw(self._state.last_input + 1, uuid)
        return None

    def _next_prompt(self, wanted: Wanted) -> InputLine | None:
        state, prompt = self._state, wanted.prompt
        busy = state.turn is not None or bool(state.steers)
        if prompt is None or busy or wanted.cancel or not wanted.session_durable:
            return None
        if prompt_name(prompt.request_id, prompt.attempt) in state.sent:
            return None
        return requests.message(state.session, prompt)

    def _next_steer(self, wanted: Wanted) -> InputLine | None:
        state, prompt = self._state, wanted.prompt
        # Not before the turn's own prompt is stored: the conversation keeps its order.
        takes = state.landed and state.ended is None and not state.interrupted
        if prompt is None or prompt.request_id != state.turn or not takes or wanted.cancel:
            return None
        new = (steer for steer in wanted.steer if steer.request_id not in state.steered)
        steer = next(new, None)
        return None if steer is None else requests.message(state.session, steer, steer=True)
