"""Restoring a session: phases as data, each with its undo, run by one loop.

A start takes the same road: the journal is empty, so the plan is, and the first batch says that the session
begins. A new capability is a new fact, a new plan item and a new phase in the table below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from outlast import faults
from outlast.agents.absent import AbsentAgent
from outlast.agents.contract import Agent
from outlast.clock import monotonic
from outlast.errors import (
    AgentNotFoundError,
    ConfigError,
    OutlastError,
    RestoreDiscoveryError,
)
from outlast.ids import new_id
from outlast.journal import Journal
from outlast.keep import Claim, KeepError, NoRoomError, ShimGoneError, ShimSilentError
from outlast.records.envelope import Draft
from outlast.records.types import Fence, RestoreDone, RestoreErrored, RestoreStarted
from outlast.restore.facts import Facts
from outlast.restore.failing import as_restore_error, require_effects
from outlast.restore.plan import RestorePlan, plan
from outlast.restore.probe import fence_agents, generation_of, probe_facts, wake_agents
from outlast.restore.repairs import (
    closing_gates,
    end_asked_for,
    quick_repairs,
    slow_ending,
    stop_asked_for,
    stops_among,
)
from outlast.restore.start import first_records
from outlast.restore.surroundings import Surroundings, hosting_for, unopenable
from outlast.state.model import Loop, State
from outlast.store.contract import AcquireOptions, Lease
from outlast.turns import launch
from outlast.turns.driver import LoopDriver
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.report import report

FAREWELL = 2.0
"""Seconds for RestoreErrored to be appended before ownership is given up."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """`wait` seconds for a living owner; `take_over` ends it. `resume_queue`: a person asked, so a queue
    that a cancel held goes on. `ends_agent`: a person wants the agent ended. `begins`: turns are to be begun;
    without that an agent is ended also where its adapter is not here."""

    session: str
    wait: float = 0.0
    take_over: bool = False
    resume_queue: bool = False
    ends_agent: bool = False
    begins: bool = True


@dataclass(frozen=True, slots=True)
class Restored:
    """A live session's parts. `attached` is the turn that goes on with a living agent."""

    journal: Journal
    driver: LoopDriver
    plan: RestorePlan
    attached: str | None
    stops: frozenset[str] = frozenset()
    """Requests to stop that had waited for an owner before this one came."""


@dataclass(slots=True)
class Restoring:
    """What the phases have found and made so far."""

    around: Surroundings
    request: RestoreRequest
    begun: float
    lease: Lease | None = None
    journal: Journal | None = None
    hosting: Hosting | None = None
    facts: Facts | None = None
    plan: RestorePlan | None = None
    driver: LoopDriver | None = None
    attached: str | None = None
    stops: frozenset[str] = frozenset()
    actions: list[str] = field(default_factory=list)

    @property
    def state(self) -> State:
        return _there(self.journal).state


