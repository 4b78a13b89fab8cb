"""Cutting a damaged journal back to where it is good, when a person asks for it.

What was told after the cut is not known any more: nothing that it left undecided runs again by itself. Open
turns and waiting inputs are parked for a person to retry or skip; requests whose record went are closed as
lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from outlast.errors import IntegrityError, InvalidRecordError, UnsupportedRecordError
from outlast.journal import Journal, Loaded
from outlast.journal.integrity import Fault, Look, Verified, verify
from outlast.keep import Claim
from outlast.records.envelope import Draft
from outlast.records.types import (
    Body,
    CommandSettled,
    Fence,
    GateResolved,
    InputAccepted,
    InputCancelled,
    JournalRepaired,
    TurnParked,
    TurnStarted,
)
from outlast.restore.anew import Anew, Begun, begin_anew
from outlast.state.catalog import catalog_entry
from outlast.state.model import State
from outlast.store.contract import AcquireOptions, Cut, Entry, Lease, Mendable, Settlement, Store
from outlast.turns import launch
from outlast.turns.hosting import agent_folder
from outlast.turns.requests import InputRequest, decode


async def relist(store: Mendable) -> list[str]:
    """Make missing rows of the list anew, from journals and inboxes. Gives the sessions of whose journal not
    even the beginning is left."""
    left = await store.mending.emptied()
    for session in await store.mending.unlisted():
        found = await verify(store, session, _LOOK)
        opening = next((entry.opening for entry in await store.pending(session) if entry.opening), None)
        entry = catalog_entry(found.state) if found.state.lineage else opening
        if entry is None:
            left.append(session)
        else:
            await store.mending.relist(entry)
    return left


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair has done. Records 1 to `kept` are as they were."""

    session: str
    fault: Fault
    kept: int
    lost_to: int
    """The last record that is known to have been stored."""
    quarantine: str
    """Name of the folder in the store's quarantine."""
    parked: tuple[str, ...]
    """Turns that wait for a person: whether they were carried out is not known."""
    lost: tuple[str, ...]
    """Requests whose record went."""


async def repair(store: Mendable, session: str, anew: Anew | None = None) -> Repaired | None:
    """End the journal before its first fault, under a lease of its own; None where there is nothing to mend.
    With `anew` also where nothing before the fault makes a session: it is begun again then.

    Raises LeaseHeldError while somebody owns the session, UnsupportedRecordError where a newer outlast wrote,
    IntegrityError where nothing before the fault makes a session or the database's own pages are damaged,
    KeepError where an agent cannot be ended, and StoreErrors. With `anew` also StoreBusyError while an agent
    lives that may be the session's, and what `anew` raises. Nothing was cut then.
    """
    if _mendable(await look(store, session), anew) is None:
        return None
    await store.mending.require_sound()
    lease = await store.acquire(session, AcquireOptions(damaged=True))
    try:
        found = await look(store, session)
        fault = _mendable(found, anew)
        return None if fault is None else await _cut(store, lease, found, await _begun(store, found, anew))
    finally:
        await lease.release()


_LOOK = Look(bodies="outline")
"""A body that nothing is folded from is no reason to cut: the session goes on without it."""


async def look(store: Store, session: str, how: Look = _LOOK) -> Verified:
    """As `verify`; where nothing is left of the journal of a session that had begun, that is its fault."""
    # In this order: the input that opens a session goes with its first records.
    pending = await store.pending(session)
    row = await store.listed(session)
    found = await verify(store, session, how)
    known = row is not None or pending
    if found.seq == 0 and found.fault is None and known and not any(e.opening_body for e in pending):
        found.lose(0 if row is None else row.entry.seq)
    return found


async def _begun(store: Mendable, found: Verified, anew: Anew | None) -> Begun:
    """Where the journal goes on: after its last good record, or anew."""
    if found.state.root is not None or anew is None:
        return Begun(found.state)
    return await begin_anew(store, found, anew)


def _mendable(found: Verified, anew: Anew | None) -> Fault | None:
    fault = found.fault
    if fault is None:
        return None
    if found.newer is not None:
        raise UnsupportedRecordError(
            f"{found.newer.message}: only that one can mend what comes after it",
            hint="use the newer outlast",
            session_id=found.session,
        )
    if found.state.root is None and anew is None:
        again = f"`outlast repair {quote(found.session)} --anew` begins it again without its history"
        raise IntegrityError(
            f"{fault.message}: nothing before it makes a session",
            seq=fault.seq,
            reason=fault.reason,
            hint=f"put a backup back: what is left stays as it is until then; or {again}",
            session_id=found.session,
        )
    return fault


