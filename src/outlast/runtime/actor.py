"""The owner of one session in this process: takes the inbox, runs turns one after another, leaves cleanly.

Everything it knows is in the journal's state; it holds only its tasks and what people wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from outlast import faults
from outlast.clock import monotonic
from outlast.errors import StoreError
from outlast.journal import Journal, Proposal, read_records
from outlast.records.envelope import Draft, Record
from outlast.records.types import (
    Body,
    Content,
    InputAccepted,
    InputCancelled,
    LoopChanged,
    SessionStopped,
    TurnStarted,
)
from outlast.runtime.commands import Commands
from outlast.runtime.requests import InputRequest, decode
from outlast.state.model import OpenTurn, Queued, State
from outlast.store.contract import Entry, Store
from outlast.turns import patience
from outlast.turns.driver import LoopDriver
from outlast.turns.terminal import Stop

LEAVE_PATIENCE = 5.0
"""Seconds for the present step to end before it is cancelled."""


@dataclass(eq=False)
class SessionActor:
    """Owns `name` from the end of its restore until it leaves. One task runs `run()`."""

    store: Store
    journal: Journal
    driver: LoopDriver
    attached: str | None = None
    """The turn that the restore attached to a living agent."""
    begins: bool = True
    """False: it came for commands alone and leaves the work that waits to the next owner."""
    failure: BaseException | None = None
    """Why it ended, if it did not leave on purpose."""
    _task: asyncio.Task[None] | None = None
    _turn: asyncio.Task[None] | None = None
    _bell: asyncio.Event = field(default_factory=asyncio.Event)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: Entry | None = None
    _stopping: bool = False
    _leaving: bool = False
    """It begins nothing more; a turn that is at work goes on to its end."""
    _idle_since: float | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return self.journal.name

    @property
    def state(self) -> State:
        return self.journal.state

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve; the caller has appended RestoreDone (or the session's first records)."""
        self._task = asyncio.create_task(self._run(), name=f"session {self.name}")

    async def _run(self) -> None:
        try:
            with self.store.changes(self.name) as self._bell:
                while not self._over:
                    self._bell.clear()
                    await self._step()
                    if not self._over:
                        await self._wait()
        except Exception as error:  # noqa: BLE001 - whatever ends an owner must not leave it owning
            self.failure = error
            await self._drop()
        finally:
            self._quiet.set()
            self.ended.set()

    @property
    def _over(self) -> bool:
        return self._stopping or (self._leaving and self._turn is None)

    async def _step(self) -> None:
        await self._reap()
        entries = await self.store.pending(self.name)
        commands = Commands(self.journal, self.driver)
        for entry in entries:
            if entry.kind == "close":
                self._closing = self._closing or entry
            elif entry.kind != "input":
                await commands.take(entry, entries)
        if self._closing is not None:
            await self._close()
            return
        inputs = [e for e in entries if e.kind == "input" and e.request_id not in commands.consumed]
        if inputs:
            await self._accept(inputs)
        await self._next_turn()
        self._note_quiet(bool(commands.deferred))

    async def _wait(self) -> None:
        waits = [asyncio.create_task(self._bell.wait()), asyncio.create_task(self.journal.lost.wait())]
        watched: list[asyncio.Task[object]] = [*waits]
        if self._turn is not None:
            watched.append(self._turn)
        try:
            await asyncio.wait(watched, timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self.journal.raise_if_lost()
        await self._park_idle_agent()

    def _patience(self) -> float | None:
        park = self.driver.agent.idle_park
        if self._turn is None and self.driver.host is not None and park is not None:
            return park
        return None

    async def _park_idle_agent(self) -> None:
        """An agent that has had nothing to do for `idle_park` is ended; the next input starts it again."""
        park = self.driver.agent.idle_park
        if self._turn is not None or self.driver.host is None or park is None:
            self._idle_since = None
            return
        now = monotonic()
        if self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= park:
            self._idle_since = None
            await self.driver.end_agent()

    def _note_quiet(self, deferred: bool) -> None:
        root = self.state.loops[self.state.root or ""]
        waiting = bool(self.state.queue) and not root.held and self.begins
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

    async def resume_queue(self) -> None:
        """A person wants the work to go on: a held queue is held no more."""
        for loop in self.state.loops.values():
            if loop.held:
                active = LoopChanged(state="active", reason="resumed")
                await patience.append(self.journal, [Draft(body=active, loop=loop.loop)])
        self._bell.set()

    # --- inputs and turns --------------------------------------------------------------------

    async def _accept(self, entries: Sequence[Entry]) -> None:
        """InputAccepted for each in admission order, in one batch; the first may start its turn in it."""

        def accepted(state: State) -> Proposal:
            return self._accepted(state, requests)

        requests = [(entry, decode(InputRequest, entry.body)) for entry in entries]
        faults.point("actor.accept.before_append")
        await patience.decide(self.journal, accepted)
        faults.point("actor.accept.after_append")
        self.driver.wake()  # What is to join the running turn is there now.

    def _accepted(self, state: State, requests: Sequence[tuple[Entry, InputRequest]]) -> Proposal:
        drafts: list[Draft] = []
        settle: list[tuple[str, int]] = []
        held = state.loops[state.root or ""].held
        busy = self._turn is not None or bool(state.open_turns) or bool(state.queue)
        running = state.running if self.driver.agent.capabilities.steer else None
        for entry, request in requests:
            settle.append((entry.request_id, len(drafts)))
            if request.when_busy == "reject" and (busy or drafts):
                drafts.append(self._draft(InputCancelled(request_id=entry.request_id, reason="busy"), entry))
                continue
            drafts.append(
                self._draft(
                    InputAccepted(
                        request_id=entry.request_id,
                        content=request.content,
                        on_interrupt=request.on_interrupt,
                        joins=running.turn if running is not None and request.when_busy == "steer" else None,
                    ),
                    entry,
                )
            )
            if held:
                held = False
                drafts.append(self._draft(LoopChanged(state="active", reason="a new input"), entry))
        return Proposal(tuple(drafts), tuple(settle))

    async def _next_turn(self) -> None:
        if self._turn is not None or self.state.root is None:
            return
        root = self.state.loops[self.state.root]
        turn = self.state.running
        attached = turn is not None and self.attached == turn.turn
        if self._leaving or not (self.begins or attached):
            return
        if turn is None:
            queued = next(iter(self.state.queue.values()), None)
            if queued is None or root.held:
                return
            turn = await self._begin(queued)
        content = await self.content(turn.input_seq)
        self.attached = None
        work = self.driver.go_on if attached and self.driver.host is not None else self.driver.run
        self._turn = asyncio.create_task(work(turn.turn, content), name=f"turn {turn.turn}")

    async def _begin(self, queued: Queued) -> OpenTurn:
        root = self.state.loops[self.state.root or ""]
        started = TurnStarted(
            index=queued.index or root.turns + 1,
            request_id=queued.request_id,
            settings={"agent": root.agent, "model": self.driver.agent.model or ""},
        )
        faults.point("actor.turn.before_append")
        await patience.append(
            self.journal,
            [Draft(body=started, loop=root.loop, turn=queued.request_id, cause=queued.request_id)],
        )
        faults.point("actor.turn.after_append")
        return self.state.open_turns[queued.request_id]

    async def content(self, seq: int) -> tuple[Content, ...]:
        """The content of the InputAccepted at `seq`."""
        async for record in read_records(self.store, self.name, after=seq - 1):
            return _content(record)
        return ()

    async def _reap(self) -> None:
        if self._turn is not None and self._turn.done():
            task, self._turn = self._turn, None
            task.result()

    def _draft(self, body: Body, entry: Entry) -> Draft:
        return Draft(body=body, loop=self.state.root, cause=entry.request_id, actor=entry.actor)

    # --- leaving -----------------------------------------------------------------------------

    async def _close(self) -> None:
        """The normal way out: interrupt the turn, end the agent, SessionStopped, lease."""
        entry = self._closing
        assert entry is not None
        if self._turn is not None:
            running = self.state.running
            if running is not None:
                self.driver.request_stop(running.turn, Stop("closed", entry.actor))
            return  # The turn's end wakes us; admission stays stopped meanwhile.
        await self.driver.end_agent()
        stopped = self._draft(SessionStopped(reason="closed"), entry)
        await patience.decide(self.journal, lambda _: Proposal((stopped,), ((entry.request_id, 0),)))
        await self.journal.lease.release()
        self._stopping = True

    async def finish(self) -> None:
        """Begin no more turns, let the one that is at work end, then end the agent, verified, and release the
        lease without SessionStopped. Work that comes meanwhile waits for the next owner."""
        if self.ended.is_set():
            return
        faults.point("actor.finish.before")
        self._leaving = True
        self._bell.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._let_go(end_agent=True)
        faults.point("actor.finish.after")

    async def detach(self) -> None:
        """Leave at once: the agent goes on under its shim, the next owner attaches."""
        if self.ended.is_set():
            return
        self._stopping = True
        self._bell.set()
        if self._task is not None and not (await asyncio.wait([self._task], timeout=LEAVE_PATIENCE))[0]:
            self._task.cancel()  # It waits for space on a full disk; nothing that is stored is lost by that.
            await asyncio.wait([self._task])
        await self._let_go(end_agent=False)

    async def _let_go(self, *, end_agent: bool) -> None:
        await self._cancel_turn()
        if self.failure is None and self._closing is None:
            if end_agent:
                await self.driver.end_agent()
            await self.driver.detach()
            await self.journal.lease.release()

    async def _drop(self) -> None:
        """Ownership is gone or cannot be used: stop all work at once, touch nothing that is now another's."""
        await self._cancel_turn()
        await self.driver.detach()
        # A lease that cannot be given back on a full disk ends with this process.
        with contextlib.suppress(StoreError):
            await self.journal.lease.release()

    async def _cancel_turn(self) -> None:
        if self._turn is not None:
            task, self._turn = self._turn, None
            task.cancel()
            await asyncio.wait([task])


def _content(record: Record) -> tuple[Content, ...]:
    assert isinstance(record.body, InputAccepted)
    return tuple(record.body.content)