T = TypeVar("T")
Step = Callable[[Restoring], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Phase:
    """`kind` is the RestoreError's when `run` fails; `undo` takes back what `run` made."""

    name: str
    kind: str
    run: Step
    undo: Step | None = None


def _there(value: T | None) -> T:
    """What an earlier phase made."""
    if value is None:
        raise RuntimeError("a phase ran before the one that it needs")
    return value


# --- the phases ----------------------------------------------------------------------------------


async def _acquire(now: Restoring) -> None:
    options = AcquireOptions(wait=now.request.wait, take_over=now.request.take_over)
    faults.point("restore.acquire.before")
    now.lease = await now.around.store.acquire(now.request.session, options)
    faults.point("restore.acquire.after")


async def _release(now: Restoring) -> None:
    owned = now.journal or now.lease
    if owned is not None:
        await owned.release()


async def _read(now: Restoring) -> None:
    now.journal = await Journal.open(now.around.store, _there(now.lease))
    now.stops = stops_among(await now.around.store.pending(now.request.session))


async def _discover(now: Restoring) -> None:
    state = now.state
    if state.seq == 0:
        entries = await now.around.store.pending(now.request.session)
        if not any(entry.opening_body for entry in entries):
            raise await unopenable(now.around.store, now.request.session)
    elif not state.lineage:
        raise RestoreDiscoveryError(now.request.session, "SessionStarted")
    elif state.root is None:
        raise RestoreDiscoveryError(now.request.session, "root LoopStarted")


async def _probe(now: Restoring) -> None:
    faults.point("restore.probe.before")
    store, lease = now.around.store, _there(now.lease)
    state = now.state
    claim = Claim(store.store_id, state.lineage or new_id(), lease.epoch, store.incarnation)
    now.hosting = hosting_for(now.around, state, claim)
    if now.request.ends_agent or end_asked_for(await now.around.store.pending(now.request.session)):
        wake_agents(state, now.hosting)
    await fence_agents(state, claim, now.hosting)
    faults.point("restore.probe.fenced")
    now.facts = await _facts(now)
    faults.point("restore.probe.after")


async def _facts(now: Restoring) -> Facts:
    inbox = len(await now.around.store.pending(now.request.session))
    facts = await probe_facts(now.state, inbox, _there(now.hosting), now.around.resolve)
    return replace(facts, verified_from=_there(now.journal).verified_from)


async def _plan(now: Restoring) -> None:
    now.plan = plan(now.state, _there(now.facts))
    for loop in now.state.loops.values():
        # A person may look at a session whose agent is not here, or end it, but nobody can run it.
        _agent_of(now, loop)
    if now.request.begins:
        pending = await now.around.store.pending(now.request.session)
        require_effects(now.state, pending, now.around.effects)


def _agent_of(now: Restoring, loop: Loop) -> Agent:
    try:
        return now.around.resolve(loop.agent)
    except (AgentNotFoundError, ConfigError) as error:
        if now.request.begins:
            raise
        return AbsentAgent(loop.agent_kind, error)


async def _begin(now: Restoring) -> None:
    """One atomic batch at the tip that was planned for: fence, RestoreStarted, the repairs."""
    journal, lease = _there(now.journal), _there(now.lease)
    holder = now.around.store.label
    fence = Draft(body=Fence(epoch=lease.epoch, holder=holder, previous_epoch=now.state.epoch))
    if _there(now.plan).starts:
        entries = await now.around.store.pending(now.request.session)
        claim = _there(now.hosting).claim
        drafts = [fence, *first_records(entries, claim.lineage, now.around.resolve)]
    else:
        drafts = [fence, _started(now), *quick_repairs(now.state, _there(now.plan))]
    faults.point("restore.begin.before_append")
    await journal.append(drafts)
    now.actions += [f"{t.action} {t.turn}" for t in _there(now.plan).turns]
    faults.point("restore.begin.after_append")


def _started(now: Restoring) -> Draft:
    chosen = _there(now.plan)
    started = RestoreStarted(
        from_seq=chosen.tip,
        facts=list(chosen.facts),
        turns=list(chosen.turns),
        verified_from=chosen.verified_from,
    )
    return Draft(body=started)


async def _build(now: Restoring) -> None:
    """The loop's driver, the same for a start and a restore."""
    state = now.state
    root = state.loops[_there(state.root)]
    now.hosting = hosting_for(now.around, state, _there(now.hosting).claim)
    now.driver = LoopDriver(
        journal=_there(now.journal),
        agent=_agent_of(now, root),
        loop=root.loop,
        hosting=now.hosting,
        policy=now.around.policy,
        effects=now.around.effects,
        visits=not now.request.begins,
    )


async def _agents(now: Restoring) -> None:
    """Attach to what lives, settle from the spool what is dead, end what has nothing to do."""
    chosen, driver = _there(now.plan), _there(now.driver)
    for turn in chosen.turns:
        if turn.action == "attach" and isinstance(driver.agent, AbsentAgent):
            generation = generation_of(now.state.loops[turn.loop], _there(now.hosting))
            await driver.attach_unread(turn.turn, _there(generation).name)
        elif turn.action == "attach":
            await _attach_turn(now, turn.turn, driver)
        elif turn.action in ("settle", "interrupt"):
            await _close_from_spool(now, turn.turn, driver)
    for loop in chosen.loops:
        await _loop_agent(now, loop.loop, loop.action, driver)
    gates = closing_gates(now.state, chosen)
    if gates:
        faults.point("restore.gates.before_append")
        await _there(now.journal).append(gates)
        faults.point("restore.gates.after_append")


async def _attach_turn(now: Restoring, turn: str, driver: LoopDriver) -> None:
    host = await _living_agent(now, turn, driver)
    if host is None:
        await _settle_planned(now, driver)
        return
    await driver.attach(turn, host)
    now.attached = turn


async def _living_agent(now: Restoring, turn: str, driver: LoopDriver) -> AgentHost | None:
    """The agent that works on `turn`, attached to; None, with a new plan, if it died since the probe. One
    that is just ending answers no more and has not said yet how it ended: that is waited for."""
    loop = now.state.loops[driver.loop]
    generation = _there(generation_of(loop, _there(now.hosting)))
    reserved = now.state.open_turns[turn].reserved
    deadline = monotonic() + launch.PATIENCE
    while True:
        try:
            return await AgentHost.attach(_there(now.hosting), driver.agent, loop, generation, reserved)
        except KeepError as error:
            now.facts = await _facts(now)
            now.plan = plan(now.state, now.facts)
            if not any(t.action == "attach" for t in now.plan.turns):
                return None
            if not isinstance(error, ShimGoneError) or monotonic() > deadline:
                raise
        await asyncio.sleep(launch.POLL)


async def _settle_planned(now: Restoring, driver: LoopDriver) -> None:
    repairs = quick_repairs(now.state, _there(now.plan))
    if repairs:
        faults.point("restore.repairs.before_append")
        await _there(now.journal).append(repairs)
        faults.point("restore.repairs.after_append")
    for planned in _there(now.plan).turns:
        if planned.action in ("settle", "interrupt"):
            await _close_from_spool(now, planned.turn, driver)


async def _close_from_spool(now: Restoring, turn: str, driver: LoopDriver) -> None:
    if turn not in now.state.open_turns:
        return
    planned = next(t for t in _there(now.plan).turns if t.turn == turn)
    facts = _there(now.facts).agents[planned.loop]
    loop = now.state.loops[planned.loop]
    generation = generation_of(loop, _there(now.hosting))
    entries = await now.around.store.pending(now.request.session)
    ending = slow_ending(planned, facts, stop_asked_for(entries, turn))
    if generation is None or not facts.found or not facts.readable:
        await driver.close_turn(turn, ending)
        return
    reserved = now.state.open_turns[turn].reserved
    host = AgentHost.dead(_there(now.hosting), driver.agent, loop, generation, reserved)
    await driver.settle(turn, host, ending, whole=not facts.elsewhere)


async def _loop_agent(now: Restoring, loop_id: str, action: str, driver: LoopDriver) -> None:
    loop = now.state.loops[loop_id]
    generation = generation_of(loop, _there(now.hosting))
    if generation is None or driver.host is not None:
        return
    if isinstance(driver.agent, AbsentAgent):
        await driver.end_agent(0.0)
        return
    try:
        host = await AgentHost.attach(_there(now.hosting), driver.agent, loop, generation)
    except (NoRoomError, ShimSilentError):
        raise
    except KeepError:
        return  # It ended by itself.
    if action == "attach":
        await driver.adopt(host)
    else:
        await host.end(0.0)


async def _leave_agents(now: Restoring) -> None:
    if now.driver is not None:
        await now.driver.detach()


async def _done(now: Restoring) -> None:
    if not _there(now.plan).starts:
        took = int((monotonic() - now.begun) * 1000)
        faults.point("restore.done.before_append")
        await _there(now.journal).append([Draft(body=RestoreDone(took_ms=took, actions=now.actions))])
        faults.point("restore.done.after_append")


PHASES: tuple[Phase, ...] = (
    Phase("acquire", "lease", _acquire, _release),
    Phase("read", "replay", _read),
    Phase("discover", "replay", _discover),
    Phase("probe", "probe", _probe),
    Phase("plan", "loop", _plan),
    Phase("begin", "append", _begin),
    Phase("build", "loop", _build),
    Phase("agents", "agent", _agents, _leave_agents),
    Phase("done", "append", _done),
)


# --- the loop ------------------------------------------------------------------------------------


async def restore(around: Surroundings, request: RestoreRequest) -> Restored:
    """Run the phases; on a failure undo them in reverse and raise RestoreError (SessionNotFoundError,
    IntegrityError, UnsupportedRecordError and StoreBehindError as they are)."""
    now = Restoring(around, request, monotonic())
    passed: list[Phase] = []
    for phase in PHASES:
        passed.append(phase)
        try:
            await phase.run(now)
        except asyncio.CancelledError:
            await _roll_back(now, passed, "cancelled", f"cancelled in phase {phase.name}")
            raise
        except Exception as error:
            await _roll_back(now, passed, phase.kind, f"{phase.name}: {type(error).__name__}")
            told = as_restore_error(error, phase.kind, phase.name, request.session)
            if told is error:  # an error that is its own cause would be followed for ever
                raise
            raise told from error
    return Restored(_there(now.journal), _there(now.driver), _there(now.plan), now.attached, now.stops)


async def _roll_back(now: Restoring, passed: list[Phase], kind: str, message: str) -> None:
    async def farewell(now: Restoring) -> None:
        journal, chosen = now.journal, now.plan
        if journal is None or chosen is None or chosen.starts:
            return
        if journal.state.epoch == journal.lease.epoch:  # its fence is stored, whoever heard of that
            await _farewell(journal, RestoreErrored(kind=kind, message=message))

    cancelled: asyncio.CancelledError | None = None
    for undo in (farewell, *(phase.undo for phase in reversed(passed))):
        # One that fails must not keep the lease, or an agent, from being let go.
        try:
            if undo is not None:
                await undo(now)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception as error:  # noqa: BLE001 - what the restore failed of is what its caller is told
            report("a restore that failed could not be taken back whole", error)
    if cancelled is not None:
        raise cancelled


async def _farewell(journal: Journal, errored: RestoreErrored) -> None:
    """Best effort: ownership is kept until it has drained."""
    try:
        async with asyncio.timeout(FAREWELL):
            faults.point("restore.errored.before_append")
            await journal.append([Draft(body=errored)])
            faults.point("restore.errored.after_append")
    except (OutlastError, TimeoutError):
        return