async def _cut(store: Mendable, lease: Lease, found: Verified, begun: Begun) -> Repaired:
    fault, state, keep = found.fault, begun.state, begun.state.seq
    assert fault is not None  # the caller has looked
    await _end_agents(store, state, lease)
    pending = await store.pending(found.session) if fault.kind == "shorter" else []
    beyond = await store.mending.beyond(found.session, keep)
    lost = beyond.settled
    last = max(fault.noted, beyond.last, found.seq)
    told = JournalRepaired(
        cut_seq=keep + 1,
        lost_to=last,
        kind=fault.kind,
        reason=fault.reason,
        quarantine=store.mending.quarantine_name(lease),
    )
    chosen = Closing(state, told.cut_seq, begun.loop)
    fence = Fence(epoch=lease.epoch, holder=store.label, previous_epoch=state.epoch)
    drafts = [Draft(body=fence), *begun.first, Draft(body=told), *chosen.drafts(lost, pending)]
    journal = Journal(store, lease, Loaded(state))
    batch = await journal.prepare(drafts, chosen.settle(drafts, pending))
    settled = {_request(draft.body): record.seq for draft, record in zip(drafts, batch.records, strict=True)}
    cut = Cut(
        keep=keep,
        append=batch.append,
        last=last,
        reason=fault.reason,
        lost=tuple(Settlement(request, settled[request]) for request in lost),
    )
    await store.mending.quarantine(cut)
    await store.mending.cut(cut)
    return Repaired(
        session=found.session,
        fault=fault,
        kept=keep,
        lost_to=last,
        quarantine=told.quarantine,
        parked=tuple(chosen.parked),
        lost=tuple(lost),
    )


def _request(body: Body) -> str | None:
    return body.request_id if isinstance(body, InputCancelled | CommandSettled | InputAccepted) else None


class Closing:
    """The records that close what a cut leaves undecided (pure)."""

    def __init__(self, state: State, cut_seq: int, loop: str | None = None) -> None:
        """`loop`: of a session that is begun anew."""
        self.parked: list[str] = []
        self._state = state
        self._loop = state.root or loop
        self._turns = 0 if state.root is None else state.loops[state.root].turns
        self._unknown = f"the journal was cut at record {cut_seq}: whether it was carried out is not known"

    def drafts(self, lost: Sequence[str], pending: Sequence[Entry]) -> list[Draft]:
        """`lost`: requests whose record went. `pending`: the inbox, where it may be older than the journal
        was: then what waits there may have been taken, and carried out, before."""
        state = self._state
        drafts = []
        for gate in state.gates.values():
            body = GateResolved(gate=gate.gate, reason="abandoned", by="repair")
            drafts.append(Draft(body=body, loop=gate.loop, turn=gate.turn))
        # One that was to join a turn is decided before that turn is closed.
        waiting = sorted(state.queue.values(), key=lambda entry: entry.reserved is None)
        steered = [entry for entry in waiting if entry.reserved is not None]
        for entry in steered:
            drafts += self._turn(entry.request_id, entry.index)
        for turn in state.open_turns.values():
            drafts.append(self._park(turn.turn))
        for entry in waiting[len(steered) :]:
            drafts += self._turn(entry.request_id, entry.index)
        for request in lost:
            gone = InputCancelled(request_id=request, reason="lost")
            drafts.append(Draft(body=gone, loop=self._loop, cause=request))
        for item in pending:
            drafts += self._pending(item)
        return drafts

    def settle(self, drafts: Sequence[Draft], pending: Sequence[Entry]) -> list[tuple[str, int]]:
        """The inbox entries, each with the draft that settles it."""
        waiting = {entry.request_id for entry in pending}
        return [
            (request, index)
            for index, draft in enumerate(drafts)
            if isinstance(draft.body, InputAccepted | CommandSettled)
            and (request := draft.body.request_id) in waiting
        ]

    def _pending(self, entry: Entry) -> Iterator[Draft]:
        detail = self._unknown
        if entry.kind == "input":
            try:
                request = decode(InputRequest, entry.body)
            except InvalidRecordError as error:
                detail = error.message
            else:
                accepted = InputAccepted(
                    request_id=entry.request_id, content=request.content, on_interrupt=request.on_interrupt
                )
                yield Draft(body=accepted, loop=self._loop, cause=entry.request_id, actor=entry.actor)
                yield from self._turn(entry.request_id, None)
                return
        settled = CommandSettled(
            request_id=entry.request_id, command=entry.kind, outcome="refused", detail=detail
        )
        yield Draft(body=settled, loop=self._loop, cause=entry.request_id, actor=entry.actor)

    def _turn(self, request: str, index: int | None) -> Iterator[Draft]:
        """An input of unknown fate, told as a turn."""
        if index is None:
            self._turns = index = self._turns + 1
        started = TurnStarted(index=index, request_id=request)
        yield Draft(body=started, loop=self._loop, turn=request, cause=request)
        yield self._park(request)

    def _park(self, turn: str) -> Draft:
        self.parked.append(turn)
        open_turn = self._state.open_turns.get(turn)
        loop = self._loop if open_turn is None else open_turn.loop
        return Draft(body=TurnParked(reason="held", detail=self._unknown), loop=loop, turn=turn)


async def _end_agents(store: Mendable, state: State, lease: Lease) -> None:
    """No agent of the session lives after this, also none that only the lost records knew."""
    claim = Claim(store.store_id, state.lineage, lease.epoch, store.incarnation)
    for loop in state.loops.values():
        folder = agent_folder(store.folder / "agents", store.store_id, state.session, loop.loop)
        await launch.end_living(folder, claim)
