"""Small journals that a test spells out itself."""

from __future__ import annotations

from typing import Literal

from outlast.records import types as t
from outlast.records.envelope import Cursor, Draft, Record
from outlast.state.fold import fold
from outlast.state.model import State
from outlast.testing.journals import bodies
from outlast.testing.journals.written import written

LOOP = "main"


class JournalBuilder:
    """Begins with an idle session of one loop; every method appends records and returns the builder.
    Nothing is checked: wrong journals can be spelled out too."""

    def __init__(self, session: str = "session") -> None:
        self.session = session
        self.drafts = [
            Draft(t.Fence(epoch=1, holder="owner 1")),
            Draft(bodies.session_started("lineage")),
            Draft(t.LoopStarted(loop=LOOP, name="main", agent="agent", agent_kind="command"), loop=LOOP),
        ]

    def add(self, *bodies: t.Body, turn: str | None = None, cursor: Cursor | None = None) -> JournalBuilder:
        """These bodies, in the coordinates of `turn`."""
        self.drafts += [Draft(body, loop=LOOP, turn=turn, cursor=cursor) for body in bodies]
        return self

    def accept(self, *requests: str, on_interrupt: t.OnInterrupt | None = None) -> JournalBuilder:
        for request in requests:
            content = [t.Content(text=f"text of {request}")]
            self.add(t.InputAccepted(request_id=request, content=content, on_interrupt=on_interrupt))
        return self

    def start(self, turn: str, index: int = 1) -> JournalBuilder:
        return self.add(t.TurnStarted(index=index, request_id=turn), turn=turn)

    def attempt(self, turn: str, number: int = 1, generation: str = "g") -> JournalBuilder:
        return self.add(bodies.attempt(number, generation), turn=turn)

    def reserve(
        self, turn: str, seq: int = 1, generation: str = "g", *, continues: bool = False
    ) -> JournalBuilder:
        reserved = t.InputReserved(generation=generation, seq=seq, key=turn, digest="d", continues=continues)
        return self.add(reserved, turn=turn)

    def running(self, turn: str, index: int = 1) -> JournalBuilder:
        """Accepted, started, given to an agent."""
        return self.accept(turn).start(turn, index).attempt(turn).reserve(turn)

    def say(self, turn: str | None, *texts: str) -> JournalBuilder:
        return self.add(*(t.AgentEventRecorded(kind="message", text=text) for text in texts), turn=turn)

    def done(self, turn: str) -> JournalBuilder:
        return self.add(t.TurnDone(stop_reason="end_turn"), turn=turn)

    def fail(self, turn: str) -> JournalBuilder:
        return self.add(bodies.crashed(1), turn=turn)

    def interrupt(
        self, turn: str, reason: Literal["crash", "cancelled", "closed", "killed"] = "crash", index: int = 1
    ) -> JournalBuilder:
        return self.add(t.TurnInterrupted(index=index, reason=reason, evidence="seen"), turn=turn)

    def park(self, turn: str) -> JournalBuilder:
        return self.add(t.TurnParked(reason="held"), turn=turn)

    def ask(self, turn: str | None, gate: str) -> JournalBuilder:
        prepared = t.GatePrepared(gate=gate, name="7", generation="g", payload=b"raw")
        return self.add(prepared, bodies.permission(gate), turn=turn)

    def crash(self, epoch: int) -> JournalBuilder:
        """The owner is gone and another one has begun to restore."""
        self.drafts += [
            Draft(t.Fence(epoch=epoch, holder=f"owner {epoch}", previous_epoch=epoch - 1)),
            Draft(t.RestoreStarted(from_seq=len(self.drafts))),
        ]
        return self

    def restored(self) -> JournalBuilder:
        self.drafts.append(Draft(t.RestoreDone(took_ms=1)))
        return self

    def records(self) -> list[Record]:
        return written(self.drafts, self.session)

    def state(self) -> State:
        """Raises IntegrityError where the journal contradicts itself."""
        return fold(self.session, self.records())
