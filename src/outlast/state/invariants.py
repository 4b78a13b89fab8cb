"""The invariants of a journal, checked apart from the fold (pure).

`state.fold` refuses a record that contradicts the state, and what it refuses is never stored: a journal that
a fault in the fold let through would satisfy the fold. These rules share no code with it, look at the journal
alone, and go on after a violation. What is remembered follows the number of inputs and gates.

The numbers are those of docs/campaign.md. The chain (1) is the reader's to verify; the fold from a snapshot
(7) and the restore from any prefix (8) are properties of other code and tested with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from outlast.records import effects as e
from outlast.records import types as t
from outlast.records.envelope import Record


@dataclass(frozen=True, slots=True)
class Violation:
    """Record `seq` breaks the invariant of this number."""

    seq: int
    invariant: int
    reason: str

    def __str__(self) -> str:
        return f"record {self.seq} breaks invariant {self.invariant}: {self.reason}"


Standing = Literal["waits", "open", "ended", "gone"]
"""Of an accepted input: `gone` is joined or cancelled."""


@dataclass(slots=True)
class _Input:
    standing: Standing
    index: int | None = None
    parked: bool = False
    """Its newest ending was a park, or was followed by one."""
    owes: bool = False
    """Effects are to run around its turn."""
    host_done: bool = False
    effects: dict[str, _Effect] = field(default_factory=dict)
    """Of the host step that is done."""


@dataclass(slots=True)
class _Effect:
    replay: str
    bodies: int = 0
    outcome: str = ""
    by: str = ""

    @property
    def may_begin(self) -> bool:
        """Invariant 4: once, unless it may run again, its check says absent, or a person said so."""
        if self.outcome == "absent":
            return self.by in ("check", "person")
        return not self.outcome and (self.bodies == 0 or self.replay == "safe")


@dataclass(slots=True)
class _Opening:
    """One opening of a turn, by TurnStarted or TurnRetried."""

    owner: int
    """Epoch of who opened it, or attached to it last."""
    loop: str | None = None
    attempted: bool = False
    given: t.InputReserved | None = None
    """Its input was reserved: what comes of that is known by evidence, never by sending it again."""
    taken: bool = False
    """The agent's spool has shown an input in that place, as later records say. Until then another line may
    be named in the place of one that was never written."""


@dataclass(slots=True)
class Invariants:
    """Feed it a journal's records in order."""

    _seq: int = 0
    _epoch: int = 0
    _restoring: bool = False
    _inputs: dict[str, _Input] = field(default_factory=dict)
    _open: dict[str, _Opening] = field(default_factory=dict)
    _gates: dict[str, bool] = field(default_factory=dict)
    """Gate -> whether it was resolved."""
    _found: list[Violation] = field(default_factory=list)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The accepted inputs that wait for their turn."""
        return tuple(key for key, known in self._inputs.items() if known.standing == "waits")

    @property
    def open_turns(self) -> tuple[str, ...]:
        return tuple(self._open)

    def feed(self, record: Record) -> list[Violation]:
        """What `record` breaks, after those before it."""
        self._found = []
        self._envelope(record)
        body = record.body
        match body:
            case t.InputAccepted() | t.InputReturned() | t.InputJoined() | t.InputCancelled():
                self._input(record, body)
            case t.TurnStarted() | t.TurnRetried():
                self._opens(record, body)
            case t.TurnDone() | t.TurnFailed() | t.TurnInterrupted():
                self._closes(record, done=isinstance(body, t.TurnDone))
            case t.TurnParked():
                self._parks(record)
            case t.TurnAttemptStarted() | t.InputReserved() | t.TurnAttached():
                self._attempt(record, body)
            case e.HostDone() | e.TurnResumed():
                self._after_host(record, body)
            case e.EffectIntended() | e.EffectDispatched() | e.EffectSettled():
                self._effect(record, body)
            case t.GateOpened() | t.GateResolved():
                self._gate(record, body)
            case t.RestoreStarted() | t.RestoreErrored() | t.RestoreDone():
                self._restore(record)
            case _:
                pass
        self._shown(record)
        return self._found

    def _break(self, record: Record, invariant: int, reason: str) -> None:
        self._found.append(Violation(record.seq, invariant, reason))

    def _envelope(self, record: Record) -> None:
        if record.seq != self._seq + 1:
            self._break(record, 1, f"it follows record {self._seq}")
        self._seq = record.seq
        body = record.body
        if isinstance(body, t.Fence):
            if body.epoch != record.epoch:
                self._break(record, 1, f"a fence of epoch {body.epoch} written under {record.epoch}")
            if record.epoch <= self._epoch:
                self._break(record, 1, f"a fence of epoch {record.epoch} after epoch {self._epoch}")
            self._restoring = False
        elif record.epoch != self._epoch:
            self._break(record, 1, f"epoch {record.epoch} where the newest fence is of {self._epoch}")
        self._epoch = max(self._epoch, record.epoch)

    # --- inputs (3) ----------------------------------------------------------------------------

    def _input(
        self, record: Record, body: t.InputAccepted | t.InputReturned | t.InputJoined | t.InputCancelled
    ) -> None:
        key = body.request_id
        known = self._inputs.get(key)
        if isinstance(body, t.InputAccepted):
            if known is not None:
                self._break(record, 3, f"request {key} was accepted before")
            self._inputs[key] = _Input("waits")
        elif isinstance(body, t.InputCancelled):
            # One that was refused because a turn was running was never accepted.
            if known is not None and known.standing != "waits":
                self._break(record, 3, f"request {key} is cancelled and does not wait")
            self._inputs[key] = _Input("gone")
        elif known is None:
            self._break(record, 3, f"request {key} was never accepted")
        elif isinstance(body, t.InputJoined):
            if known.standing != "waits":
                self._break(record, 3, f"request {key} joins and does not wait")
            if record.turn not in self._open:
                self._break(record, 3, f"request {key} joins turn {record.turn}, which is not open")
            known.standing = "gone"
        elif key in self._open:
            if known.host_done:
                self._break(record, 4, f"turn {key} is returned, and its host step is done")
            del self._open[key]
            known.standing = "waits"
        elif known.standing != "waits":
            self._break(record, 2, f"turn {key} is returned and is not open")

    # --- turns (2) -----------------------------------------------------------------------------

    def _opens(self, record: Record, body: t.TurnStarted | t.TurnRetried) -> None:
        turn = record.turn or ""
        known = self._inputs.setdefault(turn, _Input("gone"))
        if turn in self._open:
            self._break(record, 2, f"turn {turn} is open already")
        if isinstance(body, t.TurnRetried):
            if known.standing != "ended":
                self._break(record, 2, f"turn {turn} is opened again and has not ended")
            if body.mode == "again":
                known.host_done, known.effects = False, {}
        else:
            if known.standing != "waits":
                self._break(record, 3, f"turn {turn} starts and its input does not wait")
            if known.index not in (None, body.index):
                self._break(record, 2, f"turn {turn} had index {known.index}, now {body.index}")
            known.index, known.owes = body.index, bool(body.effects)
        known.standing, known.parked = "open", False
        self._open[turn] = _Opening(record.epoch, record.loop)

    def _closes(self, record: Record, *, done: bool) -> None:
        turn = record.turn or ""
        known = self._inputs.get(turn)
        if done and known is not None:
            left = [name for name, effect in known.effects.items() if effect.outcome != "done"]
            if left or (known.owes and not known.host_done):
                self._break(record, 4, f"turn {turn} is done and its effects are not: {left}")
        if turn not in self._open:
            self._break(record, 2, f"turn {turn} is closed and is not open")
        self._open.pop(turn, None)
        self._inputs.setdefault(turn, _Input("gone")).standing = "ended"

    def _parks(self, record: Record) -> None:
        turn = record.turn or ""
        known = self._inputs.setdefault(turn, _Input("gone"))
        if turn in self._open:
            del self._open[turn]
        elif known.standing != "ended" or known.parked:
            self._break(record, 2, f"turn {turn} is parked and has not just ended")
        known.standing, known.parked = "ended", True

    # --- what an agent is given (4) ------------------------------------------------------------

    def _attempt(self, record: Record, body: t.TurnAttemptStarted | t.InputReserved | t.TurnAttached) -> None:
        turn = record.turn or ""
        opening = self._open.get(turn)
        if opening is None:
            self._break(record, 4, f"turn {turn} is not open")
        elif isinstance(body, t.TurnAttached):
            opening.owner = record.epoch
        elif self._inputs[turn].host_done:
            self._break(record, 4, f"turn {turn} is given to an agent, and its host step is done")
        elif isinstance(body, t.TurnAttemptStarted):
            if opening.given:
                self._break(record, 4, f"another attempt at turn {turn}, whose input was given to an agent")
            opening.attempted, opening.given, opening.taken = True, None, False
        elif body.key == turn:
            if not opening.attempted:
                self._break(record, 4, f"the input of turn {turn} is given to an agent nobody named")
            before = opening.given
            if before is not None and (opening.taken or before.generation != body.generation):
                self._break(record, 4, f"the input of turn {turn} is given to its agent twice")
            opening.given, opening.taken = body, False

    def _shown(self, record: Record) -> None:
        """What the record's cursor tells of the inputs that an agent has had."""
        cursor = record.cursor
        if cursor is None:
            return
        for opening in self._open.values():
            given = opening.given
            here = given is not None and opening.loop == record.loop
            if given is not None and here and cursor.generation == given.generation:
                opening.taken = opening.taken or cursor.last_input >= given.seq

    # --- effects (4) ---------------------------------------------------------------------------

    def _after_host(self, record: Record, body: e.HostDone | e.TurnResumed) -> None:
        turn = record.turn or ""
        opening = self._open.get(turn)
        if opening is None:
            self._break(record, 4, f"turn {turn} is not open")
            return
        opening.owner = record.epoch
        known = self._inputs[turn]
        if isinstance(body, e.TurnResumed):
            if not known.host_done:
                self._break(record, 4, f"turn {turn} is resumed, and its host step is not done")
            return
        if known.host_done or not opening.attempted:
            self._break(record, 4, f"the host step of turn {turn} is done twice, or by nobody")
        known.host_done = True

    def _effect(self, record: Record, body: e.EffectIntended | e.EffectDispatched | e.EffectSettled) -> None:
        turn = record.turn or ""
        known = self._inputs.setdefault(turn, _Input("gone"))
        effect = known.effects.get(body.effect)
        if not isinstance(body, e.EffectSettled) and turn not in self._open:
            self._break(record, 4, f"turn {turn} is not open")
        if isinstance(body, e.EffectIntended):
            if effect is not None or not known.host_done:
                self._break(
                    record, 4, f"effect {body.effect} is intended twice, or before the host step is done"
                )
            known.effects[body.effect] = _Effect(body.replay)
        elif effect is None:
            self._break(record, 4, f"effect {body.effect} was never intended")
        elif isinstance(body, e.EffectDispatched):
            if body.body != effect.bodies + 1 or not effect.may_begin:
                self._break(record, 4, f"body {body.body} of effect {body.effect} may not begin")
            effect.bodies, effect.outcome, effect.by = body.body, "", ""
        else:
            unbegun = not effect.bodies and body.by != "person"
            if unbegun or effect.outcome == "done":
                self._break(record, 4, f"effect {body.effect} is settled, and was not dispatched or is done")
            effect.outcome, effect.by = body.outcome, body.by

    # --- gates (5), restores (6) ---------------------------------------------------------------

    def _gate(self, record: Record, body: t.GateOpened | t.GateResolved) -> None:
        gate = body.gate
        if isinstance(body, t.GateOpened):
            if gate in self._gates:
                self._break(record, 5, f"gate {gate} was opened before")
            self._gates[gate] = False
            return
        if self._gates.get(gate) is not False:
            self._break(record, 5, f"gate {gate} is resolved and is not open")
        self._gates[gate] = True

    def _restore(self, record: Record) -> None:
        if isinstance(record.body, t.RestoreStarted):
            if self._restoring:
                self._break(record, 6, "a restore begins within a restore")
            self._restoring = True
            return
        if not self._restoring:
            self._break(record, 6, f"{record.type} of a restore that this owner has not begun")
        self._restoring = False
        if isinstance(record.body, t.RestoreDone):
            for turn, opening in self._open.items():
                if opening.owner != record.epoch:
                    self._break(record, 2, f"turn {turn} of epoch {opening.owner} is open after a restore")


def violations(records: Iterable[Record]) -> list[Violation]:
    """All that a journal's records, which begin with its first, break."""
    checker = Invariants()
    return [found for record in records for found in checker.feed(record)]
