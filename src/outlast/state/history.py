"""The journal for people: messages, turns with their outcomes, agent sessions, restores.

It is built from the records in order, in as many pieces as the reader likes, and grows with the
history: read it for a page or a command, do not keep it beside a live session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from outlast.clock import isoformat
from outlast.records import effects as e
from outlast.records import types as t
from outlast.records.agent_state import AgentStateRestored
from outlast.records.envelope import Record
from outlast.state.messages import (
    AgentMessage,
    Message,
    OwnerMessage,
    ToolMessage,
    TurnMessage,
    UserMessage,
)
from outlast.state.model import Delay
from outlast.state.summaries import (
    AgentSession,
    EffectShown,
    GateShown,
    Outcome,
    Restore,
    TurnSummary,
    WentBack,
)

_ROLES: Mapping[str, Literal["assistant", "thought", "plan"]] = {
    "message": "assistant",
    "thought": "thought",
    "plan": "plan",
}


class History:
    """Feed it every record in order: `apply`. It trusts the journal; `state.fold` is what checks it."""

    def __init__(self) -> None:
        self.seq: int = 0
        self.messages: list[Message] = []
        self.gates: dict[str, GateShown] = {}
        self.restores: list[Restore] = []
        self._turns: dict[str, TurnSummary] = {}
        self._sessions: dict[tuple[str, str], AgentSession] = {}
        self._current: dict[str, AgentSession] = {}
        """By loop."""
        self._growing: dict[tuple[str | None, str], AgentMessage] = {}
        self._calls: dict[tuple[str | None, str], ToolMessage] = {}
        self._holder = ""
        self._root = ""

    def apply(self, record: Record) -> None:
        """Take one record in."""
        rule = self._RULES.get(type(record.body))
        if rule is not None:
            rule(self, record, record.body)
        self.seq = record.seq

    @property
    def turns(self) -> list[TurnSummary]:
        """Every accepted input that has or will have a turn of its own, in the order of acceptance."""
        return list(self._turns.values())

    @property
    def queue(self) -> list[TurnSummary]:
        """Those that wait."""
        return [turn for turn in self._turns.values() if turn.outcome == "queued"]

    @property
    def agent_sessions(self) -> list[AgentSession]:
        """In the order in which they appeared."""
        return list(self._sessions.values())

    def to_json(self) -> dict[str, object]:
        """The shape of `show --json` but for its `session`, and `messages`."""
        return {
            "turns": [turn.to_json() for turn in self.turns],
            "queue": [
                {"request_id": turn.turn, "input": turn.input, "accepted_at": isoformat(turn.accepted_at)}
                for turn in self.queue
            ],
            "gates": [gate.to_json() for gate in self.gates.values()],
            "agent_sessions": [session.to_json() for session in self.agent_sessions],
            "restores": [restore.to_json() for restore in self.restores],
            "messages": [message.to_json() for message in self.messages],
        }

    # --- ownership and restore ---

    def _fence(self, record: Record, body: t.Fence) -> None:
        self._holder = body.holder
        if self.restores and self.restores[-1].outcome == "running":
            self.restores[-1].outcome = "cut"
        if self.seq:
            self.messages.append(OwnerMessage(record.seq, record.at, body.epoch, body.holder))

    def _restore_started(self, record: Record, body: t.RestoreStarted) -> None:
        self.restores.append(
            Restore(
                record.seq,
                record.epoch,
                self._holder,
                body.from_seq,
                record.at,
                list(body.turns),
                body.verified_from,
            )
        )

    def _restore_done(self, record: Record, body: t.RestoreDone) -> None:
        restore = self.restores[-1]
        restore.outcome, restore.ended_at = "done", record.at
        restore.took_ms, restore.actions = body.took_ms, list(body.actions)

    def _restore_errored(self, record: Record, body: t.RestoreErrored) -> None:
        restore = self.restores[-1]
        restore.outcome, restore.ended_at = "errored", record.at
        restore.error = f"{body.kind}: {body.message}"

    # --- loops ---

    def _loop_started(self, record: Record, body: t.LoopStarted) -> None:
        self._root = self._root or body.loop

    def _agent_session_changed(self, record: Record, body: t.AgentSessionChanged) -> None:
        loop = record.loop or self._root
        before = self._current.get(loop)
        session = self._sessions.setdefault(
            (loop, body.provider_session), AgentSession(loop, body.provider, body.provider_session)
        )
        if before is not None and before is not session:
            before.current = False
            if body.state == "reseeded":
                session.instead_of = before.provider_session
        self._current[loop], session.current = session, True
        # As in the state: what was acknowledged once stays so, and is only doubted while it is lost.
        session.acknowledged = session.acknowledged or body.state == "confirmed"
        session.lost = body.state == "lost"

    def _agent_state_restored(self, record: Record, body: AgentStateRestored) -> None:
        session = self._sessions.get((record.loop or self._root, body.provider_session))
        if session is not None:
            session.went_back = WentBack(record.at, body.through_turn, body.reason)

    # --- inputs ---

    def _input_accepted(self, record: Record, body: t.InputAccepted) -> None:
        self._turns[body.request_id] = TurnSummary(body.request_id, record.seq, record.at, body.content)

    def _input_returned(self, record: Record, body: t.InputReturned) -> None:
        turn = self._turns[body.request_id]
        turn.outcome = "queued"
        if turn.attempt_open:
            turn.attempts -= 1
            turn.attempt_open = False
        if not turn.reopened:
            # Proven never sent: it is no part of the conversation yet.
            turn.started_at = None
            self._unsay(turn)

    def _input_joined(self, record: Record, body: t.InputJoined) -> None:
        joined = self._turns.pop(body.request_id)
        self._say(record.turn or joined.turn, joined)

    def _input_cancelled(self, record: Record, body: t.InputCancelled) -> None:
        turn = self._turns.get(body.request_id)
        if turn is not None:
            turn.outcome, turn.ended_at, turn.delay = "cancelled", record.at, None

    def _command_settled(self, record: Record, body: t.CommandSettled) -> None:
        turn = self._turns.get(record.turn or "")
        if body.command == "retry" and body.outcome == "done" and turn is not None:
            turn.delay = None
        if (
            body.command == "skip"
            and body.outcome == "done"
            and turn is not None
            and turn.outcome == "parked"
        ):
            turn.outcome = turn.before_parked or "cancelled"

    # --- turns ---

    def _turn_started(self, record: Record, body: t.TurnStarted) -> None:
        turn = self._turns[body.request_id]
        turn.index, turn.outcome, turn.attempt_open = body.index, "running", False
        if turn.started_at is None:
            turn.started_at = record.at
            self._say(turn.turn, turn)

    def _say(self, turn: str, said: TurnSummary) -> None:
        self.messages.append(UserMessage(said.seq, said.accepted_at, turn, said.turn, said.content))

    def _unsay(self, said: TurnSummary) -> None:
        for place in range(len(self.messages) - 1, -1, -1):
            message = self.messages[place]
            if isinstance(message, UserMessage) and message.request_id == said.turn:
                del self.messages[place]
                return

    def _turn_attempt_started(self, record: Record, body: t.TurnAttemptStarted) -> None:
        turn = self._turns[record.turn or ""]
        turn.attempts += 1
        turn.attempt_open = True
        turn.attempt, turn.delay = body, None
        self._cut_off(record.turn)

    def _agent_event_recorded(self, record: Record, body: t.AgentEventRecorded) -> None:
        if body.kind in ("usage", "raw"):
            return
        role = _ROLES[body.kind]
        key = (record.turn, role)
        message = self._growing.pop(key, None)
        if message is None:
            message = AgentMessage(record.seq, record.at, record.turn, role, self._attempt(record), [])
            self.messages.append(message)
        message.pieces.append(body.text)
        if body.more:
            self._growing[key] = message

    def _reply_interrupted(self, record: Record, body: t.ReplyInterrupted) -> None:
        message = AgentMessage(
            record.seq, record.at, record.turn, "assistant", self._attempt(record), [body.text], cut=True
        )
        self.messages.append(message)

    def _call_observed(self, record: Record, body: t.CallObserved) -> None:
        key = (record.turn, body.call)
        message = self._calls.pop(key, None)
        if message is None or body.status == "started":
            message = ToolMessage(
                record.seq, record.at, record.turn, self._attempt(record), body.call, body.name, body.status
            )
            self.messages.append(message)
        message.status = body.status
        message.input = body.input or message.input
        message.output = body.output or message.output
        if body.status == "started":
            self._calls[key] = message

    def _attempt(self, record: Record) -> int:
        turn = self._turns.get(record.turn or "")
        return 0 if turn is None else turn.attempts

    def _cut_off(self, turn: str | None) -> None:
        """Nothing more will come of what the attempt before had begun."""
        for key in [key for key in self._growing if key[0] == turn]:
            self._growing.pop(key).cut = True
        for key in [key for key in self._calls if key[0] == turn]:
            self._calls.pop(key).status = "unknown"

    def _end(self, record: Record, outcome: Outcome) -> None:
        turn = self._turns[record.turn or ""]
        turn.outcome, turn.ended_at, turn.attempt_open = outcome, record.at, False
        turn.delay = None
        self._cut_off(record.turn)

    def _turn_done(self, record: Record, body: t.TurnDone) -> None:
        self._end(record, "done")

    def _turn_failed(self, record: Record, body: t.TurnFailed) -> None:
        self._end(record, "failed")
        self._turns[record.turn or ""].receipt = body.receipt
        error = body.receipt.error
        self.messages.append(
            TurnMessage(record.seq, record.at, record.turn, "failed", error.code, error.message)
        )

    def _turn_interrupted(self, record: Record, body: t.TurnInterrupted) -> None:
        self._end(record, "cancelled" if body.reason in ("cancelled", "killed") else "interrupted")
        self._turns[record.turn or ""].evidence = body.evidence or body.reason
        self.messages.append(
            TurnMessage(record.seq, record.at, record.turn, "interrupted", body.reason, body.evidence)
        )

    def _turn_parked(self, record: Record, body: t.TurnParked) -> None:
        turn = self._turns[record.turn or ""]
        turn.before_parked = None if turn.outcome == "running" else turn.outcome
        if turn.before_parked != "failed":
            turn.receipt = None  # Of an earlier attempt: not what it is parked for.
        ended_at = record.at if turn.ended_at is None else turn.ended_at
        self._end(record, "parked")
        turn.ended_at = ended_at
        turn.parked = body.detail or body.reason
        self.messages.append(
            TurnMessage(record.seq, record.at, record.turn, "parked", body.reason, body.detail)
        )

    def _turn_retried(self, record: Record, body: t.TurnRetried) -> None:
        turn = self._turns[record.turn or ""]
        turn.outcome, turn.ended_at, turn.reopened = "running", None, True
        if body.by.startswith(t.BY_POLICY):
            turn.delay = _delay(turn, record)
        self.messages.append(TurnMessage(record.seq, record.at, record.turn, "retried", body.mode, body.by))

    # --- effects ---

    def _host_done(self, record: Record, body: e.HostDone) -> None:
        turn = self._turns[record.turn or ""]
        turn.effects = {}
        self._cut_off(record.turn)

    def _effect_intended(self, record: Record, body: e.EffectIntended) -> None:
        shown = EffectShown(body.effect, body.name, body.kind, body.key)
        self._turns[record.turn or ""].effects[body.effect] = shown

    def _effect_dispatched(self, record: Record, body: e.EffectDispatched) -> None:
        effect = self._turns[record.turn or ""].effects[body.effect]
        effect.outcome, effect.bodies, effect.by, effect.reason = "begun", body.body, "", ""

    def _effect_settled(self, record: Record, body: e.EffectSettled) -> None:
        effect = self._turns[record.turn or ""].effects[body.effect]
        effect.outcome, effect.by, effect.reason = body.outcome, body.by, body.reason

    # --- gates ---

    def _gate_opened(self, record: Record, body: t.GateOpened) -> None:
        self.gates[body.gate] = GateShown(body.gate, record.turn, record.at, body)

    def _gate_resolved(self, record: Record, body: t.GateResolved) -> None:
        self.gates.pop(body.gate, None)

    # The key proves the type of the body that the rule takes.
    _RULES: ClassVar[Mapping[type[t.Body], Callable[[History, Record, Any], None]]] = {
        t.Fence: _fence,
        t.RestoreStarted: _restore_started,
        t.RestoreDone: _restore_done,
        t.RestoreErrored: _restore_errored,
        t.LoopStarted: _loop_started,
        t.AgentSessionChanged: _agent_session_changed,
        AgentStateRestored: _agent_state_restored,
        t.InputAccepted: _input_accepted,
        t.InputReturned: _input_returned,
        t.InputJoined: _input_joined,
        t.InputCancelled: _input_cancelled,
        t.CommandSettled: _command_settled,
        t.TurnStarted: _turn_started,
        t.TurnAttemptStarted: _turn_attempt_started,
        t.AgentEventRecorded: _agent_event_recorded,
        t.ReplyInterrupted: _reply_interrupted,
        t.CallObserved: _call_observed,
        t.TurnDone: _turn_done,
        t.TurnFailed: _turn_failed,
        t.TurnInterrupted: _turn_interrupted,
        t.TurnParked: _turn_parked,
        t.TurnRetried: _turn_retried,
        t.GateOpened: _gate_opened,
        t.GateResolved: _gate_resolved,
        e.HostDone: _host_done,
        e.EffectIntended: _effect_intended,
        e.EffectDispatched: _effect_dispatched,
        e.EffectSettled: _effect_settled,
    }


def _delay(turn: TurnSummary, record: Record) -> Delay | None:
    planned = None if turn.receipt is None else turn.receipt.retry
    if turn.receipt is None or planned is None:
        return None
    error, until = turn.receipt.error, record.at + int(planned.wait * 1_000_000)
    about = (planned.wait, planned.retry, planned.of, error.code, error.message)
    return Delay(until, *about, planned.boot_id, planned.due)
