"""The model of a session that writes plausible journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from outlast.ids import derived_id
from outlast.records import types as t
from outlast.records.envelope import Draft
from outlast.testing.journals import bodies
from outlast.testing.journals.around import Around
from outlast.testing.journals.expected import ExpectedTurn
from outlast.testing.journals.ledger import LOOP
from outlast.testing.journals.steers import MOST_WAITING


class JournalWriter(Around):
    """Writes one session's journal, move by move."""

    def __init__(self, pick: Callable[[int], int], session: str = "session") -> None:
        super().__init__(pick, session)
        self._owned = False
        self._accepted = 0
        self._created()

    def move(self) -> None:
        """One more batch, or a crash."""
        moves = list(self._moves())
        moves[self._pick(len(moves))]()

    # --- what can happen next ---

    def _moves(self) -> Iterator[Callable[[], None]]:
        """What may come next, more often what is named more often."""
        e = self.expected
        if not self._owned:
            yield from [self._restore] * 6
            yield from [self._restore_cut, self._restore_errored]
            if e.running is None and not e.queue:
                yield self._repaired
            return
        if e.running is not None:
            yield from self._turn_moves(e.running)
        else:
            yield from self._idle_moves()
        if len(e.queue) < MOST_WAITING:
            yield from [self._accept] * 2
        waiting = [entry for entry in e.queue if not entry.given]
        if waiting:
            yield partial(self._cancel_input, waiting[self._pick(len(waiting))])
        yield self._crash

    def _idle_moves(self) -> Iterator[Callable[[], None]]:
        e = self.expected
        if e.queue and not e.held:
            yield from [self._start] * 8
        yield from [self._hold_or_go_on] * (3 if e.held else 1)
        if not e.stopped:
            yield self._stop
        if self._generation:
            yield self._late_output
        yield from self._provider_moves(None)
        for turn in e.parked.values():
            yield partial(self._retry, turn)
            yield partial(self._skip, turn)
            if turn.left:
                yield from [partial(self._settle_by_person, turn)] * 2
        if e.unsuccessful is not None:
            yield partial(self._retry, e.unsuccessful)
            if e.unsuccessful.left:
                yield from [partial(self._settle_by_person, e.unsuccessful)] * 2
            if len(e.parked) < MOST_WAITING:
                yield partial(self._park_after, e.unsuccessful)

    def _turn_moves(self, turn: ExpectedTurn) -> Iterator[Callable[[], None]]:
        e = self.expected
        if turn.host_done:
            yield from self._effect_moves(turn)
            if all(effect.outcome == "done" for effect in turn.effects):
                yield from [partial(self._done, turn)] * 4
        elif turn.attempt is None:
            yield from [partial(self._attempt, turn)] * 8
            yield partial(self._return, turn)
            if turn.delayed:
                yield partial(self._wait_no_more, turn)
        elif not turn.reserved:
            yield from [partial(self._reserve, turn)] * 8
            yield partial(self._return, turn)
            yield partial(self._attempt, turn)
        else:
            yield from [partial(self._say, turn)] * 6
            yield from [partial(self._call, turn)] * 5
            yield from [partial(self._host_done if turn.owed else self._done, turn)] * 4
            yield partial(self._bind, turn)
            if not self._taken(turn):
                yield from [partial(self._reserve_anew, turn)] * 4
            yield from self._provider_moves(turn)
            if len(self._given()) < len(e.queue):
                yield from [partial(self._give, turn)] * 2
            if self._given():
                yield from [partial(self._join, turn)] * 2
                yield partial(self._give_back, turn)
            yield partial(self._fail_for_now, turn)
            if not e.gates:
                yield from [partial(self._ask, turn)] * 2
        for gate in e.gates:
            yield from [partial(self._answer, gate)] * 2
        yield partial(self._fail, turn)
        yield partial(self._interrupt, turn)
        if len(e.parked) < MOST_WAITING:
            yield partial(self._park_in_place, turn)

    # --- the session ---

    def _created(self) -> None:
        self.expected.epoch = 1 + self._pick(3)
        self._owned = True
        self._write(
            Draft(t.Fence(epoch=self.expected.epoch, holder="process 0")),
            Draft(bodies.session_started(derived_id(self.session, "lineage"))),
            Draft(t.LoopStarted(loop=LOOP, name="main", agent="agent", agent_kind="command"), loop=LOOP),
        )

    def _stop(self) -> None:
        self.expected.stopped = True
        self._write(Draft(t.SessionStopped(reason="closed")))

    def _crash(self) -> None:
        self._owned = False
        self._at -= self._pick(2) * 3_600_000_000  # the next owner's clock may be behind

    def _hold_or_go_on(self) -> None:
        self.expected.held = not self.expected.held
        self.expected.stopped = self.expected.stopped and self.expected.held
        self._write(self._of_loop(t.LoopChanged(state="held" if self.expected.held else "active")))

    # --- inputs ---

    def _accept(self) -> None:
        self._accepted += 1
        on_interrupt: list[t.OnInterrupt | None] = [None, "skip", "continue", "retry", "hold"]
        turn = ExpectedTurn(
            f"request-{self._accepted}", self._accepted, on_interrupt[self._pick(len(on_interrupt))]
        )
        self.expected.queue.append(turn)
        self.expected.outcomes[turn.request] = "queued"
        self.expected.stopped = False
        accepted = Draft(
            t.InputAccepted(
                request_id=turn.request,
                content=[t.Content(text=f"text {self._accepted}\r\n\0 ✓")],
                on_interrupt=turn.on_interrupt,
                joins=self.expected.running.request if self.expected.running and self._pick(2) else None,
            ),
            loop=LOOP,
            cause=turn.request,
            actor="alice",
        )
        alone = self.expected.queue == [turn] and self.expected.running is None and not self.expected.held
        if alone and self._pick(2):
            self._write(accepted, self._started(turn))
        else:
            self._write(accepted)

    def _cancel_input(self, turn: ExpectedTurn) -> None:
        self.expected.queue.remove(turn)
        self.expected.outcomes[turn.request] = "cancelled"
        self._write(self._of_loop(t.InputCancelled(request_id=turn.request, reason="withdrawn")))

    def _start(self) -> None:
        self._write(self._started(self.expected.queue[0]))

    def _started(self, turn: ExpectedTurn) -> Draft:
        e = self.expected
        e.queue.remove(turn)
        e.running = turn
        e.outcomes[turn.request] = "running"
        turn.attempt, turn.reserved = None, False
        if turn.index == 0:
            e.turns += 1
            turn.index = e.turns
        turn.owed, turn.host_done, turn.effects = self._owed(), False, []
        started = t.TurnStarted(index=turn.index, request_id=turn.request, effects=turn.owed)
        return self._of_turn(started, turn)

    def _returned(self, turn: ExpectedTurn) -> list[Draft]:
        if turn.attempt is not None:
            turn.attempts -= 1
        if turn.reserved:
            turn.tries -= 1
            turn.since_progress = max(0, turn.since_progress - 1)
        e = self.expected
        e.running = None
        e.queue = sorted([*e.queue, turn], key=lambda entry: entry.order)
        e.outcomes[turn.request] = "queued"
        returned = self._of_turn(t.InputReturned(request_id=turn.request, evidence="no input frame"), turn)
        return [*self._closed_gates(turn), returned]

    def _return(self, turn: ExpectedTurn) -> None:
        self._write(*self._returned(turn))

    # --- a turn ---

    def _say(self, turn: ExpectedTurn) -> None:
        event = bodies.EVENTS[self._pick(len(bodies.EVENTS))]
        if event.kind == "message":
            turn.since_progress = 0
        self._write(self._of_output(event, turn))

    def _call(self, turn: ExpectedTurn) -> None:
        if turn.calls and self._pick(2):
            call = turn.calls.pop()
            if self._pick(2):
                turn.since_progress = 0
                ended = t.CallObserved(call=call, name="sh", status="completed", output="ok")
            else:
                ended = t.CallObserved(call=call, name="sh", status="failed", output="no")
            self._write(self._of_output(ended, turn))
        else:
            turn.calls.append(self._name("call"))
            started = t.CallObserved(call=turn.calls[-1], name="sh", status="started", input="ls")
            self._write(self._of_output(started, turn))

    def _late_output(self) -> None:
        self._write(self._of_output(t.AgentEventRecorded(kind="message", text="after the end"), None))

    def _ask(self, turn: ExpectedTurn) -> None:
        gate = self._name("gate")
        self.expected.gates[gate] = turn.request
        self._write(
            self._of_turn(
                t.GatePrepared(gate=gate, name="7", generation=self._generation, payload=b"\0raw"), turn
            ),
            self._of_output(
                bodies.permission(gate),
                turn,
            ),
        )

    def _answer(self, gate: str) -> None:
        turn = self.expected.gates.pop(gate)
        answered = t.GateResolved(gate=gate, reason="answered", answer="yes", by="alice")
        self._write(Draft(answered, loop=LOOP, turn=turn, actor="alice"))

    def _closed_gates(self, turn: ExpectedTurn) -> list[Draft]:
        closed = [gate for gate, asked_in in self.expected.gates.items() if asked_in == turn.request]
        for gate in closed:
            del self.expected.gates[gate]
        return [self._of_turn(t.GateResolved(gate=gate, reason="abandoned"), turn) for gate in closed]

    def _ended(self, turn: ExpectedTurn, outcome: str, terminal: Draft) -> list[Draft]:
        e = self.expected
        decided = self._decided(turn)
        e.running = None
        e.outcomes[turn.request] = outcome
        turn.calls = []
        turn.before_parked = "cancelled"
        if outcome == "parked":
            e.parked[turn.request] = turn
        elif outcome == "done":
            e.unsuccessful = e.untold = None
        else:
            e.unsuccessful, e.outcome = turn, outcome
        gates = self._closed_gates(turn)
        return [*decided, *gates, terminal] if self._pick(2) else [*gates, *decided, terminal]

    def _done(self, turn: ExpectedTurn) -> None:
        done = self._of_output(t.TurnDone(stop_reason="end_turn", usage={"tokens": 5}), turn)
        drafts = self._ended(turn, "done", done)
        if self._pick(2):
            folded = t.AgentStateFolded(
                generation=self._generation,
                offset=self._frame,
                stdout=self._stdout,
                last_input=self._last_input,
                state=b"{}",
            )
            drafts.append(self._of_loop(folded))
        self._write(*drafts)

    def _fail(self, turn: ExpectedTurn) -> None:
        failed = bodies.crashed(max(1, turn.attempts))
        self._write(*self._ended(turn, "failed", self._of_turn(failed, turn)))

    def _fail_for_now(self, turn: ExpectedTurn) -> None:
        failed = bodies.limited(turn.attempts, turn.retries + 1)
        ended = self._ended(turn, "failed", self._of_turn(failed, turn))
        before, retries = turn.since_progress, turn.retries
        retried = self._retried(turn, f"{t.BY_POLICY}rate_limited")
        turn.since_progress, turn.retries, turn.delayed = max(0, before - 1), retries + 1, True
        self._write(*ended, retried)

    def _wait_no_more(self, turn: ExpectedTurn) -> None:
        turn.delayed = False
        settled = t.CommandSettled(request_id=self._name("now"), command="retry", outcome="done")
        self._write(self._of_turn(settled, turn))

    def _interrupt(self, turn: ExpectedTurn) -> None:
        if self._pick(2):
            interrupted = t.TurnInterrupted(index=turn.index, reason="cancelled")
            drafts = self._ended(turn, "cancelled", self._of_turn(interrupted, turn))
        else:
            interrupted = t.TurnInterrupted(index=turn.index, reason="closed")
            drafts = self._ended(turn, "interrupted", self._of_turn(interrupted, turn))
        if self._pick(2):
            drafts.insert(0, self._of_turn(t.ReplyInterrupted(text="half a repl"), turn))
        self._write(*drafts)

    def _park_in_place(self, turn: ExpectedTurn) -> None:
        parked = self._of_turn(t.TurnParked(reason="held"), turn)
        self._write(*self._ended(turn, "parked", parked))

    def _park_after(self, turn: ExpectedTurn) -> None:
        self._write(self._parked_after(turn, "quarantined"))

    def _parked_after(self, turn: ExpectedTurn, reason: str) -> Draft:
        turn.before_parked = self.expected.outcome
        self.expected.unsuccessful = None
        self.expected.parked[turn.request] = turn
        self.expected.outcomes[turn.request] = "parked"
        return self._of_turn(t.TurnParked(reason="held" if reason == "held" else "quarantined"), turn)

    def _runs_again(self, turn: ExpectedTurn) -> None:
        e = self.expected
        if e.parked.pop(turn.request, None) is None:
            e.unsuccessful = None
        e.stopped = False
        e.running = turn
        e.outcomes[turn.request] = "running"
        turn.attempt, turn.reserved, turn.delayed = None, False, False

    def _settle_by_person(self, turn: ExpectedTurn) -> None:
        """The turn goes on behind its host step."""
        effect = next(each for each in turn.effects if each.outcome != "done")
        settled = self._settled(turn, effect, "done" if self._pick(2) else "absent", "person")
        self._runs_again(turn)
        turn.since_progress = turn.retries = 0
        self._write(settled, self._reopened(turn, "alice", "continue"))

    def _retried(self, turn: ExpectedTurn, by: str) -> Draft:
        self._runs_again(turn)
        if by != t.BY_ON_INTERRUPT:
            turn.since_progress = turn.retries = 0
        return self._reopened(turn, by, "again" if self._pick(2) else "continue")

    def _reopened(self, turn: ExpectedTurn, by: str, mode: Literal["again", "continue"]) -> Draft:
        if mode == "again":
            turn.host_done, turn.effects = False, []
        turn.mode = mode
        return self._of_turn(t.TurnRetried(by=by, mode=mode), turn)

    def _retry(self, turn: ExpectedTurn) -> None:
        self._write(self._retried(turn, "alice"))

    def _skip(self, turn: ExpectedTurn) -> None:
        del self.expected.parked[turn.request]
        self.expected.outcomes[turn.request] = turn.before_parked
        settled = t.CommandSettled(request_id=self._name("command"), command="skip", outcome="done")
        self._write(self._of_turn(settled, turn))

    # --- restores ---

    def _new_owner(self) -> list[Draft]:
        e = self.expected
        before = e.epoch
        e.epoch += 1 + self._pick(2)
        e.restoring = True
        return [
            Draft(t.Fence(epoch=e.epoch, holder=f"process {e.epoch}", previous_epoch=before)),
            Draft(t.RestoreStarted(from_seq=len(self._rows), facts=["inbox: 0 unsettled"])),
        ]

    def _repairs(self, turn: ExpectedTurn) -> list[Draft]:
        """How a restore closes the open turn when it does not attach to its agent."""
        if turn.host_done:
            return [self._resumed(turn)]
        choice = self._pick(6)
        if choice == 0 and not self._taken(turn) and not self._given():
            return self._returned(turn)
        if choice == 1 and turn.reserved and turn.owed:
            return self._of_host_done(turn)
        if choice == 1 and turn.reserved:
            return self._ended(turn, "done", self._of_output(t.TurnDone(stop_reason="end_turn"), turn))
        crash = t.TurnInterrupted(index=turn.index, reason="crash", evidence="tree proven dead")
        drafts = self._ended(turn, "interrupted", self._of_turn(crash, turn))
        if choice == 2:
            drafts.append(self._retried(turn, t.BY_ON_INTERRUPT))
        elif choice == 3 and len(self.expected.parked) < MOST_WAITING:
            drafts.append(self._parked_after(turn, "quarantined"))
        return drafts

    def _restore(self) -> None:
        e = self.expected
        batch = self._new_owner()
        turn = e.running
        if turn is not None and turn.attempt is not None and not turn.host_done and self._pick(2):
            self._write(*batch)
            attached = t.TurnAttached(
                attempt=turn.attempts, generation=turn.attempt.generation, spool_offset=self._frame
            )
            self._write(self._of_turn(attached, turn))
        elif turn is not None:
            self._write(*batch, *self._repairs(turn))
        else:
            self._write(*batch)
        self._write(Draft(t.RestoreDone(took_ms=5, actions=["went on"])))
        e.restoring = False
        self._owned = True

    def _restore_cut(self) -> None:
        batch = self._new_owner()
        turn = self.expected.running
        repairs = self._repairs(turn) if turn is not None and self._pick(2) else []
        self._write(*batch, *repairs)

    def _repaired(self) -> None:
        e = self.expected
        fence = t.Fence(epoch=e.epoch + 1, holder="a person", previous_epoch=e.epoch)
        e.epoch, e.restoring = e.epoch + 1, False
        self._write(Draft(fence), Draft(bodies.repaired(len(self._rows))))

    def _restore_errored(self) -> None:
        self._write(*self._new_owner(), Draft(t.RestoreErrored(kind="agent", message="no answer")))
