"""The gates of a turn: a policy decides them beside the conversation, while the agent is read on and a person
may be faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from outlast.agents.contract import GateAnswer
from outlast.journal import Journal, Proposal
from outlast.records.envelope import Draft
from outlast.records.types import GateOpened, GateResolved
from outlast.state.model import State
from outlast.turns import patience
from outlast.turns.report import report

LEAVE = 5.0
"""Seconds for the embedding program's code to end once it is cancelled."""

GatePolicy = Callable[[str, GateOpened], Awaitable[str | None]]
"""(gate id, gate) -> the choice that a policy makes, or None to leave it to a person."""


@dataclass(slots=True)
class Deciding:
    """Asks `policy` about the gates of `turn` and records what it decides; `wake` is set then."""

    journal: Journal
    policy: GatePolicy
    loop: str
    turn: str
    wake: asyncio.Event
    failure: BaseException | None = None
    """Why a decision could not be recorded."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def open_gates(self, generation: str) -> list[GateOpened]:
        """What the agent's life `generation` asks in this turn and waits for. Others of the session may be
        open for ever."""
        return [
            gate.opened
            for gate in self.journal.state.gates.values()
            if gate.turn == self.turn and gate.generation == generation
        ]

    def answers(self, generation: str) -> tuple[GateAnswer, ...]:
        """What has been decided of all that this life has asked in this turn."""
        answers = self.journal.state.open_turns[self.turn].answers.values()
        of_this_life = (answer for answer in answers if answer.generation == generation)
        return tuple(GateAnswer(answer.name, answer.payload, answer.choice) for answer in of_this_life)

    def ask_about_open(self, generation: str) -> None:
        """Those that an earlier owner left open: its policy, if it had one, died with it."""
        for gate in self.open_gates(generation):
            self.ask(gate)

    def ask(self, gate: GateOpened) -> None:
        """Let the policy decide the gate."""
        task = asyncio.create_task(self._decide(gate), name=f"gate {gate.gate}")
        self._tasks.add(task)
        task.add_done_callback(self._decided)

    async def end(self) -> None:
        """Cancel what is not decided: none of the embedding program's code runs on beside the next turn,
        unless it takes no notice."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks and (await asyncio.wait(tasks, timeout=LEAVE))[1]:
            report("a policy goes on after its turn", TimeoutError("it was cancelled and does not end"))

    def _decided(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self.wake.set()

    async def _decide(self, gate: GateOpened) -> None:
        try:
            choice = await self.policy(gate.gate, gate)
        except Exception as error:  # noqa: BLE001 - it is the embedding program's; the gate stays a person's
            report(f"the policy for the gate {gate.gate} failed, a person has to answer it", error)
            return
        if choice is None:
            return
        resolved = GateResolved(gate=gate.gate, reason="policy", answer=choice, by="policy")
        draft = Draft(body=resolved, loop=self.loop, turn=self.turn)

        def if_open(state: State) -> Proposal | None:
            return Proposal((draft,)) if gate.gate in state.gates else None

        await patience.decide(self.journal, if_open, at="turn.policy")
        self.wake.set()
