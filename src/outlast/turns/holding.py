"""Inputs that nobody may carry out before a person has decided (pure). Those of a store that was put back
become turns that are parked; those of a held queue stay in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from outlast.records.envelope import Draft
from outlast.records.types import InputAccepted, TurnParked, TurnStarted
from outlast.state.model import Loop, State
from outlast.turns.lost import HELD, held_by_loss, waits_for_choice
from outlast.turns.requests import HoldRequest


def held_because(state: State, turn: str) -> str | None:
    """Why an input that waits is begun only when a person lets the queue go on; None where it does not wait
    for that. A queue that waits for the answer to a question is not held: the question is told."""
    if turn not in state.queue:
        return None
    if state.stopped is not None:
        return "the session was closed before it began"
    loop = state.loops[state.root or ""]
    if not loop.held or waits_for_choice(state, loop.loop):
        return None
    others = len(state.queue) - 1
    beside = f" ({others} more wait)" if others > 1 else " (one more waits)" if others else ""
    lost = f": {HELD}" if held_by_loss(state, loop.loop) else ""
    return f"the queue is held{lost}{beside}"


def held_inputs(
    state: State, accepted: Collection[Draft], request: HoldRequest, actor: str | None
) -> list[Draft]:
    """The records that park those of `request.inputs` that wait, in their order. `accepted` are the records
    of the same batch that accept what was in the inbox."""
    root = state.loops[state.root or ""]
    wanted = frozenset(request.inputs)
    drafts: list[Draft] = []
    for turn in state.open_turns.values():
        if turn.turn in wanted and turn.loop == root.loop:
            drafts.append(_draft(root, turn.turn, TurnParked(reason="held", detail=request.reason), actor))
    newest = root.turns
    for name, index in _waiting(state, accepted):
        if name not in wanted:
            continue
        newest += 1 if index is None else 0
        started = TurnStarted(
            index=newest if index is None else index, request_id=name, settings={"agent": root.agent}
        )
        parked = TurnParked(reason="held", detail=request.reason)
        drafts += (_draft(root, name, body, actor) for body in (started, parked))
    return drafts


def _waiting(state: State, accepted: Collection[Draft]) -> Iterator[tuple[str, int | None]]:
    """Inputs of the queue, each with its turn's index where it has one."""
    for queued in state.queue.values():
        if queued.reserved is None:
            yield queued.request_id, queued.index
    for draft in accepted:
        if isinstance(draft.body, InputAccepted):
            yield draft.body.request_id, None


def _draft(loop: Loop, turn: str, body: TurnStarted | TurnParked, actor: str | None) -> Draft:
    return Draft(body=body, loop=loop.loop, turn=turn, cause=turn, actor=actor)
