"""The owner of one session in this process: takes the inbox, runs turns one after another, leaves cleanly.

Everything it knows is in the journal's state; it holds only its tasks and what people wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from outlast import faults
from outlast.agents.absent import AbsentAgent
from outlast.agents.transcript import HoldsPrompts
from outlast.clock import monotonic
from outlast.errors import StoreError
from outlast.journal import Journal, Proposal
from outlast.records.envelope import Draft
from outlast.records.types import TurnStarted
from outlast.restore.failing import require_effects
from outlast.restore.repairs import stops_among
from outlast.runtime.commands import Commands
from outlast.state.model import OpenTurn, Queued, State
from outlast.store.contract import Entry, Store
from outlast.turns import patience
from outlast.turns.accepting import accepted, closed, held_no_more
from outlast.turns.answers import given_before
from outlast.turns.commanded import Look
from outlast.turns.driver import LoopDriver
from outlast.turns.steering import Given, content_of
from outlast.turns.terminal import Ending, Stop

LEAVE_PATIENCE = 5.0
"""Seconds for the present step to end before it is cancelled."""


Leaving = Literal["finish", "detach"]
"""`finish`: begin nothing more, let the turn at work end, then end the agent. `detach`: at once; the agent
goes on under its shim."""


@dataclass(eq=False)
class SessionActor:
    """Owns `name` from the end of its restore until it has left. One task serves, and lets go at its end
    whatever ended it, so that nobody who has seen `ended` meets its lease."""

    store: Store
    journal: Journal
    driver: LoopDriver
    attached: str | None = None
    """The turn that the restore attached to a living agent."""
    begins: bool = True
    """False: it came for commands alone and leaves the work that waits to the next owner."""
    resumes: bool = False
    """A person wants the work to go on."""
    stops_before: frozenset[str] = frozenset()
    """Requests to stop that had waited for an owner before that person came: the queue goes on after them."""
    failure: BaseException | None = None
    """Why it ended, if it did not leave on purpose."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _begun: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _turn: asyncio.Task[None] | None = None
    _bell: asyncio.Event = field(default_factory=asyncio.Event)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: Entry | None = None
    _closed: bool = False
    _leaving: Leaving | None = None
    _idle_since: float = field(default_factory=monotonic)

    @property
    def name(self) -> str:
        return self.journal.name

    @property
    def state(self) -> State:
        return self.journal.state

    @property
    def leaving(self) -> bool:
        """It takes no new work: whoever wants the session served waits for `ended` and owns it anew."""
        return self._leaving is not None or self._closing is not None

    # --- life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to serve; the caller has appended RestoreDone (or the session's first records). Returns once
        a queue that is to go on does. Raises what ended it instead; it has let go then."""
        self._task = asyncio.create_task(self._run(), name=f"session {self.name}")
        await self._begun.wait()
        if self.ended.is_set() and self.failure is not None:
            raise self.failure

    async def _run(self) -> None:
        try:
            with self.store.changes(self.name) as self._bell:
                if self.resumes:
                    await self.resume_queue()
                self._begun.set()
                await self._go_on_with_attached()
                while not self._over:
                    self._bell.clear()
                    await self._step()
                    if not self._over:
                        await self._wait()
        except Exception as error:  # noqa: BLE001 - whatever ends an owner must not leave it owning
            self.failure = error
        finally:
            await self._let_go()

    @property
    def _over(self) -> bool:
        if self._leaving == "finish":
            # A turn that only waits to be tried again waits for whoever comes next.
            return self._turn is None or self.driver.waits
        return self._closed or self._leaving == "detach"

    async def _step(self) -> None:
        await self._reap()
        entries = await self.store.pending(self.name)
        look = Look(
            self._accepted,
            self.driver.effects,
            at_work=self._turn is not None,
            visits=self.driver.visits,
            holds_prompts=isinstance(self.driver.agent, HoldsPrompts),
            given=await given_before(self.store, self.state, entries),
        )
        commands = Commands(self.journal, self.driver, look)
        for entry in entries:
            if entry.kind == "close":
                self._closing = self._closing or entry
            elif entry.kind != "input":
                await commands.take(entry, entries)
        if self._closing is not None:
            await self._close(self._closing)
            return
        inputs = [e for e in entries if e.kind == "input" and e.request_id not in look.consumed]
        if inputs:
            await self._accept(inputs)
        if self.stops_before:
            await self._go_on_after_stops(entries)
        await self._next_turn()
        self._note_quiet(bool(look.deferred))

    async def _wait(self) -> None:
        waits = [asyncio.create_task(self._bell.wait()), asyncio.create_task(self.journal.lost.wait())]
        watched: list[asyncio.Task[object]] = [*waits]
        if self._turn is not None:
            watched.append(self._turn)
        try:
            await asyncio.wait(watched, timeout=self._park_in(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self.journal.raise_if_lost()
        if self._park_in() == 0.0:
            await self.driver.end_agent()

    def _park_in(self) -> float | None:
        """Seconds until an agent that has nothing to do is ended (the next input starts it again); None:
        there is none."""
        park = self.driver.agent.idle_park
        if self._turn is not None or self.driver.host is None or park is None:
            return None
        return max(0.0, self._idle_since + park - monotonic())

    def _note_quiet(self, deferred: bool) -> None:
        waiting = self._may_begin and bool(self.state.queue)
        # Who only visits runs no turn whose end could be waited for.
        deferred = deferred and self.begins
        if self._turn is None and not waiting and not deferred:
            self._quiet.set()
        else:
            self._quiet.clear()

    async def quiet(self) -> None:
        """Until nothing is left to do (or only a person can go on). Raises what ended the actor."""
        if not self.ended.is_set():
            # A look at the inbox is part of it: what was admitted before this call is waited for.
            self._quiet.clear()
            self._bell.set()
        await self._quiet.wait()
        if self.failure is not None:
            raise self.failure

    async def join(self, *, begins: bool, resume_queue: bool) -> None:
        """Somebody else wants the session owned, perhaps for more than it was owned for. Raises
        AgentNotFoundError where it was owned without its agent's adapter, and that is needed now,
        EffectNotFoundError where a turn needs effects that are not here."""
        if begins and isinstance(self.driver.agent, AbsentAgent):
            raise self.driver.agent.missing
        if begins and not self.begins:
            require_effects(self.state, await self.store.pending(self.name), self.driver.effects)
        self.begins = self.begins or begins
        self.driver.visits = not self.begins
        if resume_queue:
            await self.resume_queue()
        self._bell.set()

    async def resume_queue(self) -> None:
        """A person wants the work to go on: a held queue is held no more, a closed session is open. One that
        waits for a choice about its agent's lost session goes on waiting for that."""
        for active in held_no_more(self.state):
            await patience.append(self.journal, [active], at="actor.resume")

    async def _go_on_after_stops(self, entries: Sequence[Entry]) -> None:
        """The last word counts: of a cancel that waited, and of whoever resumed after it."""
        if stops_among(entries) - self.stops_before:
            self.stops_before = frozenset()  # Somebody has said another since.
        elif not stops_among(await self.store.pending(self.name)):
            self.stops_before = frozenset()
            await self.resume_queue()

    # --- inputs and turns --------------------------------------------------------------------

    async def _accept(self, entries: Sequence[Entry]) -> None:
        """Take what waits in the inbox, in admission order and one batch: each input is accepted, or it is
        said why it is not. A turn begins afterwards, with the first that is in the queue then."""
        await patience.decide(self.journal, lambda state: self._accepted(state, entries), at="actor.accept")
        self.driver.wake()  # What is to join the running turn is there now.

    def _accepted(self, state: State, entries: Sequence[Entry]) -> Proposal:
        steers = self.driver.agent.capabilities.steer
        return accepted(state, entries, at_work=self._turn is not None, steers=steers)

    @property
    def _may_begin(self) -> bool:
        """Whether a waiting input becomes a turn here: not in a held or closed session, not for a visitor."""
        held = self.state.loops[self.state.root or ""].held
        return self.begins and not self.leaving and not held and self.state.stopped is None

    async def _go_on_with_attached(self) -> None:
        """Before anything else is looked at: a command that means this turn finds it at work."""
        turn = self.state.running
        if turn is not None and self.attached == turn.turn and self.driver.host is not None:
            await self._work(turn, self.driver.go_on)

    async def _next_turn(self) -> None:
        if self._turn is not None or self.leaving or not self.begins:
            return
        turn = self.state.running
        if turn is None:
            queued = next(iter(self.state.queue.values()), None)
            if queued is None or not self._may_begin:
                return
            turn = await self._begin(queued)
        await self._work(turn, self.driver.run)

    async def _work(self, turn: OpenTurn, how: Callable[[str, Given], Coroutine[Any, Any, None]]) -> None:
        content = await content_of(self.journal, turn.input_seq)
        self._turn = asyncio.create_task(how(turn.turn, content), name=f"turn {turn.turn}")

    async def _begin(self, queued: Queued) -> OpenTurn:
        root = self.state.loops[self.state.root or ""]
        started = TurnStarted(
            index=queued.index or root.turns + 1,
            request_id=queued.request_id,
            settings={"agent": root.agent, "model": self.driver.agent.model or ""},
            effects=self.driver.effects.planned(),
        )
        await patience.append(
            self.journal,
            [Draft(body=started, loop=root.loop, turn=queued.request_id, cause=queued.request_id)],
            at="actor.turn",
        )
        return self.state.open_turns[queued.request_id]

    async def _reap(self) -> None:
        if self._turn is not None and self._turn.done():
            task, self._turn = self._turn, None
            self._idle_since = monotonic()
            task.result()

    # --- leaving -----------------------------------------------------------------------------

    async def _close(self, entry: Entry) -> None:
        """The normal way out: interrupt the turn, end the agent, SessionStopped; then the task lets go."""
        running, stop = self.state.running, Stop("closed", entry.actor)
        if self._turn is not None:
            if running is not None and self.driver.stopping(running.turn) is None:
                self.driver.request_stop(running.turn, stop)
            return  # The turn's end wakes us; nothing is begun meanwhile.
        await self.driver.end_agent()
        if running is not None:
            await self.driver.close_turn(running.turn, Ending(stop=stop))
        # What was sent before the close waits with the rest of the queue; what comes after it opens it again.
        pending = await self.store.pending(self.name)
        earlier = [e for e in pending if e.kind == "input" and e.order < entry.order]
        if earlier:
            await self._accept(earlier)
        # First: killed in between, the session is not closed, and claims what it drives when it goes on.
        await self.driver.let_go()
        await patience.decide(self.journal, lambda state: closed(state, entry), at="actor.close")
        self._closed = True

    async def finish(self) -> None:
        """Begin no more turns, let the one that is at work end, then end the agent, verified, and release the
        lease without SessionStopped. Work that comes meanwhile waits for the next owner."""
        faults.point("actor.finish.before")
        self._leaving = self._leaving or "finish"
        self._bell.set()
        await self.ended.wait()
        faults.point("actor.finish.after")

    async def detach(self) -> None:
        """Leave at once: the agent goes on under its shim, the next owner attaches."""
        self._leaving = "detach"
        self._bell.set()
        task = self._task
        if task is not None and not (await asyncio.wait([task], timeout=LEAVE_PATIENCE))[0]:
            task.cancel()  # It waits for space on a full disk; nothing that is stored is lost by that.
            await asyncio.wait([task])

    async def _let_go(self) -> None:
        """Stop all work, end or leave the agent, release the lease; then tell those who wait."""
        try:
            await self._cancel_turn()
            if self.failure is None and self._leaving == "finish":
                await self.driver.end_agent()
            await self.driver.detach()
        except Exception as error:  # noqa: BLE001 - told by `failure`, and the lease is let go of
            self.failure = self.failure or error
        finally:
            try:
                await self._release()
            finally:
                for told in (self._begun, self._quiet, self.ended):
                    told.set()

    async def _release(self) -> None:
        try:
            faults.point("actor.release.before")
            await self.journal.release()
            faults.point("actor.release.after")
        except StoreError:
            return  # A lease that cannot be given back on a full disk ends with this process.
        except Exception as error:  # noqa: BLE001 - told by `failure`
            self.failure = self.failure or error

    async def _cancel_turn(self) -> None:
        if self._turn is not None:
            task, self._turn = self._turn, None
            task.cancel()
            await asyncio.wait([task])
