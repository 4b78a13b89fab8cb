"""Looks at what lies outside the journal: agent folders, shims, spools, the inbox. Changes nothing; the
floors are raised by `fence_agents`, once the lease is ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from outlast.agents.contract import (
    Agent,
    Delta,
    GateRequested,
    Landed,
    Message,
    ToolCall,
    TurnEnded,
    Usage,
)
from outlast.agents.provider_state import difference
from outlast.agents.transcript import ReadsTranscript, Transcript
from outlast.clock import monotonic
from outlast.errors import AgentNotFoundError, ConfigError
from outlast.keep import (
    AgentFolder,
    Alive,
    Claim,
    FolderLockHeldError,
    Generation,
    GenerationFacts,
    ShimClient,
    ShimGoneError,
    Unknown,
    Verified,
    raise_floor,
    tree_dead,
    wake,
)
from outlast.keep.facts import look as look_at
from outlast.keep.proc import boot_id, is_alive
from outlast.records.types import TurnAttemptStarted
from outlast.restore.facts import AgentFacts, Facts
from outlast.state.model import Loop, OpenTurn, State
from outlast.turns import launch
from outlast.turns.follower import SpoolLost
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.landing import Landing, landing_of
from outlast.turns.seen import exit_info

Resolve = Callable[[str], Agent]
Verdict = Verified | Alive | Unknown

_OF_WORK = (Delta, GateRequested, Landed, Message, ToolCall, Usage)
"""What an agent says only once it has taken its prompt in."""
_WRITTEN: frozenset[Landing] = frozenset({"accepted", "written", "unknown"})


async def probe_facts(state: State, inbox: int, hosting: Hosting, resolve: Resolve) -> Facts:
    """Look at every loop's agent."""
    agents = {loop.loop: await _probe_loop(state, loop, hosting, resolve) for loop in state.loops.values()}
    return Facts(agents=agents, inbox=inbox)


def known_agent(name: str, resolve: Resolve) -> Agent | None:
    """The configuration of the agent's name, None where this runtime has none that can be used."""
    try:
        return resolve(name)
    except (AgentNotFoundError, ConfigError):
        return None


def generation_of(loop: Loop, hosting: Hosting) -> Generation | None:
    """The agent life that the journal knows last, in this store's own folder. Where that was when it began is
    recorded; a store that was moved has it with it, one that was copied has a copy of it."""
    if loop.attempt is None:
        return None
    number = loop.attempt.generation.rpartition("-")[2]
    return Generation(hosting.folder(loop.loop), int(number))


async def _probe_loop(state: State, loop: Loop, hosting: Hosting, resolve: Resolve) -> AgentFacts:
    agent = known_agent(loop.agent, resolve)
    turn = next((t for t in state.open_turns.values() if t.loop == loop.loop), None)
    base = AgentFacts(
        loop=loop.loop,
        known=agent is not None,
        kind=None if agent is None else agent.kind,
        many_turns=agent is not None and agent.capabilities.many_turns,
        on_interrupt=agent.on_interrupt if agent is not None else "skip",
    )
    generation = generation_of(loop, hosting)
    if generation is None:
        return base
    here = loop.attempt is not None and loop.attempt.machine == hosting.machine
    if not here or not generation.path.is_dir():
        return _unseen(base, loop.attempt, generation, here=here)
    seen = await asyncio.to_thread(look_at, generation)
    alive = seen.shim_alive and seen.exit is None
    verdict = None if alive else await asyncio.to_thread(tree_dead, generation)
    ended = exit_info(seen.exit) if seen.exit is not None else None
    end, readable, note = None, agent is not None, seen.fault
    if agent is not None and turn is not None and not alive:
        end, lost = await _spool_terminal(hosting, agent, loop, generation, turn)
        note = note or lost
    gone = not alive and isinstance(verdict, Verified)
    landing = landing_of(turn, seen, loop.cursor)
    # Only where it decides something: the whole file is read.
    asked = gone and end is None and landing in _WRITTEN
    transcript = await _transcript(hosting, agent, loop) if asked else None
    first = agent is not None and agent.capabilities.landing_precedes_model_call
    stored = _stored(turn, landing, loop, transcript, stores_first=first)
    if stored is False and agent is not None and turn is not None:
        # The file may be an older one than the agent had: what it said of the prompt is not undone by that.
        stored = None if await _took_in(hosting, agent, loop, generation, turn) else False
    return AgentFacts(
        loop=loop.loop,
        known=base.known,
        kind=base.kind,
        many_turns=base.many_turns,
        on_interrupt=base.on_interrupt,
        generation=generation.name,
        found=True,
        elsewhere=_elsewhere(seen, loop.attempt, verdict),
        alive=alive,
        started=seen.agent_pid > 0,
        exit=ended,
        landing=landing,
        terminal=None if end is None else _outcome(end),
        failure=None if end is None else end.failure,
        retry_attempts=0 if agent is None else agent.retry_attempts,
        readable=readable,
        stored=stored,
        gone=gone,
        note=note or _doubt(seen, verdict) or _damage(transcript),
    )


async def _transcript(hosting: Hosting, agent: object, loop: Loop) -> Transcript | None:
    """What a dead agent's own transcript tells, where its program has one that can be read."""
    if not isinstance(agent, ReadsTranscript) or loop.provider_session is None:
        return None
    found = await asyncio.to_thread(agent.read_transcript, loop.provider_session, hosting.environ)
    captured = loop.followed
    if found is None or captured is None:
        return found
    pieces = [(piece.digest, piece.size) for piece in captured.pieces]
    try:
        older = await asyncio.to_thread(difference, found.path, pieces)
    except OSError:
        return None
    return replace(found, damage=found.damage or older)


