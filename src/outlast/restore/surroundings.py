"""What a restore uses of the process around it; and the look around that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outlast.errors import OutlastError
from outlast.journal import load
from outlast.keep import Claim
from outlast.restore.own_sessions import Stored, with_sessions
from outlast.restore.plan import RestorePlan, plan
from outlast.restore.probe import Resolve, probe_facts
from outlast.state.model import State
from outlast.store import refusals
from outlast.store.contract import Store
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
    facts = await with_sessions(facts, Stored(around.store, state), hosting, around.resolve)
    return plan(state, replace(facts, verified_from=loaded.verified_from))


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
