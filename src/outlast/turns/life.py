"""An agent's lives: begun for a turn, ended, left to its shim, swept.

What it is given in one, and what it says, is no matter of this."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from outlast import faults
from outlast.agents.absent import AbsentAgent
from outlast.agents.contract import Agent, Failure
from outlast.errors import in_words
from outlast.journal import Journal
from outlast.keep import AttachRefusedError, ShimGoneError, ShimSilentError
from outlast.records.envelope import Draft
from outlast.records.types import TurnAttemptStarted
from outlast.turns import launch, patience
from outlast.turns.choosing import chosen_session
from outlast.turns.conversation import KILL_GRACE
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.launch import LaunchFailure
from outlast.turns.provider import ProviderSession
from outlast.turns.recovery import next_session
from outlast.turns.report import report

LAUNCH_TRIES = 3
"""Agent lives that are begun for one attempt while none of them was given the input."""


@dataclass(slots=True)
class AgentLife:
    """The agent of `loop`. `host` is its present life, None while it has none."""

    journal: Journal
    agent: Agent
    loop: str
    hosting: Hosting
    host: AgentHost | None = None
    provider: ProviderSession = field(init=False)

    def __post_init__(self) -> None:
        self.provider = ProviderSession(self.journal, self.agent, self.loop, self.hosting)

    async def end(self, grace: float = KILL_GRACE) -> None:
        """End the agent's process tree, verified. Raises KeepError when it does not end."""
        if self.host is not None:
            host, self.host = self.host, None
            await host.end(grace)
            if not self.journal.lost.is_set():
                await self.provider.capture_ended()
        elif isinstance(self.agent, AbsentAgent):
            await launch.end_living(self.hosting.folder(self.loop), self.hosting.claim)
        else:
            await launch.end_orphans(self.hosting.folder(self.loop))

    async def detach(self) -> None:
        """Leave the agent to its shim."""
        if self.host is not None:
            host, self.host = self.host, None
            await host.detach()

    def _draft(self, turn: str | None, body: object) -> Draft:
        return Draft(body=body, loop=self.loop, turn=turn)  # type: ignore[arg-type]

    async def ready(self, turn: str, stops: Callable[[], bool]) -> AgentHost:
        """A started agent with this turn's attempt recorded: the living one if it serves many turns.
        `stops`: somebody wishes to end the turn. Raises LaunchFailure, KeepError, OSError."""
        self._require_recoverable()
        decided = self.journal.state.loops[self.loop].decided
        goes_on = self.agent.capabilities.many_turns and decided is None
        if self.host is not None and self.host.alive and goes_on:
            attempt = self._draft(turn, self._attempt(turn, self.host))
            await patience.append(self.journal, [attempt], at="turn.attempt")
            return self.host
        tries, wait = 0, patience.Wait(self.journal.name)
        while tries < LAUNCH_TRIES:
            await self.end()
            await self.provider.prepare()
            try:
                host = await self._launch(turn)
            except (ShimGoneError, ShimSilentError):
                # An idle shim waits some seconds for its START, and a machine may sleep, or its disk be full,
                # for longer. No input was written, so that another life may be begun.
                self.raise_if_taken()
                tries += 1
            except (OSError, AttachRefusedError) as error:
                # A turn that failed for want of space would take the rest of the queue with it.
                if not patience.is_for_space(error) or stops():
                    raise
                wait.because(in_words(error)[0] if isinstance(error, OSError) else error.message)
                await asyncio.sleep(patience.RETRY_AFTER)
                self.journal.raise_if_lost()
            else:
                wait.over()
                return host
        raise LaunchFailure(Failure("transport_lost", "the agent's shim ended before it was given its input"))

    async def _launch(self, turn: str) -> AgentHost:
        chosen = chosen_session(self.journal.state.loops[self.loop], self.agent)
        if chosen is not None:
            await patience.append(self.journal, [self._draft(None, chosen)], at="turn.session_chosen")
        host = await AgentHost.idle(self.hosting, self.agent, self.journal.state.loops[self.loop])
        self.host = host
        await patience.append(self.journal, [self._draft(turn, self._attempt(turn, host))], at="turn.attempt")
        await self.provider.driver.claim(host)
        faults.point("turn.start.before")
        loop = self.journal.state.loops[self.loop]
        await host.start(self.loop, loop.launched or loop.launches)
        faults.point("turn.start.after")
        return host

    def _require_recoverable(self) -> None:
        """Raises LaunchFailure where the agent session that would be resumed is another program's, or not
        proven to be the failed turn's: nothing is launched then, and no file of any program is touched."""
        chosen = next_session(self.journal.state, self.loop, self.agent.kind)
        if chosen.error is not None:
            raise LaunchFailure(Failure("session_mismatch", chosen.error.message)) from chosen.error

    def _attempt(self, turn: str, host: AgentHost) -> TurnAttemptStarted:
        return TurnAttemptStarted(
            attempt=self.journal.state.open_turns[turn].attempts + 1,
            folder=host.folder_path,
            generation=host.generation_name,
            machine=self.hosting.machine,
            boot_id=host.boot_id,
            processes=host.processes,
        )

    def raise_if_taken(self) -> None:
        if self.host is not None and self.host.taken:
            self.journal.lease.lose("agent_taken")
        self.journal.raise_if_lost()

    async def after_turn(self, host: AgentHost) -> None:
        if host.intake.exit is not None or not host.alive:
            self.host = None
            await host.forget()
        elif self.agent.capabilities.many_turns:
            host.leave_unread()
            folded = self.journal.state.loops[self.loop].folded
            if folded is not None and folded.generation == host.generation_name:
                await host.trim(folded.offset)
        await self._sweep(host)

    async def _sweep(self, host: AgentHost) -> None:
        """Old lives go once later ones are recorded: else each turn would leave its spool for ever."""
        try:
            await asyncio.to_thread(launch.sweep, host.generation.folder, self._named())
        except OSError as error:
            report("old agent folders could not be removed", error)

    def _named(self) -> frozenset[str]:
        """The lives that the journal may still send a reader to."""
        state = self.journal.state
        loop = state.loops[self.loop]
        said = (
            [loop.attempt, loop.cursor, loop.folded]
            + [place for turn in state.open_turns.values() for place in (turn.attempt, turn.reserved)]
            + [queued.reserved for queued in state.queue.marked()]
        )
        return frozenset(place.generation for place in said if place is not None)
