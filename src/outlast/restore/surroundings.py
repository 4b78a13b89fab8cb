"""What a restore uses of the process around it; and the look around that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from outlast.agents.transcript import HoldsPrompts
from outlast.errors import AgentNotFoundError, ConfigError, OutlastError
from outlast.ids import new_id
from outlast.journal import load
from outlast.keep import Claim
from outlast.records.envelope import Draft
from outlast.records.types import LoopStarted
from outlast.restore.foreseen import Around, foresee
from outlast.restore.own_sessions import Stored, with_sessions
from outlast.restore.plan import RestorePlan, looked_ahead, plan
from outlast.restore.probe import Resolve, known_agent, probe_facts
from outlast.restore.start import first_records
from outlast.state.model import State
from outlast.store import refusals
from outlast.store.contract import Entry, Store
from outlast.turns.answers import given_before
from outlast.turns.deciding import GatePolicy
from outlast.turns.effects import Effects
from outlast.turns.hosting import Hosting


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a restore uses of the process around it."""

    store: Store
    resolve: Resolve
    policy: GatePolicy
    environ: Mapping[str, str]
    machine: str
    secret: bytes
    effects: Effects = field(default_factory=Effects)


async def look(around: Surroundings, session: str) -> RestorePlan:
    """The plan of a restore as things are: read-only, no lease, no floor raised."""
    loaded = await load(around.store, session)
    state = loaded.state
    pending = await around.store.pending(session)
    if state.seq == 0 and not any(entry.opening_body for entry in pending):
        raise await unopenable(around.store, session)
    claim = Claim(around.store.store_id, state.lineage, state.epoch, "")
    hosting = hosting_for(around, state, claim)
    facts = await probe_facts(state, len(pending), hosting, around.resolve)
    facts = replace(facts, verified_from=loaded.verified_from)
    after, ahead = foresee(state, facts, plan(state, facts), await _around(around, state, pending))
    # What the agent finds when it is started, once it was decided what becomes of its session.
    stored = Stored(around.store, after if state.root else state)
    seen = await with_sessions(facts, stored, hosting, around.resolve)
    return looked_ahead(plan(state, seen), after, seen, ahead)


async def _around(around: Surroundings, state: State, pending: Sequence[Entry]) -> Around:
    opening: tuple[Draft, ...] = ()
    if state.root is None:
        with suppress(AgentNotFoundError, ConfigError):
            opening = tuple(first_records(pending, new_id(), around.resolve))
        name = next((d.body.agent for d in opening if isinstance(d.body, LoopStarted)), "")
    else:
        name = state.loops[state.root].agent
    agent = known_agent(name, around.resolve)
    given = await given_before(around.store, state, pending)
    known = Around(effects=around.effects, opening=opening, pending=tuple(pending), given=given)
    if agent is None:
        return known
    return replace(
        known,
        steers=agent.capabilities.steer,
        holds_prompts=isinstance(agent, HoldsPrompts),
        after_failure=agent.after_failure,
        on_lost=agent.on_lost,
    )


async def unopenable(store: Store, session: str) -> OutlastError:
    """Why a session without a journal, and without an input that opens it, is none, or is no more."""
    known = await store.listed(session) is not None or await store.pending(session)
    return refusals.nothing_left(session) if known else refusals.no_session(session)


def hosting_for(around: Surroundings, state: State, claim: Claim) -> Hosting:
    """Where the session's agents run on this machine."""
    return Hosting(
        session=state.session,
        workspace=state.workspace,
        folders=around.store.folder / "agents",
        claim=claim,
        machine=around.machine,
        secret=around.secret,
        environ=around.environ,
        lasting=around.store.scope != "process",
    )
