"""What is played: four kills, each in mid turn, and what outlast makes of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from outlast.demo.effects import Effect
from outlast.demo.errors import DemoError
from outlast.demo.proof import Asked, Evidence
from outlast.demo.screen import Screen, bar
from outlast.demo.stage import AGENT, RuntimeProcess, Stage, until
from outlast.demo.watch import Watch
from outlast.records.types import (
    CallObserved,
    Fence,
    RestoreDone,
    RestoreStarted,
    TurnAttached,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnStarted,
)
from outlast.runtime.client import Client
from outlast.runtime.handles import Session

SESSION = "demo"
CONFLICT = 4
"""What `outlast resume` exits with when somebody else owns the session."""

FIRST = (
    Asked("turn-1", 4, "agent killed"),
    Asked("turn-2", 6, "runtime killed"),
    Asked("turn-3", 4, "both killed"),
    Asked("turn-4", 3),
)
LATER = (Asked("turn-5", 3), Asked("turn-6", 2))
HELD = {"turn-1": (3,), "turn-2": (3, 5), "turn-3": (3,), "turn-5": (2,)}
"""Before which steps the agent waits, so that each kill comes in mid turn however fast the machine is."""


@dataclass
class Story:
    """The demo while it plays. `acknowledged` are the inputs whose send has returned."""

    screen: Screen
    stage: Stage
    client: Client
    session: Session
    watch: Watch
    acknowledged: list[Asked] = field(default_factory=list)
    refused: int = 0
    owner: RuntimeProcess | None = None
    """The runtime without which nothing goes on now."""

    async def play(self) -> None:
        """All rungs. Raises DemoError when something does not come to pass, or the owner ends by itself."""
        story = asyncio.create_task(self._rungs(), name="the story")
        guard = asyncio.create_task(self._guard_owner(), name="the owner lives")
        try:
            await asyncio.wait([story, guard], return_when=asyncio.FIRST_COMPLETED)
            await (guard if guard.done() and not story.done() else story)
        finally:
            story.cancel()
            guard.cancel()
            await asyncio.wait([story, guard])

    async def _guard_owner(self) -> None:
        while True:
            if self.owner is not None:
                self.owner.check_alive()
            await asyncio.sleep(0.1)

    async def _rungs(self) -> None:
        await self._send(FIRST)
        self._resume()
        await self._agent_dies()
        await self._runtime_dies(self.stage.runtimes[-1])
        await self._both_die(self.stage.runtimes[-1])
        await self._two_runtimes()

    def evidence(self) -> Evidence:
        """What is left to be counted; call it when everything has ended."""
        return Evidence(
            session=SESSION,
            asked=tuple(self.acknowledged),
            effects=self.stage.effects(),
            records=tuple(self.watch.records),
            runtimes=len(self.stage.runtimes),
            refused=self.refused,
            left=self.stage.left(),
        )

    # --- the rungs -----------------------------------------------------------------------------

    async def _agent_dies(self) -> None:
        say = self.screen.line
        self.screen.rung(1, "THE AGENT DIES", "its turn fails with a receipt, the queue goes on")
        effect = await self._in_mid_turn("turn-1", 2)
        self.stage.kill_agent(effect.agent)
        self.screen.command(f"kill -9 {effect.agent}", "the agent, in mid turn", kind="kill")
        error = (await self.watch.of_turn(TurnFailed, "turn-1")).receipt.error
        receipt = f"turn-1 failed: {error.code}, signal {error.signal}"
        say("fact", f"receipt: {receipt}; {_without_outcome(self, 'turn-1')} has no outcome")
        await self.watch.of_turn(TurnStarted, "turn-2")
        say("good", "turn-1 is not run again; the queue goes on with turn-2")

    async def _runtime_dies(self, runtime: RuntimeProcess) -> None:
        say = self.screen.line
        self.screen.rung(2, "THE RUNTIME DIES", "the agent works on, the same turn is finished")
        before = await self._in_mid_turn("turn-2", 2)
        self._kill(runtime)
        self.screen.command(f"kill -9 {runtime.pid}", "the runtime, in mid turn", kind="kill")
        self.stage.let_go_on("turn-2", 3)
        await self.stage.steps_done("turn-2", 4)
        say("good", f"agent {before.agent} works on all by itself: step 3, step 4", bar=bar(4, 6))
        seen = self.watch.seq
        self._resume()
        await self._found(seen)
        await self.watch.of_turn(TurnAttached, "turn-2")
        done = await self.watch.seen(RestoreDone, "the restore", after=seen)
        say("good", f"attached to agent {before.agent}; the restore took {done.took_ms} ms")
        self.stage.let_go_on("turn-2", 5)
        await self.watch.of_turn(TurnDone, "turn-2")
        last = self.stage.effects().of("turn-2")[-1]
        who = f"the same agent {last.agent}" if last.agent == before.agent else f"agent {last.agent}"
        say("good", f"turn-2 is done: the same turn, {who}", bar=bar(6, 6))

    async def _both_die(self, runtime: RuntimeProcess) -> None:
        say = self.screen.line
        self.screen.rung(3, "BOTH DIE", "the turn is closed with evidence, never run again by itself")
        effect = await self._in_mid_turn("turn-3", 2)
        self._kill(runtime)
        self.stage.kill_agent(effect.agent)
        self.screen.command(f"kill -9 {runtime.pid} {effect.agent}", "the runtime and the agent", kind="kill")
        await self.stage.agents_gone()
        seen = self.watch.seq
        self._resume()
        await self._found(seen)
        await self.watch.of_turn(TurnInterrupted, "turn-3")
        done = await self.watch.seen(RestoreDone, "the restore", after=seen)
        self.owner = None  # It leaves by itself when the queue is empty.
        say("good", f"turn-3 is interrupted, not run again; the restore took {done.took_ms} ms")
        await self.watch.of_turn(TurnDone, "turn-4")
        say("good", "the queue goes on: turn-4 is done", bar=bar(3, 3))
        await self._ended(self.stage.runtimes[-1])

    async def _two_runtimes(self) -> None:
        say = self.screen.line
        self.screen.rung(4, "TWO RUNTIMES AT ONCE", "one owns the session, the other is refused")
        await self._send(LATER)
        seen = self.watch.seq
        both = [self.stage.resume(SESSION), self.stage.resume(SESSION)]
        typed = f"outlast resume {SESSION} & outlast resume {SESSION}"
        self.screen.command(typed, f"runtimes {both[0].pid}, {both[1].pid}")
        fence = await self.watch.seen(Fence, "an owner", after=seen)
        await self.watch.of_turn(TurnStarted, "turn-5")
        await until(lambda: any(runtime.exit_status is not None for runtime in both), "one being refused")
        loser = next(runtime for runtime in both if runtime.exit_status is not None)
        winner = next(runtime for runtime in both if runtime is not loser)
        if loser.exit_status != CONFLICT or f"pid {winner.pid} " not in loser.said():
            raise DemoError(
                f"runtime {loser.pid} was to be refused, naming runtime {winner.pid}; it ended with status "
                f"{loser.exit_status}",
                hint=loser.said().strip() or None,
            )
        self.refused += 1
        say("good", f"runtime {winner.pid} owns it (epoch {fence.epoch}) and works on turn-5")
        say("good", f"runtime {loser.pid} is refused (exit {CONFLICT}): {_reason(loser)}")
        self.stage.let_go_on("turn-5", 2)
        await self.watch.of_turn(TurnDone, "turn-6")
        say("good", "turn-5 and turn-6 are done", bar=f"{bar(3, 3)} {bar(2, 2)}")
        await self._ended(winner)

    # --- their parts ---------------------------------------------------------------------------

    async def _send(self, inputs: tuple[Asked, ...]) -> None:
        for asked in inputs:
            held = " and ".join(map(str, HELD.get(asked.turn, ())))
            text = f"{asked.steps} steps" + (f", wait before {held}" if held else "")
            await self.session.send(text, agent=AGENT, key=asked.turn)
            self.acknowledged.append(asked)
        first, *rest = inputs
        names = ", ".join([f"{first.turn} ({first.steps} steps)", *(f"{a.turn} ({a.steps})" for a in rest)])
        self.screen.line("fact", f"queued: {names}")

    def _resume(self) -> RuntimeProcess:
        self.owner = self.stage.resume(SESSION)
        self.screen.command(f"outlast resume {SESSION}", f"runtime {self.owner.pid}")
        return self.owner

    def _kill(self, runtime: RuntimeProcess) -> None:
        self.owner = None
        runtime.kill()

    async def _in_mid_turn(self, turn: str, done: int) -> Effect:
        """Wait until the turn has left `done` effects and is in the step after them, and say so."""
        effect = await self.stage.steps_done(turn, done)
        await self.watch.seen(
            CallObserved,
            f"step {done + 1} of {turn}",
            lambda call, record: record.turn == turn and call.call == f"step-{done + 1}",
        )
        steps = next(asked.steps for asked in self.acknowledged if asked.turn == turn)
        text = f"{turn}: agent {effect.agent} has done {done} of {steps} steps"
        self.screen.line("fact", text, bar=bar(done, steps))
        return effect

    async def _found(self, after: int) -> None:
        """Say what the restore found, as the journal has it."""
        started = await self.watch.seen(RestoreStarted, "a restore", after=after)
        for turn in started.turns:
            self.screen.line("fact", f"read {started.from_seq} records of the journal: {turn.turn} is open")
            agent = self.stage.effects().of(turn.turn)[-1].agent
            who = f" (agent {agent})" if turn.action == "attach" else ""
            self.screen.line("fact", f"plan: {turn.action}, because {turn.evidence}{who}")

    async def _ended(self, runtime: RuntimeProcess) -> None:
        await until(lambda: runtime.exit_status is not None, f"runtime {runtime.pid} to leave")


def _without_outcome(story: Story, turn: str) -> str:
    """The steps that began and did not end, as the journal has them."""
    calls: dict[str, str] = {}
    for record in story.watch.records:
        if record.turn == turn and isinstance(record.body, CallObserved):
            calls[record.body.name] = record.body.status
    return ", ".join(name for name, status in calls.items() if status == "started") or "no step"


def _reason(runtime: RuntimeProcess) -> str:
    """The first sentence of what it said."""
    said = runtime.said().strip().removeprefix("outlast: ")
    return said.split(". ")[0]
