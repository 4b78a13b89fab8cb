"""What the owner of a session makes of the inputs that wait in its inbox, and of a queue that was
held (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outlast.errors import InvalidRecordError
from outlast.journal import Proposal
from outlast.records.envelope import Draft
from outlast.records.types import Body, InputAccepted, InputCancelled, LoopChanged, SessionStopped
from outlast.state.model import State
from outlast.store.contract import Entry
from outlast.turns.lost import held_by_loss
from outlast.turns.requests import InputRequest, decode


def accepted(state: State, entries: Sequence[Entry], *, at_work: bool, steers: bool) -> Proposal:
    """The records that take these inputs, in their order: each is accepted, or it is said why it is not.
    `at_work`: a task is on the open turn. `steers`: the agent can be told more while it works."""
    drafts: list[Draft] = []
    settle: list[tuple[str, int]] = []
    root = state.root or ""
    held = state.loops[root].held and not held_by_loss(state, root)
    busy = at_work or bool(state.open_turns) or bool(state.queue)
    running = state.running if steers else None
    if running is not None and running.host_done is not None:
        running = None  # No agent is at work on it any more.
    for entry in entries:
        request = _readable(entry)
        settle.append((entry.request_id, len(drafts)))
        if request is None:
            damaged = InputCancelled(request_id=entry.request_id, reason="damaged")
            drafts.append(_draft(state, damaged, entry))
            continue
        if request.when_busy == "reject" and busy:
            rejected = InputCancelled(request_id=entry.request_id, reason="busy")
            drafts.append(_draft(state, rejected, entry))
            continue
        taken = InputAccepted(
            request_id=entry.request_id,
            content=request.content,
            on_interrupt=request.on_interrupt,
            joins=running.turn if running is not None and request.when_busy == "steer" else None,
        )
        drafts.append(_draft(state, taken, entry))
        busy = True
        if held:
            held = False
            drafts.append(_draft(state, LoopChanged(state="active", reason="a new input"), entry))
    return Proposal(tuple(drafts), tuple(settle))


def held_no_more(state: State) -> Iterator[Draft]:
    """The records by which the work goes on as a person wants it: a held queue is held no more, a closed
    session is open. One that waits for a choice about its agent's lost session goes on waiting for that."""
    stopped = state.stopped is not None
    for loop in state.loops.values():
        if not held_by_loss(state, loop.loop) and (loop.held or stopped):
            stopped = False
            yield Draft(body=LoopChanged(state="active", reason="resumed"), loop=loop.loop)


def closed(state: State, entry: Entry) -> Proposal:
    """The session is closed, as `entry` asks."""
    stopped = _draft(state, SessionStopped(reason="closed"), entry)
    return Proposal((stopped,), ((entry.request_id, 0),))


def _draft(state: State, body: Body, entry: Entry) -> Draft:
    return Draft(body=body, loop=state.root, cause=entry.request_id, actor=entry.actor)


def _readable(entry: Entry) -> InputRequest | None:
    """None for an entry that nobody can read: it is settled, or it would end every owner."""
    try:
        return decode(InputRequest, entry.body)
    except InvalidRecordError:
        return None
