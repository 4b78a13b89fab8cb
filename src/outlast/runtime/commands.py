"""Commands from the inbox: cancel, kill, answer, retry, skip. Each is settled by a record that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlast.journal import Journal
from outlast.records.envelope import Draft
from outlast.records.types import (
    Body,
    CommandSettled,
    GateResolved,
    InputCancelled,
    LoopChanged,
    TurnRetried,
)
from outlast.runtime.requests import AnswerRequest, StopRequest, TurnRequest, decode
from outlast.state.model import Closed, OpenGate, State
from outlast.store.contract import Entry
from outlast.turns import patience
from outlast.turns.driver import LoopDriver
from outlast.turns.terminal import Stop

Refusal = Literal["too_late", "refused"]


@dataclass
class Commands:
    """Takes the commands of one look at the inbox."""

    journal: Journal
    driver: LoopDriver
    consumed: set[str] = field(default_factory=set)
    """Inputs that a command settled together with itself."""
    deferred: set[str] = field(default_factory=set)
    """Commands that wait for the running turn to end."""

    @property
    def state(self) -> State:
        return self.journal.state

    async def take(self, entry: Entry, entries: Sequence[Entry]) -> None:
        """Carry out one command, or leave it for a later look."""
        match entry.kind:
            case "cancel" | "kill":
                await self._stop(entry, entries)
            case "answer":
                await self._answer(entry)
            case "retry":
                await self._retry(entry)
            case "skip":
                await self._skip(entry)
            case _:
                pass

    # --- cancel and kill ---------------------------------------------------------------------

    async def _stop(self, entry: Entry, entries: Sequence[Entry]) -> None:
        running = self.state.running
        target = decode(StopRequest, entry.body).turn or (running.turn if running else None)
        if running is not None and target == running.turn:
            await self._stop_running(entry)
        elif target is not None and target in self.state.queue:
            await self._settle(entry, InputCancelled(request_id=target, reason="cancelled"))
        elif target is not None and any(e.request_id == target and e.kind == "input" for e in entries):
            self.consumed.add(target)
            await patience.append(
                self.journal,
                [self._draft(entry, InputCancelled(request_id=target, reason="cancelled"))],
                [(entry.request_id, 0), (target, 0)],
            )
        elif entry.kind == "kill" and target is None:
            await self.driver.end_agent(grace=0.0)
            await self._done(entry, "no turn was running; the agent was ended")
        else:
            await self._refuse(entry, "too_late", "that turn is over" if target else "no turn is running")

    async def _stop_running(self, entry: Entry) -> None:
        reason: Literal["killed", "cancelled"] = "killed" if entry.kind == "kill" else "cancelled"
        asked = self.driver.stop
        if asked is None:
            self.driver.request_stop(Stop(reason, entry.actor, entry.request_id))
        elif asked.request_id != entry.request_id and reason == "killed" and asked.reason != "killed":
            earlier = asked.request_id
            self.driver.request_stop(Stop(reason, entry.actor, entry.request_id))
            if earlier is not None:
                settled = CommandSettled(
                    request_id=earlier, command="cancel", outcome="done", detail="a kill came after it"
                )
                await patience.append(self.journal, [self._draft(entry, settled)], [(earlier, 0)])
        elif asked.request_id != entry.request_id:
            await self._done(entry, "the turn is being ended already")

    # --- gates ---------------------------------------------------------------------------------

    async def _answer(self, entry: Entry) -> None:
        request = decode(AnswerRequest, entry.body)
        gate = self.state.gates.get(request.gate)
        if gate is None:
            await self._refuse(entry, "too_late", "the gate is not open any more")
        elif request.choice not in {choice.id for choice in gate.choices}:
            known = ", ".join(choice.id for choice in gate.choices)
            await self._refuse(entry, "refused", f"no such choice; there are: {known}")
        else:
            resolved = GateResolved(
                gate=gate.gate, reason="answered", answer=request.choice, by=request.by or entry.actor
            )
            bodies = [resolved, *self._consequences(gate, request.choice, entry)]
            drafts = [self._draft(entry, body, turn=gate.turn) for body in bodies]
            await patience.append(self.journal, drafts, [(entry.request_id, 0)])
            self.driver.wake()

    def _consequences(self, gate: OpenGate, choice: str, entry: Entry) -> list[Body]:
        """What the answer to a question of the runtime itself (`on_interrupt = ask`) leads to."""
        if gate.opened.resolver != "runtime" or gate.turn not in self.state.parked:
            return []
        match choice:
            case "retry" | "continue":
                mode: Literal["again", "continue"] = "again" if choice == "retry" else "continue"
                return [TurnRetried(by=entry.actor or "a person", mode=mode)]
            case "skip":
                return [CommandSettled(request_id=entry.request_id, command="skip", outcome="done")]
            case _:
                return []

    # --- retry and skip ------------------------------------------------------------------------

    async def _retry(self, entry: Entry) -> None:
        if self.state.open_turns:
            self.deferred.add(entry.request_id)
            return
        closed = self._closed(decode(TurnRequest, entry.body).turn)
        if closed is None:
            await self._refuse(entry, "too_late", "no such turn is parked or ended without being done")
            return
        bodies: list[Body] = [
            TurnRetried(by=entry.actor or "a person", mode="again"),
            *self._active(closed.loop),
        ]
        drafts = [self._draft(entry, body, turn=closed.turn) for body in bodies]
        await patience.append(self.journal, drafts, [(entry.request_id, 0)])

    async def _skip(self, entry: Entry) -> None:
        wanted = decode(TurnRequest, entry.body).turn
        parked = self.state.parked
        turn = wanted if wanted in parked else None if wanted else next(reversed(parked), None)
        root = self.state.root or ""
        if turn is None and (wanted is not None or not self.state.loops[root].held):
            await self._refuse(entry, "too_late", "no such turn is parked")
            return
        settled = CommandSettled(request_id=entry.request_id, command="skip", outcome="done")
        gates = [
            GateResolved(gate=gate.gate, reason="abandoned", by=entry.actor)
            for gate in self.state.gates.values()
            if turn is not None and gate.turn == turn
        ]
        drafts = [self._draft(entry, body, turn=turn) for body in (settled, *gates, *self._active(root))]
        await patience.append(self.journal, drafts, [(entry.request_id, 0)])

    def _closed(self, wanted: str | None) -> Closed | None:
        if wanted is not None:
            last = {c.turn: c for c in self.state.last_unsuccessful.values()}
            return self.state.parked.get(wanted) or last.get(wanted)
        parked = next(reversed(self.state.parked.values()), None)
        return parked or self.state.last_unsuccessful.get(self.state.root or "")

    def _active(self, loop: str) -> list[Body]:
        held = self.state.loops[loop].held
        return [LoopChanged(state="active", reason="a person decided")] if held else []

    # --- settling ------------------------------------------------------------------------------

    def _draft(self, entry: Entry, body: Body, turn: str | None = None) -> Draft:
        return Draft(body=body, loop=self.state.root, turn=turn, cause=entry.request_id, actor=entry.actor)

    async def _settle(self, entry: Entry, body: Body) -> None:
        await patience.append(self.journal, [self._draft(entry, body)], [(entry.request_id, 0)])

    async def _done(self, entry: Entry, detail: str) -> None:
        settled = CommandSettled(
            request_id=entry.request_id, command=entry.kind, outcome="done", detail=detail
        )
        await self._settle(entry, settled)

    async def _refuse(self, entry: Entry, outcome: Refusal, detail: str) -> None:
        settled = CommandSettled(
            request_id=entry.request_id, command=entry.kind, outcome=outcome, detail=detail
        )
        await self._settle(entry, settled)
