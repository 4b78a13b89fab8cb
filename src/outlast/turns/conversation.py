"""One conversation: an agent works on one turn, from the first look at its spool to the turn's end.

The loop is: fold what the spool holds, make it durable, and only then write what the adapter asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from outlast import faults
from outlast.agents.contract import (
    Agent,
    CloseStdin,
    Failure,
    InputLine,
    Notice,
    Prompt,
    Wanted,
)
from outlast.clock import monotonic
from outlast.journal import Journal, Proposal
from outlast.keep import KeepError, Verified
from outlast.records.envelope import Draft
from outlast.records.types import CallObserved, GateOpened, InputReserved, InputReturned
from outlast.state.model import OpenTurn, State
from outlast.turns import patience
from outlast.turns.cut import what_then, with_open_calls
from outlast.turns.deadlines import Deadlines, Limits
from outlast.turns.deciding import Deciding, GatePolicy
from outlast.turns.follower import SpoolLost
from outlast.turns.host import AgentHost, input_digest
from outlast.turns.launch import LaunchFailure
from outlast.turns.merge import Merger
from outlast.turns.reading import Show, read_on, take_in
from outlast.turns.steering import Given, InputLost, Steering, reservations
from outlast.turns.terminal import Ending, Stop

FLUSH_INTERVAL = 0.25
"""Seconds for which messages are merged before they are appended."""
KILL_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
STATE_EVERY = 128 * 1024
"""Bytes of spool after which the folded state is stored: a restore reads that much again, in milliseconds."""
TRIM_EVERY = 32 * 1024 * 1024
"""Bytes of spool below that state after which they are let go."""
LONGEST_LINE = 256 * 1024 * 1024
"""Bytes of spool that a line may take before it ends: well below what a spool may hold."""

WATCH = 10.0
"""Seconds of silence after which it is looked whether somebody has stopped the agent's shim, or its disk is
full."""
FULL = "the disk takes nothing to or from the agent, which waits; it goes on once there is space"

_UNDELIVERABLE = {
    "too_large": "the input is larger than the agent takes",
    "bad_line": "the input cannot be given to the agent as one line",
}


@dataclass(slots=True)
class Conversation:
    """`turn` on `host`. `stop` is a person's wish to end it; `wake` makes the loop look again."""

    journal: Journal
    agent: Agent
    loop: str
    turn: str
    content: Given
    notice: str
    """See `Prompt.notice`."""
    continues: bool
    """See `Prompt.continues`."""
    host: AgentHost
    merger: Merger
    policy: GatePolicy
    show: Show
    wake: asyncio.Event
    stop: Callable[[], Stop | None]
    between_calls: Callable[[], Awaitable[None]]
    """Called when a call of the agent has ended."""
    before_input: Callable[[], Awaitable[None]]
    """Called before an input is reserved; raises LaunchFailure where the agent may not be given any."""
    _deadlines: Deadlines = field(init=False)
    _steering: Steering = field(init=False)
    _deciding: Deciding = field(init=False)
    _flushed: float = field(default_factory=monotonic)
    _stdin_open: bool = True
    _trimmed: int = 0
    """Offset below which the spool was let go."""
    _idle_from: float = field(default_factory=monotonic)
    """When the idle clock stood still last, or the agent was given something. An agent that was kept had
    nothing to say before its turn began."""
    _failure: Failure | None = None
    """What the runtime itself saw fail."""
    _named: str = ""
    """The standstill that was told last."""

    def __post_init__(self) -> None:
        agent = self.agent
        limits = Limits(agent.idle_timeout, agent.total_timeout, agent.capabilities.many_turns)
        self._deadlines = Deadlines(limits, monotonic())
        self._steering = Steering(self.journal, self.turn, self.agent.capabilities.images)
        self._deciding = Deciding(self.journal, self.policy, self.loop, self.turn, self.wake)

    async def run(self) -> Ending:
        """Stay until the turn is over; what was not yet durable then is in the merger. Raises
        LeaseLostError."""
        try:
            return await self._run()
        except SpoolLost as lost:
            return await self._cut_off(str(lost))
        except KeepError as error:
            return await self._cut_off(error.message)
        finally:
            await self._deciding.end()

    async def _run(self) -> Ending:
        folded_at = self.host.intake.started_at_frame
        self._deciding.ask_about_open(self.host.generation_name)
        while True:
            more = take_in(self.host, self.merger, self.show)
            if not self.host.alive and self.host.intake.exit is None and not more:
                await self._see_end()
            if self._over(more):
                return self._ending()
            if self.merger.pending and self._flush_is_due():
                await self._flush()
            await self._end_endless_line()
            read = self.host.intake.cursor.frame - folded_at
            # A state stored past the turn's end would hide it from a later owner.
            if self.merger.ended is None and read > (TRIM_EVERY if more else STATE_EVERY):
                folded_at = self.host.intake.cursor.frame
                await self._store_state()
            if more:
                await self._enforce(more)  # an agent may write faster than it is read, for ever
                await asyncio.sleep(0)
                continue
            wrote = await self._write_next()
            await self._enforce()  # also while a full disk takes no line, again and again
            if not wrote:
                await self._wait()

    # --- what the agent said -----------------------------------------------------------------------

    async def _see_end(self) -> None:
        """The connection to the shim has ended: another owner has it, or it died and its guard cleans up."""
        if self.host.taken:
            self.journal.lease.lose("agent_taken")
        self.journal.raise_if_lost()
        await self.host.see_end()
        await read_on(self.host, self.merger, self._flush, self.show)

    async def _cut_off(self, lost: str) -> Ending:
        """What the agent says can't be read on: it is ended, and nobody can tell what became of the turn
        unless it had said so before."""
        if self.host.taken:
            self.journal.lease.lose("agent_taken")
        self.journal.raise_if_lost()
        tree = await self.host.end_verified()
        await patience.append_output(self.journal, self.merger.take(), at="turn.cut_off")
        if self.merger.ended is not None:
            return Ending(ended=self.merger.ended, stop=self.stop())
        gone = isinstance(tree, Verified)
        left = "its agent was ended, verified" if gone else f"its agent may live on: {tree.evidence}"
        return Ending(
            interrupted=with_open_calls(f"{lost}, {left}", self._open),
            stop=self.stop(),
            then=what_then(self._open, self.agent.on_interrupt, gone=gone),
        )

    def _over(self, more: bool) -> bool:
        """Whether the turn can be closed: its agent is gone and all that it left is read, or it serves many
        turns and has ended this."""
        if self.host.intake.exit is not None:
            return True
        if not self.host.alive:
            return not more
        fold = self.host.intake.fold
        # An input of which a living agent will still say whether it took it is not left behind.
        over = (self.merger.ended is not None and not fold.unsettled) or self._stopped_early()
        # What we gave it last, and is not read back yet, belongs to this turn.
        heard = fold.last_input >= self.host.accepted_input
        stop = self.stop()
        killed = stop is not None and stop.reason == "killed"  # that means the agent, not only its turn
        return self.agent.capabilities.many_turns and over and heard and not killed

    def _stopped_early(self) -> bool:
        """A person stopped the turn before an agent that is still getting ready was given its input: there is
        nothing that the agent would have to end."""
        stop = self.stop()
        unasked = self._open.reserved is None and self.host.intake.fold.turn is None
        return unasked and stop is not None and stop.reason != "killed"

    def _ending(self) -> Ending:
        ended, stop = self.merger.ended, self.stop()
        if self.host.alive and self.host.intake.exit is None and self._stopped_early():
            return Ending(stop=stop, interrupted="the agent had not been given the input")
        if ended is None and self.merger.start_failed is not None:
            return Ending(failure=self.merger.start_failed, phase="host_launch", stop=stop)
        failure = self._failure or self._deadlines.failure()
        return Ending(
            ended=ended,
            exit=self.host.intake.exit,
            stop=stop,
            failure=failure,
            phase="host_launch" if failure is not None and self._open.reserved is None else "host_execute",
            unlanded=self.host.unlanded,
        )

    async def _end_endless_line(self) -> None:
        """A line that does not end can neither be folded nor let go of: at the bound of its spool the agent
        would stand still for ever."""
        if self.host.intake.unended > LONGEST_LINE and not self._deadlines.ended:
            said = f"the agent wrote a line of more than {LONGEST_LINE >> 20} MiB, without an end"
            self._failure, self._stdin_open = self._failure or Failure("output_limit", said), False
            self._deadlines.ended = True
            await self.host.kill(0.0)

    # --- what is durable ---------------------------------------------------------------------------

    def _flush_is_due(self) -> bool:
        waited = monotonic() - self._flushed
        return self.merger.urgent or self.merger.full or waited >= FLUSH_INTERVAL

    async def _flush(self) -> None:
        self._flushed = monotonic()
        drafts = self.merger.take()
        if any(isinstance(draft.body, GateOpened) for draft in drafts):
            # A person may take longer than an orphan is given: said before anybody sees the gate.
            await self._grace(asks=True)
        records = await patience.append_output(self.journal, drafts, at="turn.events")
        for record in records:
            if isinstance(record.body, GateOpened):
                self._deciding.ask(record.body)
        if any(isinstance(r.body, CallObserved) and r.body.status != "started" for r in records):
            await self.between_calls()

    async def _store_state(self) -> None:
        if self.merger.pending:
            await self._flush()  # a later owner reads on from the state, and never again what came before it
        folded = self.host.intake.dump()
        await patience.append(self.journal, [Draft(body=folded, loop=self.loop)], at="turn.state")
        if folded.offset - self._trimmed > TRIM_EVERY:
            self._trimmed = folded.offset
            await self.host.trim(folded.offset)

    # --- what is said to the agent -----------------------------------------------------------------

    @property
    def _open(self) -> OpenTurn:
        return self.journal.state.open_turns[self.turn]

    async def _wanted(self) -> Wanted:
        steer = await self._steering.prompts() if self.agent.capabilities.steer else ()
        open_turn, loop = self._open, self.journal.state.loops[self.loop]
        return Wanted(
            prompt=None
            if isinstance(self.content, InputLost)
            else Prompt(
                turn=self.turn,
                attempt=open_turn.attempts,
                request_id=self.turn,
                content=self.content,
                continues=self.continues,
                notice=self.notice,
            ),
            steer=steer,
            answers=self._deciding.answers(self.host.generation_name),
            cancel=self.stop() is not None,
            session_durable=loop.provider_state in ("bound", "confirmed", "reseeded"),
        )

    async def _write_next(self) -> bool:
        """Write the next line that the adapter asks for; False if it asks for none now."""
        fold = self.host.intake.fold
        unread = self.host.unheard or fold.last_input < self.host.accepted_input
        if not self.host.alive or not self._stdin_open or unread:
            return False
        if isinstance(self.content, InputLost) and fold.turn != self.turn and self._failure is None:
            self._failure, self._stdin_open = self.content.failure, False
            return False
        item = self.host.next(await self._wanted())
        if item is None:
            return False
        if self.merger.pending:  # Nothing is said to the agent before what it said is durable.
            await self._flush()
            return True
        await self._write(item)
        return True

    async def _write(self, item: InputLine | CloseStdin) -> None:
        seq = self.host.intake.fold.last_input + 1
        if not await self._reserve(seq, item):
            return
        faults.point("turn.input.before")
        refused = await self.host.write(seq, item)
        faults.point("turn.input.after")
        if refused in (None, "disk"):  # What the disk keeps from the agent it cannot answer.
            self._idle_from = monotonic()
        if refused == "closed":
            self._stdin_open = False  # It reads nothing more; how it ends decides.
        elif refused == "silent":
            self._name(self.host.silence)
        elif refused == "disk":
            self._name(FULL)
        elif refused in _UNDELIVERABLE:
            await self._undelivered(item, _UNDELIVERABLE[refused])

    async def _undelivered(self, item: InputLine | CloseStdin, why: str) -> None:
        """What the agent can't be given ends the turn, but for an input that was only to join it."""
        if isinstance(item, InputLine) and item.carries is not None and item.carries != self.turn:
            returned = InputReturned(request_id=item.carries, evidence=why)
            back = Draft(body=returned, loop=self.loop, turn=self.turn)
            await patience.append(self.journal, [back], at="turn.undelivered")
        else:
            self._failure = Failure("protocol_error", why)
            self._stdin_open = False

    async def _reserve(self, seq: int, item: InputLine | CloseStdin) -> bool:
        """Name a line that carries an input in the journal; False when that was withdrawn meanwhile."""
        key, named, generation = None, None, self.host.generation_name
        if isinstance(item, InputLine) and item.carries is not None:
            try:
                await self.before_input()
            except LaunchFailure as refused:
                self._failure, self._stdin_open = refused.failure, False
                return False
            key, digest = item.carries, input_digest(item.line)
            continues = self.continues and key == self.turn
            named = InputReserved(generation=generation, seq=seq, key=key, digest=digest, continues=continues)

        def wanted(state: State) -> bool:
            return key in (None, self.turn) or key in state.queue

        def if_wanted(state: State) -> Proposal | None:
            turn = state.open_turns[self.turn]
            drafts = reservations(state, turn, (generation, seq), named) if wanted(state) else []
            return Proposal(tuple(drafts)) if drafts else None

        if if_wanted(self.journal.state) is not None:
            await patience.decide(self.journal, if_wanted, at="turn.reserve")
        return wanted(self.journal.state)

    def _name(self, standstill: str) -> None:
        """Say once what the agent, or whoever speaks to it, waits for; empty: for nothing."""
        if standstill and standstill != self._named:
            self.show(Notice(standstill))
        self._named = standstill

    async def _grace(self, *, asks: bool) -> None:
        grace = self.host.hosting.orphan_grace(self.agent.orphan_grace, asks=asks)
        await self.host.set_orphan_grace(grace)

    # --- deadlines ---------------------------------------------------------------------------------

    async def _enforce(self, more: bool = False) -> None:
        asks = bool(self._deciding.open_gates(self.host.generation_name))
        if not asks:
            await self._grace(asks=False)
        stop, fold = self.stop(), self.host.intake.fold
        stands = asks or more or bool(fold.open_calls)
        if stands:
            self._idle_from = monotonic()
        self._deadlines.look(
            monotonic(),
            stop=None if stop is None else stop.reason,
            ending=fold.ending or self._failure is not None,
            idle=None if stands else await self._idle(),
            asks=asks,
        )
        if self._deadlines.must_end(monotonic()):
            self._deadlines.ended = True
            await self.host.kill(KILL_GRACE if self._deadlines.gently else 0.0)

    async def _idle(self) -> float | None:
        """Seconds; None while it is the disk that keeps us from hearing the agent."""
        # What was just written, such as a late answer, is not read back yet.
        idle = min(self.host.idle_seconds(), monotonic() - self._idle_from)
        limit = self.agent.idle_timeout
        over = limit is not None and idle >= limit
        return None if over and await self.host.held_by_disk() else idle

    async def _wait(self) -> None:
        """Until the spool grows, the shim goes, somebody wakes us or a deadline may have come."""
        now = monotonic()
        due = self._deadlines.due(now)
        if self.merger.pending:
            flush = self._flushed + FLUSH_INTERVAL - now
            due = flush if due is None else min(due, flush)
        # Rounded up a little: a wake-up before the deadline would only be followed by another.
        soon = WATCH if due is None else min(max(due, 0.0) + 0.001, WATCH)
        await self.host.wait(self.wake, soon)
        if self.host.idle_seconds() >= WATCH:
            stopped = self.host.stopped()
            self._name(stopped or (FULL if await self.host.held_by_disk() else ""))
        self.wake.clear()
        self.journal.raise_if_lost()
        if self._deciding.failure is not None:
            raise self._deciding.failure
