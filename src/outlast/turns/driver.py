"""Runs the turns of one loop on its agent, one at a time, each to exactly one terminal record.

Everything that decides is read from the journal's state, the adapter's fold and the spool; the driver holds
only what a person has asked for and is not settled yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from outlast import faults
from outlast.agents.contract import (
    Agent,
    CloseStdin,
    Delta,
    Failure,
    GateAnswer,
    InputLine,
    Prompt,
    Wanted,
)
from outlast.clock import monotonic
from outlast.journal import Journal
from outlast.keep import ShimGoneError
from outlast.records.envelope import Draft
from outlast.records.types import (
    Content,
    GateOpened,
    GateResolved,
    InputReserved,
    TurnAttached,
    TurnAttemptStarted,
)
from outlast.state.model import OpenTurn
from outlast.turns import patience
from outlast.turns.host import AgentHost, Hosting, SpoolLost, input_digest
from outlast.turns.launch import LaunchFailure
from outlast.turns.merge import TEXT_LIMIT, Merger, Place
from outlast.turns.terminal import Ending, Stop, close

FLUSH_INTERVAL = 0.25
"""Seconds for which messages are merged before they are appended."""
LAUNCH_TRIES = 3
"""Agent lives that are begun for one attempt while none of them was given the input."""
END_GRACE = 5.0
"""Seconds for a program that has said all it will say to exit by itself."""
CANCEL_GRACE = 10.0
"""Seconds for an agent to end a turn that it was asked to cancel."""
KILL_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
FOLD_EVERY = 32 * 1024 * 1024
"""Bytes of spool after which the folded state is stored and the spool below it let go."""

GatePolicy = Callable[[str, GateOpened], Awaitable[str | None]]
"""(gate id, gate) -> the choice that a policy makes, or None to leave it to a person."""


@dataclass(slots=True)
class _Clocks:
    """Deadlines of one conversation, on the monotonic clock."""

    begun: float
    flushed: float
    ending_since: float | None = None
    stop_since: float | None = None
    timed_out: str | None = None
    killed: bool = False


@dataclass(slots=True)
class LoopDriver:
    """The turns of `loop`. `host` is the agent's present life, None while it has none."""

    journal: Journal
    agent: Agent
    loop: str
    hosting: Hosting
    policy: GatePolicy
    show: Callable[[str], None] = lambda text: None
    """Called with text that is being written; never stored."""
    host: AgentHost | None = None
    stop: Stop | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    # --- asked for by the session ------------------------------------------------------------

    def request_stop(self, request: Stop) -> None:
        """End the running turn; the first request counts, a kill overtakes a cancel."""
        if self.stop is None or request.reason == "killed":
            self.stop = request
        self._wake.set()

    def wake(self) -> None:
        """Something that the agent wants to hear is in the journal now (an answer)."""
        self._wake.set()

    # --- a turn --------------------------------------------------------------------------------

    async def run(self, turn: str, content: tuple[Content, ...]) -> None:
        """Give the open turn to the agent, on the living one or a new one, and stay until its terminal is
        durable. Raises LeaseLostError; any other way out is a terminal record."""
        self.stop = None
        try:
            host = await self._ready(turn)
        except LaunchFailure as failed:
            await self.end_agent(0.0)
            await self._append_terminal(
                turn, Ending(failure=failed.failure, phase="host_launch", stop=self.stop)
            )
            return
        await self._converse(turn, content, host)

    async def attach(self, turn: str, host: AgentHost) -> None:
        """A living agent of an earlier owner works on `turn`: record that we go on with it."""
        open_turn = self.journal.state.open_turns[turn]
        self.host = host
        faults.point("turn.attach.before_append")
        await patience.append(
            self.journal,
            [
                self._draft(
                    turn,
                    TurnAttached(
                        attempt=open_turn.attempts,
                        generation=host.generation_name,
                        spool_offset=host.intake.started_at_frame,
                    ),
                )
            ],
        )

    async def go_on(self, turn: str, content: tuple[Content, ...]) -> None:
        """Stay with an attached turn until its terminal is durable."""
        assert self.host is not None
        await self._converse(turn, content, self.host)

    async def settle(self, turn: str, host: AgentHost, ending: Ending) -> None:
        """Read what a dead agent left in its spool, then close the turn: by the agent's own end if it is
        there, else by `ending`."""
        merger = self._merger(turn)
        ended_by_itself = False
        try:
            for located in host.read_all():
                merger.add(located)
                ended_by_itself = ended_by_itself or (merger.ended is not None and host.intake.exit is None)
                if merger.size > TEXT_LIMIT:
                    await patience.append(self.journal, merger.take())
        except SpoolLost as lost:
            ending = Ending(interrupted=f"{ending.interrupted}, {lost}", then=ending.then)
        if ended_by_itself and merger.ended is not None:
            ending = Ending(ended=merger.ended)
        await self._append_terminal(turn, ending, merger.take())
        await host.forget()

    async def close_turn(self, turn: str, ending: Ending) -> None:
        """Close a turn whose agent left nothing to read."""
        await self._append_terminal(turn, ending)

    async def adopt(self, host: AgentHost) -> None:
        """Go on with a living agent of an earlier owner that is between turns."""
        self.host = host
        merger = Merger(Place(self.loop, None, self.agent.kind), self.journal.state.loops[self.loop])
        await self._take_all(host, merger)
        if merger.pending:
            await patience.append(self.journal, merger.take())

    # --- an agent's life -----------------------------------------------------------------------

    async def end_agent(self, grace: float = KILL_GRACE) -> None:
        """End the agent's process tree, verified."""
        if self.host is not None:
            host, self.host = self.host, None
            await host.end(grace)

    async def detach(self) -> None:
        """Leave the agent to its shim."""
        if self.host is not None:
            host, self.host = self.host, None
            await host.detach()

    # --- inside ----------------------------------------------------------------------------------

    def _open(self, turn: str) -> OpenTurn:
        return self.journal.state.open_turns[turn]

    def _merger(self, turn: str) -> Merger:
        place = Place(self.loop, turn, self.agent.kind)
        return Merger(place, self.journal.state.loops[self.loop])

    def _draft(self, turn: str | None, body: object, cause: str | None = None) -> Draft:
        return Draft(body=body, loop=self.loop, turn=turn, cause=cause)  # type: ignore[arg-type]

    async def _ready(self, turn: str) -> AgentHost:
        """A started agent with this turn's attempt recorded: the living one if it serves many turns."""
        if self.host is not None and self.host.alive and self.agent.capabilities.many_turns:
            await patience.append(self.journal, [self._draft(turn, self._attempt(turn, self.host))])
            return self.host
        for _ in range(LAUNCH_TRIES):
            await self.end_agent()
            try:
                return await self._launch(turn)
            except ShimGoneError:
                # An idle shim waits some seconds for its START, and a machine may sleep, or its disk be full,
                # for longer. No input was written, so that another life may be begun.
                self._raise_if_taken()
        raise LaunchFailure(Failure("transport_lost", "the agent's shim ended before it was given its input"))

    async def _launch(self, turn: str) -> AgentHost:
        host = await AgentHost.idle(self.hosting, self.agent, self.journal.state.loops[self.loop])
        self.host = host
        faults.point("turn.attempt.before_append")
        await patience.append(self.journal, [self._draft(turn, self._attempt(turn, host))])
        faults.point("turn.start.before")
        await host.start()
        faults.point("turn.start.after")
        return host

    def _attempt(self, turn: str, host: AgentHost) -> TurnAttemptStarted:
        return TurnAttemptStarted(
            attempt=self._open(turn).attempts + 1,
            folder=host.folder_path,
            generation=host.generation_name,
            machine=self.hosting.machine,
            boot_id=host.boot_id,
            processes=host.processes,
        )

    async def _converse(self, turn: str, content: tuple[Content, ...], host: AgentHost) -> None:
        merger = self._merger(turn)
        now = monotonic()
        clocks = _Clocks(begun=now, flushed=now)
        folded_at = host.intake.started_at_frame
        while True:
            more = self._take_in(host, merger)
            if not host.alive and host.intake.exit is None and not more:
                await self._see_end(host, merger)
            now = monotonic()
            over = self._over(host, merger)
            if merger.pending and (
                over or merger.urgent or merger.size > TEXT_LIMIT or now - clocks.flushed >= FLUSH_INTERVAL
            ):
                clocks.flushed = now
                if not over:
                    await self._flush(turn, host, merger)
            if over:
                break
            if more:
                await asyncio.sleep(0)
                continue
            # A state stored past the turn's end would hide it from a later owner.
            if merger.ended is None and host.intake.cursor.frame - folded_at > FOLD_EVERY:
                folded_at = host.intake.cursor.frame
                await self._store_state(host)
            if await self._write_next(turn, content, host, merger):
                continue
            await self._enforce(host, clocks)
            await self._wait(host, merger, clocks)
        await self._append_terminal(turn, self._ending(host, merger, clocks), merger.take())
        await self._after_turn(host)

    def _raise_if_taken(self) -> None:
        if self.host is not None and self.host.taken:
            self.journal.lost.set()
        self.journal.raise_if_lost()

    async def _see_end(self, host: AgentHost, merger: Merger) -> None:
        """The connection to the shim has ended: another owner has it, or it died and its guard cleans up."""
        self._raise_if_taken()
        await host.see_end()
        await self._take_all(host, merger)

    def _ending(self, host: AgentHost, merger: Merger, clocks: _Clocks) -> Ending:
        ended, failure = merger.ended, None
        if clocks.timed_out is not None and (ended is None or ended.failure is not None):
            idle = clocks.timed_out == "timeout_idle"
            limit = self.agent.idle_timeout if idle else self.agent.total_timeout
            said = "nothing came from the agent for" if idle else "the turn took longer than"
            failure = Failure(clocks.timed_out, f"{said} {limit:g} s")
        if ended is None and merger.start_failed is not None:
            return Ending(failure=merger.start_failed, phase="host_launch", stop=self.stop)
        return Ending(ended=ended, exit=host.intake.exit, stop=self.stop, failure=failure)

    def _take_in(self, host: AgentHost, merger: Merger) -> bool:
        """Fold what the spool holds; True if more is there than one bite."""
        located, more = host.read()
        for item in located:
            if isinstance(item.event, Delta):
                self.show(item.event.text)
            else:
                merger.add(item)
        return more

    async def _take_all(self, host: AgentHost, merger: Merger) -> None:
        while self._take_in(host, merger):  # noqa: ASYNC110 - it lets others run; nothing is waited for
            await asyncio.sleep(0)

    def _over(self, host: AgentHost, merger: Merger) -> bool:
        """Whether the turn can be closed: its agent is gone, or it serves many turns and has ended this."""
        if host.intake.exit is not None or not host.alive:
            return True
        return merger.ended is not None and self.agent.capabilities.many_turns

    async def _flush(self, turn: str, host: AgentHost, merger: Merger) -> None:
        drafts = merger.take()
        if any(isinstance(draft.body, GateOpened) for draft in drafts):
            # A person may take longer than an orphan is given: said before anybody sees the gate.
            await host.set_orphan_grace(None)
        faults.point("turn.events.before_append")
        await patience.append(self.journal, drafts)
        faults.point("turn.events.after_append")
        for draft in drafts:
            if isinstance(draft.body, GateOpened):
                await self._apply_policy(turn, draft.body)

    async def _apply_policy(self, turn: str, gate: GateOpened) -> None:
        choice = await self.policy(gate.gate, gate)
        if choice is None or gate.gate not in self.journal.state.gates:
            return
        resolved = GateResolved(gate=gate.gate, reason="policy", answer=choice, by="policy")
        await patience.append(self.journal, [self._draft(turn, resolved)])

    async def _store_state(self, host: AgentHost) -> None:
        folded = host.intake.dump()
        await patience.append(self.journal, [self._draft(None, folded)])
        await host.trim(folded.offset)

    def _wanted(self, turn: str, content: tuple[Content, ...], host: AgentHost) -> Wanted:
        state = self.journal.state
        loop, open_turn = state.loops[self.loop], state.open_turns[turn]
        answers = tuple(
            GateAnswer(answer.name, answer.payload, answer.choice)
            for answer in open_turn.answers.values()
            if answer.generation == host.generation_name
        )
        return Wanted(
            prompt=Prompt(
                turn=turn,
                attempt=open_turn.attempts,
                request_id=turn,
                content=content,
                continues=open_turn.mode == "continue",
            ),
            answers=answers,
            cancel=self.stop is not None,
            session_durable=loop.provider_state in ("bound", "confirmed", "reseeded"),
        )

    async def _write_next(
        self, turn: str, content: tuple[Content, ...], host: AgentHost, merger: Merger
    ) -> bool:
        """Write the next line that the adapter asks for; False if it asks for none now."""
        if not host.alive or host.intake.fold.last_input < host.accepted_input:
            return False
        item = host.intake.fold.next(self._wanted(turn, content, host))
        if item is None:
            return False
        if merger.pending:  # Nothing is said to the agent before what it said is durable.
            await self._flush(turn, host, merger)
            return True
        await self._write(turn, host, item)
        return True

    async def _write(self, turn: str, host: AgentHost, item: InputLine | CloseStdin) -> None:
        seq = host.intake.fold.last_input + 1
        if isinstance(item, InputLine) and item.carries is not None:
            reserved = InputReserved(
                generation=host.generation_name, seq=seq, key=item.carries, digest=input_digest(item.line)
            )
            if self._open(turn).reserved != reserved:
                faults.point("turn.reserve.before_append")
                await patience.append(self.journal, [self._draft(turn, reserved)])
        faults.point("turn.input.before")
        await host.write(seq, item)
        faults.point("turn.input.after")

    async def _enforce(self, host: AgentHost, clocks: _Clocks) -> None:
        """Apply the deadlines: a stop that is not obeyed, an agent that has said all, idle and total."""
        now = monotonic()
        fold = host.intake.fold
        if not self._asks():
            await host.set_orphan_grace(self.agent.orphan_grace)
        if self.stop is not None and clocks.stop_since is None:
            clocks.stop_since = now
        if fold.ending and clocks.ending_since is None:
            clocks.ending_since = now
        if not clocks.killed and self._idle_expired(host):
            clocks.timed_out = "timeout_idle"
        total = self.agent.total_timeout
        if not clocks.killed and total is not None and now - clocks.begun > total and not self._asks():
            clocks.timed_out = "timeout_total"
        if clocks.killed or not self._must_end(host, clocks, now):
            return
        clocks.killed = True
        gentle = self.stop is not None and self.stop.reason != "killed" and clocks.timed_out is None
        await host.kill(KILL_GRACE if gentle else 0.0)

    def _must_end(self, host: AgentHost, clocks: _Clocks, now: float) -> bool:
        if clocks.timed_out is not None:
            return True
        if self.stop is not None and clocks.stop_since is not None:
            patience = CANCEL_GRACE if self._can_be_asked(host) else 0.0
            return self.stop.reason == "killed" or now - clocks.stop_since >= patience
        return clocks.ending_since is not None and now - clocks.ending_since >= END_GRACE

    def _can_be_asked(self, host: AgentHost) -> bool:
        """Whether the agent has a way to be asked to stop, beside being ended."""
        return self.agent.capabilities.many_turns and host.alive

    def _asks(self) -> bool:
        return bool(self.journal.state.gates)

    def _idle_expired(self, host: AgentHost) -> bool:
        limit = self.agent.idle_timeout
        if limit is None or host.intake.fold.open_calls or self._asks():
            return False
        return host.idle_seconds() > limit

    async def _wait(self, host: AgentHost, merger: Merger, clocks: _Clocks) -> None:
        """Until the spool grows, the shim goes, somebody wakes us or a deadline may have come."""
        await host.wait(self._wake, self._patience(host, merger, clocks))
        self._wake.clear()
        if self.journal.lost.is_set():
            self.journal.raise_if_lost()

    def _patience(self, host: AgentHost, merger: Merger, clocks: _Clocks) -> float | None:
        """Seconds until a deadline may have come; None: there is none."""
        now = monotonic()
        due: list[float] = []
        if merger.pending:
            due.append(clocks.flushed + FLUSH_INTERVAL - now)
        if not clocks.killed:
            if clocks.stop_since is not None:
                due.append(clocks.stop_since + CANCEL_GRACE - now)
            if clocks.ending_since is not None:
                due.append(clocks.ending_since + END_GRACE - now)
            if self.agent.idle_timeout is not None and not host.intake.fold.open_calls and not self._asks():
                due.append(self.agent.idle_timeout - host.idle_seconds())
            if self.agent.total_timeout is not None:
                due.append(clocks.begun + self.agent.total_timeout - now)
        # Rounded up a little: a wake-up before the deadline would only be followed by another.
        return max(0.001, min(due) + 0.001) if due else None

    async def _append_terminal(self, turn: str, ending: Ending, before: Sequence[Draft] = ()) -> None:
        if any(isinstance(draft.body, GateOpened) for draft in before):
            # A gate that opened with the agent's last words is closed by the terminal like any other.
            await patience.append(self.journal, before)
            before = ()
        closing = close(self.journal.state, turn, ending, self.agent.after_failure)
        drafts = [*before, *closing.drafts]
        settle = [(request_id, len(before) + index) for request_id, index in closing.settle]
        host = self.host
        if host is not None and host.alive and self.agent.capabilities.many_turns:
            drafts.append(self._draft(None, host.intake.dump()))
        faults.point("turn.terminal.before_append")
        await patience.append(self.journal, drafts, settle)
        faults.point("turn.terminal.after_append")
        self.stop = None

    async def _after_turn(self, host: AgentHost) -> None:
        if host.intake.exit is not None or not host.alive:
            self.host = None
            await host.forget()
        elif self.agent.capabilities.many_turns:
            folded = self.journal.state.loops[self.loop].folded
            if folded is not None and folded.generation == host.generation_name:
                await host.trim(folded.offset)
