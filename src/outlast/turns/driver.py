"""Runs the turns of one loop on its agent, one at a time, each to exactly one terminal record.

Everything that decides is read from the journal's state, the adapter's fold and the spool; the driver holds
only what a person has asked for and is not settled yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from outlast.agents.absent import UNREAD, AbsentAgent
from outlast.agents.contract import (
    Agent,
    Failure,
)
from outlast.agents.environment import secrets_in
from outlast.clock import boottime, now
from outlast.journal import Journal, Proposal
from outlast.keep import AttachRefusedError, BelowFloorError, KeepError
from outlast.keep.proc import boot_id
from outlast.records.envelope import Draft
from outlast.records.types import (
    TurnAttached,
)
from outlast.state.model import OpenTurn, State
from outlast.turns import lost, patience
from outlast.turns.conversation import KILL_GRACE, Conversation
from outlast.turns.deciding import GatePolicy
from outlast.turns.dropped_calls import notice_of
from outlast.turns.effects import Effects
from outlast.turns.follower import SpoolLost
from outlast.turns.going_on import goes_on
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.launch import LaunchFailure
from outlast.turns.life import AgentLife
from outlast.turns.merge import Merger, Place
from outlast.turns.performing import Performing
from outlast.turns.reading import Show, read_on, to_nobody
from outlast.turns.retrying import Boot, Judging
from outlast.turns.steering import Given, Steering, unfit
from outlast.turns.telling import given_to
from outlast.turns.terminal import Ending, Stop, close, host_done
from outlast.turns.unread import back_to_its_place, proof, proof_of_spool, shim_died
from outlast.turns.waiting import Wait


@dataclass(slots=True)
class LoopDriver:
    """The turns of `loop`."""

    journal: Journal
    agent: Agent
    loop: str
    hosting: Hosting
    policy: GatePolicy
    show: Show = to_nobody
    """Called with text that is being written; never stored."""
    effects: Effects = field(default_factory=Effects)
    """What runs around a turn that begins here."""
    visits: bool = False
    """It came for commands alone."""
    _stop: tuple[int, Stop] | None = None
    """With the record that the turn was begun or reopened by: a turn that is run again bears the same name,
    and nobody has asked to end that."""
    _shims_died: set[str] = field(default_factory=set)
    """Turns that went back to their place because of that."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _life: AgentLife = field(init=False)

    def __post_init__(self) -> None:
        self._life = AgentLife(self.journal, self.agent, self.loop, self.hosting)

    # --- asked for by the session ------------------------------------------------------------

    def request_stop(self, turn: str, stop: Stop) -> None:
        """End the open `turn` as it runs now. The last request counts."""
        self._stop = (self._open(turn).seq, stop)
        self._wake.set()

    def stopping(self, turn: str) -> Stop | None:
        """The wish to end the open `turn` as it runs now, if there is one."""
        if self._stop is None or self._stop[0] != self._open(turn).seq:
            return None
        return self._stop[1]

    def wake(self) -> None:
        """Something that the agent wants to hear is in the journal now (an answer)."""
        self._wake.set()

    # --- a turn --------------------------------------------------------------------------------

    async def run(self, turn: str, content: Given) -> None:
        """Give the open turn to the agent, on the living one or a new one, and stay until its terminal is
        durable. Raises LeaseLostError, and what the journal raises when it can't be written; any other way
        out is a terminal record, or the turn back in its place."""
        if self._open(turn).host_done is not None:
            await self._perform(turn)
            return
        refused = unfit(content, images=self.agent.capabilities.images)
        if refused is not None:
            ending = Ending(failure=refused, phase="accept", stop=self.stopping(turn))
            await self._append_terminal(turn, ending)
            return
        if not await self._its_time(turn):
            return
        before = self.host
        try:
            host = await self._life.ready(turn, lambda: self.stopping(turn) is not None)
        except LaunchFailure as failed:
            await self.end_agent(0.0)
            if await self._begins_anew(turn, failed.failure):
                await self._run_again(turn, content)
            else:
                await self._not_launched(turn, failed.failure)
        except KeepError as error:
            other = isinstance(error, AttachRefusedError) and error.reason == "other_holder"
            if other or isinstance(error, BelowFloorError):
                self.journal.lease.lose("agent_taken")
            self._life.raise_if_taken()
            await self._not_launched(turn, Failure("unknown", str(error)))
        except OSError as error:
            message = f"the agent's folder could not be prepared: {error.strerror or type(error).__name__}"
            await self._not_launched(turn, Failure("unknown", message))
        else:
            await self._converse(turn, content, host, begun=host is not before)

    @property
    def waits(self) -> bool:
        """The running turn only waits until it may be tried again."""
        turn = self.journal.state.running
        return turn is not None and turn.delay is not None

    async def _its_time(self, turn: str) -> bool:
        """Wait until the turn may be given to an agent; False: it was ended meanwhile, as somebody wished."""
        wait = Wait(
            journal=self.journal,
            turn=turn,
            wake=self._wake,
            stopped=lambda: self.stopping(turn) is not None,
            idle=self.end_agent,
            idle_park=self.agent.idle_park if self.host is not None else None,
        )
        delayed = self._open(turn).delay
        if delayed is None or await wait.over():
            return True
        stop = self.stopping(turn)
        if stop is not None and stop.reason == "killed":
            await self.end_agent(0.0)
        waited = f"it waited to be tried again ({delayed.code})"
        await self._append_terminal(turn, Ending(stop=stop, interrupted=waited))
        return False

    async def _not_launched(self, turn: str, failure: Failure) -> None:
        if self.host is not None:
            await self.end_agent(0.0)
        ending = Ending(failure=failure, phase="host_launch", stop=self.stopping(turn))
        await self._append_terminal(turn, ending)

    async def attach(self, turn: str, host: AgentHost) -> None:
        """A living agent of an earlier owner works on `turn`: record that we go on with it."""
        self._life.host = host
        await self._attached(turn, host.generation_name, host.intake.started_at_frame)

    async def attach_unread(self, turn: str, generation: str) -> None:
        """The same where the agent's adapter is not here: it can only be ended, or left to the next owner."""
        folded = self.journal.state.loops[self.loop].folded
        offset = folded.offset if folded is not None and folded.generation == generation else 0
        await self._attached(turn, generation, offset)

    async def _attached(self, turn: str, generation: str, offset: int) -> None:
        attached = TurnAttached(attempt=self._open(turn).attempts, generation=generation, spool_offset=offset)
        await patience.append(self.journal, [self._draft(turn, attached)], at="turn.attach")

    async def go_on(self, turn: str, content: Given) -> None:
        """Stay with an attached turn until its terminal is durable."""
        assert self.host is not None
        await self._converse(turn, content, self.host)

    async def settle(self, turn: str, host: AgentHost, ending: Ending, *, whole: bool = True) -> None:
        """Read what a dead agent left in its spool, then close the turn: by the agent's own end if it is
        there, else by `ending`. `whole`: the spool holds all that the agent was given."""
        merger = self._merger(turn)

        async def flush() -> None:
            await patience.append_output(self.journal, merger.take(), at="turn.settle")

        try:
            await read_on(host, merger, flush)
        except SpoolLost as lost:
            ending, whole = Ending(interrupted=f"{ending.interrupted}, {lost}", then=ending.then), False
        if merger.ended is not None and not merger.ended_by_exit:
            ending = Ending(ended=merger.ended)
        # A lost rest may have held an input that was given to it.
        ending = replace(ending, unlanded=host.unlanded if whole else None)
        await self._append_terminal(turn, ending, merger.take())
        await host.forget()

    async def close_turn(self, turn: str, ending: Ending) -> None:
        """Close a turn whose agent left nothing to read, or nothing that anybody here can read."""
        if isinstance(self.agent, AbsentAgent) and self._open(turn).attempt is not None:
            told = f"{ending.interrupted}, {UNREAD}" if ending.interrupted else UNREAD
            ending = replace(ending, interrupted=told)
        await self._append_terminal(turn, ending)

    async def adopt(self, host: AgentHost) -> None:
        """Go on with a living agent of an earlier owner that is between turns. One whose spool can't be read
        is ended."""
        self._life.host = host
        merger = Merger(Place(self.loop, None, self.agent.kind), self.journal.state.loops[self.loop])

        async def flush() -> None:
            await patience.append_output(self.journal, merger.take(), at="turn.adopt")

        try:
            await read_on(host, merger, flush)
        except SpoolLost:
            await self.end_agent(0.0)
        if merger.pending:
            await flush()

    # --- an agent's life -----------------------------------------------------------------------

    @property
    def host(self) -> AgentHost | None:
        """The agent's present life, None while it has none."""
        return self._life.host

    async def end_agent(self, grace: float = KILL_GRACE) -> None:
        """End the agent's process tree, verified. Raises KeepError when it does not end."""
        await self._life.end(grace)

    async def claim_adopted(self, provider_session: str) -> str:
        """Before the agent has a session of its own that began elsewhere: it is nobody else's. Why it is not
        to be had, as a part of a sentence; empty where it is."""
        return await self._life.provider.driver.claim_adopted(provider_session)

    async def adopted(self) -> None:
        """The agent has a session of its own now that began elsewhere: it is ours, and captured."""
        await self._life.provider.capture_adopted()

    async def let_go(self) -> None:
        """The session is about to be closed and its agent has ended: what it drove may be another's."""
        await self._life.provider.driver.let_go()

    async def detach(self) -> None:
        """Leave the agent to its shim."""
        await self._life.detach()

    # --- inside ----------------------------------------------------------------------------------

    def _open(self, turn: str) -> OpenTurn:
        return self.journal.state.open_turns[turn]

    def _merger(self, turn: str) -> Merger:
        place = Place(self.loop, turn, self.agent.kind)
        given = Steering(self.journal, turn).given
        return Merger(place, self.journal.state.loops[self.loop], steered=given)

    def _draft(self, turn: str | None, body: object, cause: str | None = None) -> Draft:
        return Draft(body=body, loop=self.loop, turn=turn, cause=cause)  # type: ignore[arg-type]

    async def _converse(self, turn: str, content: Given, host: AgentHost, *, begun: bool = False) -> None:
        """`begun`: the agent was begun for this turn. That one had its chance: how it ended is how the turn
        ends, also where it read nothing."""
        record = self.journal.state.loops[self.loop]
        continues = await goes_on(self.journal.state, turn, self.agent, self.hosting)
        most = self.agent.capabilities.prompt_characters
        given = await given_to(self.journal, self._open(turn), content, continues=continues, most=most)
        notice = given.notice
        if given.content is content and not notice:
            notice = await notice_of(self.journal, self.agent, record, self.hosting)
        conversation = Conversation(
            journal=self.journal,
            agent=self.agent,
            loop=self.loop,
            turn=turn,
            content=given.content,
            notice=notice,
            continues=continues,
            host=host,
            merger=self._merger(turn),
            between_calls=self._life.provider.capture_partly,
            before_input=partial(self._life.provider.before_input, host),
            policy=self.policy,
            show=self.show,
            wake=self._wake,
            stop=lambda: self.stopping(turn),
        )
        ending = await conversation.run()
        said = conversation.merger.take()
        if ending.phase == "host_launch" and ending.stop is None and lost.is_lost(ending.failure):
            await patience.append_output(self.journal, said, at="turn.lost_session")
            said = []
            if await self._begins_anew(turn, ending.failure):
                await self._run_again(turn, content)
                return
        unread = "" if begun else proof(self._open(turn), ending, conversation.merger)
        if not unread and shim_died(ending, conversation.merger):
            unread = await self._unwritten(turn, host)
        if unread and said:
            await patience.append_output(self.journal, said, at="turn.last_words")
            said = []
        if not unread or not await self._returned(turn, unread):
            await self._append_terminal(turn, ending, said)
        ended = None if conversation.merger.ended_by_exit else conversation.merger.ended
        await self._life.provider.capture(turn if ended is not None else None)
        await self._life.after_turn(host)
        opened = self.journal.state.open_turns.get(turn)
        if opened is not None and opened.host_done is not None:  # else it was opened again, by what ended it
            await self._perform(turn)

    async def _unwritten(self, turn: str, host: AgentHost) -> str:
        """How the spool of a shim that died proves that the turn's input was not written; empty where it does
        not. Also of an agent that was begun for the turn, which has done nothing wrong, but once: a shim that
        always dies would be begun for ever."""
        seen = None if turn in self._shims_died else await host.left_behind()
        if seen is None:
            return ""
        self._shims_died.add(turn)
        return proof_of_spool(self._open(turn), seen, self.journal.state.loops[self.loop].cursor)

    async def _perform(self, turn: str) -> None:
        """The effects around a turn whose host step is done, then its end."""
        performing = Performing(
            journal=self.journal,
            turn=turn,
            effects=self.effects,
            workspace=self.hosting.workspace,
            locks=self.hosting.folders.parent / "effects",
            stop=lambda: self.stopping(turn),
            wake=self._wake,
            visits=self.visits,
        )
        ending = await performing.run()
        if ending is None:
            return
        if ending.stop is not None and ending.stop.reason == "killed":
            await self.end_agent(0.0)
        await self._append_terminal(turn, ending)

    async def _returned(self, turn: str, evidence: str) -> bool:
        """Put the turn's input back to its place, from where the session gives it to a new agent; False where
        it has to be closed."""

        def back(state: State) -> Proposal | None:
            return None if self.stopping(turn) else back_to_its_place(state, turn, evidence)

        return bool(await patience.decide(self.journal, back, at="turn.unread"))

    async def _begins_anew(self, turn: str, failure: Failure | None) -> bool:
        """Whether the agent's settings let it begin a new session of its own in the place of one that is
        lost: the turn, of whose input nothing was written, is given to that. One whose input was named for
        the agent that is lost goes back to its place first: what is named is given to no other."""
        if not lost.is_lost(failure) or self.stopping(turn) is not None:
            return False
        loop = self.journal.state.loops[self.loop]
        chosen = lost.by_itself(loop, self._open(turn), self.agent.on_lost)
        if chosen is None:
            return False
        await self.end_agent(0.0)
        drafts = [self._draft(turn, chosen), *lost.back_to_its_place(self.journal.state, turn)]
        await patience.append(self.journal, drafts, at="turn.begins_anew")
        return True

    async def _run_again(self, turn: str, content: Given) -> None:
        """Where it went back to its place, the session begins it from there."""
        if turn in self.journal.state.open_turns:
            await self.run(turn, content)

    async def _append_terminal(self, turn: str, ending: Ending, before: Sequence[Draft] = ()) -> None:
        if before:
            # Gates that opened with the agent's last words are closed by the terminal like any other.
            await patience.append_output(self.journal, before, at="turn.last_words")
        host = self.host
        folded: tuple[Draft, ...] = ()
        if host is not None and host.alive and self.agent.capabilities.many_turns:
            folded = (self._draft(None, host.intake.dump()),)
        # A turn whose host step is done is never given to an agent again, whatever else is still to be done.
        if host_done(self.journal.state, turn, ending) is not None:
            await patience.decide(
                self.journal, lambda state: _with(host_done(state, turn, ending), folded), at="turn.host_done"
            )
            return

        secrets = tuple(secrets_in(self.hosting.environ))

        def terminal(state: State) -> Proposal:
            judging = Judging(now(), self.agent.retry_attempts, Boot(boot_id(), boottime()))
            known = replace(ending, judging=judging, secrets=secrets)
            closing = close(state, turn, known, self.agent.after_failure)
            told = lost.with_loss(state, turn, closing, self.agent.on_lost)
            return Proposal(told.drafts + folded, told.settle)

        await patience.decide(self.journal, terminal, at="turn.terminal")


def _with(proposal: Proposal | None, drafts: tuple[Draft, ...]) -> Proposal | None:
    return None if proposal is None else Proposal(proposal.drafts + drafts, proposal.settle)
