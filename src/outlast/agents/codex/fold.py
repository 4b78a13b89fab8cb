"""The fold of one life of `codex app-server`: frames in, events out, and the next line to write.

State changes only by reading frames, our own among them, so that an owner that comes later reads itself
into the same state. One process serves many turns; a prompt waits until no turn runs, because codex merges
a second `turn/start` into the running turn."""

from __future__ import annotations

import re

import msgspec

from outlast.agents.codex import requests
from outlast.agents.codex.gates import Payload, gate_name
from outlast.agents.codex.notices import apply_notice, apply_server_request
from outlast.agents.codex.requests import ThreadSettings
from outlast.agents.codex.responses import apply_response
from outlast.agents.codex.state import State
from outlast.agents.codex.turn import end_turn, not_landed, tell_end
from outlast.agents.codex.wire import (
    Frame,
    InterruptParams,
    OpenParams,
    PromptParams,
    SteerParams,
    decode_frame,
)
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
from outlast.agents.turnwise import close_gates, failed, note_sent, prompt_name, raw_line
from outlast.errors import InvalidRecordError

_LONG_METHOD = re.compile(rb'"method":"([\w/]+)"')
_LONG_ITEM = re.compile(rb'"item":\{"type":"(\w+)","id":"([^"\\]+)"')
_LONG_TURN = re.compile(rb'"turn":\{"id":"([^"\\]+)"')