def _stored(
    turn: OpenTurn | None, landing: Landing, loop: Loop, transcript: Transcript | None, *, stores_first: bool
) -> bool | None:
    """Whether the agent had stored the prompt. That it had not, and so had told no model, is proven only of a
    program that stores it first, and as long as the machine has been up: what was written and never synced is
    gone after a loss of power."""
    if turn is None or transcript is None or landing not in _WRITTEN:
        return None
    if turn.turn in transcript.keys:
        return True
    same_boot = loop.attempt is not None and loop.attempt.boot_id == boot_id()
    return False if stores_first and same_boot and transcript.lacks(turn.turn) else None


def _damage(transcript: Transcript | None) -> str:
    if transcript is None or not transcript.damage:
        return ""
    return f"the agent's own transcript {transcript.path} is damaged: {transcript.damage}"


def _elsewhere(seen: GenerationFacts, attempt: TurnAttemptStarted | None, verdict: Verdict | None) -> str:
    """Where an agent ran of which this store has only a copy that does not tell its end."""
    if not seen.copied or verdict is None or isinstance(verdict, Verified):
        return ""
    where = "" if attempt is None else f" ({attempt.folder})"
    return f"{verdict.evidence}{where}" + (f", process {verdict.pids[0]} lives" if verdict.pids else "")


def _doubt(seen: GenerationFacts, verdict: Verdict | None) -> str:
    return "" if verdict is None or isinstance(verdict, Verified) or seen.copied else verdict.evidence


def _unseen(
    base: AgentFacts, attempt: TurnAttemptStarted | None, generation: Generation, *, here: bool
) -> AgentFacts:
    """Its folder is not here. Its guard or shim may live on without it, or in another one."""
    recorded = attempt.processes if here and attempt is not None and attempt.boot_id == boot_id() else []
    living = [p.pid for p in recorded if is_alive(p.pid, p.start_ticks)]
    moved = attempt is not None and Path(attempt.folder) != generation.folder.path
    note = f"it ran in {attempt.folder}" if moved and attempt is not None else "its folder is gone"
    note += f", process {living[0]} lives" if living else ""
    return AgentFacts(
        loop=base.loop,
        known=base.known,
        kind=base.kind,
        many_turns=base.many_turns,
        on_interrupt=base.on_interrupt,
        generation=generation.name,
        landing="unknown",
        gone=here and not living,
        note=note if here else "it ran on another machine",
    )


async def _spool_terminal(
    hosting: Hosting, agent: Agent, loop: Loop, generation: Generation, turn: OpenTurn
) -> tuple[TurnEnded | None, str]:
    """The agent's own end of the turn as the spool holds it, and what could not be read."""
    host = AgentHost.dead(hosting, agent, loop, generation, turn.reserved)
    try:
        more = True
        while more:
            bite, more = host.read()
            for located in bite:
                event = located.event
                if isinstance(event, TurnEnded) and event.turn == turn.turn and not located.by_exit:
                    return event, ""
            await asyncio.sleep(0)
    except SpoolLost as lost:
        return None, str(lost)
    return None, ""


async def _took_in(
    hosting: Hosting, agent: Agent, loop: Loop, generation: Generation, turn: OpenTurn
) -> bool:
    """Whether the spool shows that the agent had begun to work on the turn's prompt, or has lost what would
    show it."""
    reserved, folded = turn.reserved, loop.folded
    if reserved is None:
        return False
    if folded is not None and folded.generation == generation.name and folded.last_input >= reserved.seq:
        return True  # A state is stored in a turn only after much output.
    unread = msgspec.structs.replace(loop, cursor=None)
    host = AgentHost.dead(hosting, agent, unread, generation, reserved)
    try:
        more = True
        while more:
            bite, more = host.read()
            for located in bite:
                if isinstance(located.event, _OF_WORK) and located.cursor.last_input >= reserved.seq:
                    return True
            await asyncio.sleep(0)
    except SpoolLost:
        return True
    return False


def _outcome(end: TurnEnded) -> str:
    if end.cancelled:
        return "cancelled"
    return "done" if end.failure is None else "failed"


def wake_agents(state: State, hosting: Hosting) -> None:
    """Continue shims and guards that somebody has stopped, so that they can end their agents."""
    for loop in state.loops:
        latest = hosting.folder(loop).latest()
        if latest is not None:
            wake(latest)


async def fence_agents(state: State, claim: Claim, hosting: Hosting) -> None:
    """Raise every agent folder's floor to our epoch: from here on no earlier owner starts or feeds an agent.

    Raises BelowFloorError, ForeignFolderError, FolderLockHeldError (its holder takes nobody in),
    ShimSilentError, OSError.
    """
    for loop in state.loops.values():
        folder = hosting.folder(loop.loop)
        if folder.path.is_dir():
            await _fence(folder, claim)


async def _fence(folder: AgentFolder, claim: Claim) -> None:
    """Whoever holds the folder may just be coming or going: it is asked, or waited for, until the floor is
    raised. Nothing goes on without it."""
    deadline = monotonic() + launch.PATIENCE
    while True:
        try:
            raise_floor(folder, claim)
        except FolderLockHeldError:
            if await _fenced_by_its_shim(folder, claim):
                return
            if monotonic() > deadline:
                raise
        else:
            return
        await asyncio.sleep(launch.POLL)


async def _fenced_by_its_shim(folder: AgentFolder, claim: Claim) -> bool:
    latest = folder.latest()
    if latest is None:
        return False
    try:
        client = await ShimClient.connect(latest)
        try:
            await client.fence(claim)
        finally:
            await client.close()
    except ShimGoneError:
        return False  # It ended between the two looks, or takes nobody in now.
    return True