class CodexFold:
    """See `outlast.agents.contract.Fold`."""

    def __init__(
        self, context: FoldContext, settings: ThreadSettings, version: str, state: bytes | None
    ) -> None:
        self._settings = settings
        self._version = version
        if state is not None:
            try:
                self._state = msgspec.json.decode(state, type=State)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise InvalidRecordError("the folded state is not one of codex") from error
        else:
            confirmed = context.confirmed and context.provider_session is not None
            self._state = State(resume=context.provider_session, confirmed=confirmed)

    @property
    def last_input(self) -> int:
        """Seq of the last input frame folded."""
        return self._state.last_input

    @property
    def turn(self) -> str | None:
        """The turn that codex works on: the request id of its prompt."""
        return self._state.turn

    @property
    def kept_at(self) -> str:
        """See `SaysWhereItKeeps`."""
        return self._state.rollout

    @property
    def open_calls(self) -> int:
        """Tool calls that have started and not ended in the running turn."""
        return len(self._state.calls)

    @property
    def unsettled(self) -> frozenset[str]:
        """Keys of the steers that were written and have neither landed nor been refused."""
        return frozenset(self._state.steers)

    @property
    def ending(self) -> bool:
        """Codex will say no more, or can't serve the session."""
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
        if frame.method is None:
            return self._apply_answer(frame)
        if frame.method == "initialize":
            state.stage = "greeting"
            state.requests[seq] = "initialize"
        elif frame.method == "initialized":
            state.stage = "introduced"
        elif frame.method in ("thread/start", "thread/resume"):
            state.stage = "opening"
            # By the frame, not by what the session knows now: it may have another thread since.
            opening = decode(frame.params, OpenParams)
            state.resume = opening.thread_id if opening is not None else None
            state.requests[seq] = "open"
        elif frame.method == "turn/start":
            self._apply_prompt(frame, seq)
        elif frame.method == "turn/steer":
            return self._apply_steer(frame, seq)
        elif frame.method == "turn/interrupt":
            asked = decode(frame.params, InterruptParams)
            state.interrupted = asked is not None and asked.turn_id == state.codex_turn
            state.requests[seq] = "interrupt"
        elif frame.method == "thread/backgroundTerminals/clean":
            state.cleaning = True
            state.requests[seq] = "clean"
        return []

    def _apply_prompt(self, frame: Frame, seq: int) -> None:
        state = self._state
        params = decode(frame.params, PromptParams)
        key = (params.client_user_message_id if params is not None else None) or ""
        state.requests[seq] = "turn"
        note_sent(state.sent, prompt_name(key, frame.outlast.attempt if frame.outlast is not None else 1))
        state.turn = key
        state.codex_turn = None
        state.landed = state.interrupted = state.cleaning = False
        state.usage_before = state.usage
        state.steered.clear()

    def _apply_steer(self, frame: Frame, seq: int) -> list[AgentEvent]:
        state = self._state
        params = decode(frame.params, SteerParams)
        key = (params.client_user_message_id if params is not None else None) or ""
        state.steered.append(key)
        state.steers[key] = seq
        state.requests[seq] = "steer"
        if params is None or params.expected_turn_id != state.codex_turn:
            # Codex had told the turn's end before this was written to it.
            return not_landed(state, key, "codex had ended the turn")
        return []

    def _apply_answer(self, frame: Frame) -> list[AgentEvent]:
        if frame.id is None:
            return []
        if frame.id in self._state.refuse:
            self._state.refuse.remove(frame.id)
        name = gate_name(frame.id)
        if name in self._state.gates:
            self._state.gates[name] = True
        return []

    def apply_out(self, line: bytes) -> list[AgentEvent]:
        """Read a line that codex wrote."""
        frame = decode_frame(line) or decode_frame(repair_surrogates(line))
        if frame is None:
            return [raw_line(line, len(line))]
        if frame.method is None:
            return apply_response(self._state, frame, self._settings)
        self._state.told_at = frame.emitted_at_ms // 1000 or self._state.told_at
        if frame.id is not None:
            return apply_server_request(self._state, frame.id, frame.method, frame.params)
        events = apply_notice(self._state, frame.method, frame.params)
        return [raw_line(line, len(line))] if events is None else events

    def apply_long(self, head: bytes, size: int) -> list[AgentEvent]:
        """Read the beginning of a line that is too long: what must not be missed is which item or turn
        ended."""
        events: list[AgentEvent] = [raw_line(head, size)]
        said = _LONG_METHOD.search(head)
        method = said[1] if said is not None else b""
        item, turn = _LONG_ITEM.search(head), _LONG_TURN.search(head)
        if method == b"item/completed" and item is not None:
            call = item[2].decode()
            if self._state.calls.pop(call, None) is not None:
                events.append(ToolCall(call, item[1].decode(), "completed", output=f"[{size} bytes]"))
        if method == b"turn/completed" and turn is not None and turn[1].decode() == self._state.codex_turn:
            failure = Failure("output_limit", f"codex ended the turn with a line of {size} bytes")
            events += end_turn(self._state, failed(failure))
        return events

    def apply_eof(self) -> list[AgentEvent]:
        """Codex closed its stdout."""
        self._state.stdout_closed = True
        return []

    def apply_stdin_closed(self, seq: int) -> list[AgentEvent]:
        """An owner closed codex's stdin: the process ends, and a running turn with it."""
        self._state.last_input = seq
        self._state.stdin_closed = True
        return []

    def apply_exit(self, info: ExitInfo, /) -> list[AgentEvent]:
        """Codex's process ended."""
        state = self._state
        state.stdout_closed = state.stdin_closed = True
        if state.ended is not None:
            return tell_end(state)
        if state.turn is None:
            return [*close_gates(state.gates)]
        state.interrupted = False
        return end_turn(state, failed(classify_exit(info)), died=True)

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
        if state.stage != "ready" or state.thread is None:
            return self._next_of_handshake()
        return (
            self._next_answer(wanted)
            or self._next_of_cancel(wanted, state.thread)
            or self._next_prompt(wanted, state.thread)
            or self._next_steer(wanted, state.thread)
        )

    def _next_of_handshake(self) -> InputLine | None:
        state = self._state
        seq = state.last_input + 1
        if state.stage == "silent":
            return requests.initialize(seq, self._version)
        if state.stage == "greeted":
            return requests.initialized()
        if state.stage == "introduced":
            return requests.open_thread(seq, self._settings, state.resume)
        return None

    def _next_answer(self, wanted: Wanted) -> InputLine | None:
        for answer in wanted.answers:
            if self._state.gates.get(answer.gate) is not False:
                continue
            payload = decode(answer.payload, Payload)
            if payload is None or gate_name(payload.id) != answer.gate:
                continue
            result = payload.results.get(answer.choice)
            # A choice that was not offered must never become an approval.
            return requests.refuse(payload.id) if result is None else requests.answer(payload.id, result)
        return None

    def _next_of_cancel(self, wanted: Wanted, thread: str) -> InputLine | None:
        state = self._state
        seq = state.last_input + 1
        if state.ended is not None:
            return None if state.cleaning else requests.clean(seq, thread)
        if wanted.cancel and state.codex_turn is not None and not state.interrupted:
            return requests.interrupt(seq, thread, state.codex_turn)
        return None

    def _next_prompt(self, wanted: Wanted, thread: str) -> InputLine | None:
        state, prompt = self._state, wanted.prompt
        busy = state.turn is not None or state.other_turn is not None
        if prompt is None or busy or wanted.cancel or not wanted.session_durable:
            return None
        if prompt_name(prompt.request_id, prompt.attempt) in state.sent:
            return None
        return requests.start_turn(state.last_input + 1, thread, prompt)

    def _next_steer(self, wanted: Wanted, thread: str) -> InputLine | None:
        state, prompt = self._state, wanted.prompt
        # Not before the turn's own prompt is stored: the conversation keeps its order.
        takes = state.codex_turn is not None and state.landed and state.ended is None
        if prompt is None or prompt.request_id != state.turn or not takes or wanted.cancel:
            return None
        new = (steer for steer in wanted.steer if steer.request_id not in state.steered)
        steer = next(new, None)
        if steer is None or state.codex_turn is None:
            return None
        return requests.steer(state.last_input + 1, thread, state.codex_turn, steer)
