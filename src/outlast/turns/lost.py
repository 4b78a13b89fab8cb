"""A provider's session that cannot be resumed: what is told of it, and the choice that it leaves (pure)."""

from __future__ import annotations

from typing import Literal

from outlast.agents.contract import Failure
from outlast.agents.failure import KEPT_ELSEWHERE
from outlast.ids import derived_id
from outlast.journal import Proposal
from outlast.records.agent_state import BY_ON_LOST, BY_UNCONFIRMED, AgentSessionDecided, LostChoice
from outlast.records.envelope import Draft
from outlast.records.types import (
    AgentSessionChanged,
    Body,
    Choice,
    GateOpened,
    LoopChanged,
    ReceiptError,
    TurnFailed,
    TurnParked,
)
from outlast.state.choices import about_lost
from outlast.state.model import Loop, OpenTurn, State
from outlast.turns.returning import returned

OnLost = Literal["ask", "refuse", "fresh", "reseed"]
CODES = frozenset({"session_missing", "session_corrupt"})
HELD = "the agent's session is lost"
"""Why the loop is held: what comes next would only be lost in the same way."""
UNREADABLE = "it cannot be read"
"""What is wrong with a session's file of which nothing can be read: nothing resumes that as it is."""
REASON_LIMIT = 1_000
"""Characters of why a provider's session is lost."""

_LABELS: dict[LostChoice, str] = {
    "put_back": "Put back what was captured of it ({through}), and resume that",
    "as_is": "Resume it as it is there",
    "reseed": "Begin a new agent session that is told what happened so far",
    "fresh": "Begin a new agent session that knows nothing of this one",
}
_ALWAYS: tuple[LostChoice, ...] = ("reseed", "fresh")


def is_lost(failure: Failure | None) -> bool:
    """Whether a turn failed because the provider's session is not what it should be."""
    return failure is not None and failure.code in CODES


def by_itself(loop: Loop, turn: OpenTurn | None, on_lost: OnLost) -> AgentSessionDecided | None:
    """What becomes of it without a person, once for `turn` under one owner: by the agent's `on_lost`; what
    the agent never acknowledged had nothing in it that a new session is not told. None: a turn that is yet
    to begin."""
    session = loop.provider_session
    if session is None or loop.decided is not None or (turn and turn.begun_anew == turn.epoch):
        return None
    if not loop.confirmed:
        return AgentSessionDecided(provider_session=session, choice="reseed", by=BY_UNCONFIRMED)
    if on_lost in ("fresh", "reseed"):
        return AgentSessionDecided(provider_session=session, choice=on_lost, by=BY_ON_LOST)
    return None


def back_to_its_place(state: State, turn: str) -> list[Draft]:
    """Where the input of the open `turn` was named for an agent that could not begin, and so was not given
    it: the records that put it back. What is named for one agent life is given to no other."""
    if state.open_turns[turn].reserved is None:
        return []
    return returned(state, turn, "its agent could not begin, and was not given it")


def with_loss(state: State, turn_id: str, closing: Proposal, on_lost: OnLost) -> Proposal:
    """The records that close a turn; where it failed of its agent's lost session, what is told of that."""
    turn = state.open_turns[turn_id]
    drafts = list(closing.drafts)
    place = next((i for i, draft in enumerate(drafts) if isinstance(draft.body, TurnFailed)), None)
    if place is None or closing.settle or state.loops[turn.loop].provider_session is None:
        return closing
    failed = drafts[place].body
    assert isinstance(failed, TurnFailed)
    if failed.receipt.error.code not in CODES:
        return closing
    before, after = _told(state, turn, failed.receipt.error, on_lost)
    inserted = [Draft(body=body, loop=turn.loop, turn=turn.turn) for body in before]
    appended = [Draft(body=body, loop=turn.loop, turn=turn.turn) for body in after]
    rest = [draft for draft in drafts[place + 1 :] if not after or not isinstance(draft.body, LoopChanged)]
    return Proposal((*drafts[:place], *inserted, drafts[place], *appended, *rest))


def _told(
    state: State, turn: OpenTurn, error: ReceiptError, on_lost: OnLost
) -> tuple[list[Body], list[Body]]:
    """What stands before the failed turn's terminal, and what after it."""
    loop = state.loops[turn.loop]
    why = error.message[:REASON_LIMIT]
    before: list[Body] = []
    if loop.provider_state != "lost":
        before.append(
            AgentSessionChanged(
                provider=loop.provider or loop.agent_kind,
                provider_session=loop.provider_session or "",
                state="lost",
                source="observed",
                reason=why,
            )
        )
    chosen = by_itself(loop, turn, on_lost)
    if chosen is not None:
        return [*before, chosen], []
    held = LoopChanged(state="held", reason=HELD)
    if on_lost == "refuse" or waits_for_choice(state, turn.loop):
        return before, [held]
    parked = TurnParked(reason="held", detail=f"{HELD}: {why}")
    return before, [parked, question(loop, turn, error), held]


def decision(state: State, loop: str, choice: LostChoice, actor: str | None) -> list[Body]:
    """The record of a person's choice; nothing where the agent has no session of its own to choose about."""
    session = state.loops[loop].provider_session
    if session is None:
        return []
    return [AgentSessionDecided(provider_session=session, choice=choice, by=actor or "a person")]


def waits_for_choice(state: State, loop: str) -> bool:
    """Whether a person is asked what is to be done about the loop's provider session: its queue waits."""
    return any(gate.loop == loop and about_lost(gate.choices) for gate in state.gates.values())


def held_by_loss(state: State, loop: str) -> bool:
    """Whether the queue waits until a person has chosen what becomes of the loop's provider session, asked
    (`on_lost = ask`) or not (`refuse`, or a question that was answered so): neither a new input nor a resume
    lets it go on, because each input would be used up by the same failure."""
    if waits_for_choice(state, loop):
        return True
    one = state.loops[loop]
    if not one.held or one.provider_state != "lost" or one.decided is not None:
        return False
    newest = state.last_unsuccessful.get(loop)
    if newest is not None and newest.outcome == "failed" and newest.reason in CODES:
        return True
    parked = (closed for closed in state.parked.values() if closed.loop == loop)
    return any(closed.code in CODES and closed.seq > one.lost_at for closed in parked)


def ways_on(loop: Loop, code: str, why: str) -> list[LostChoice]:
    """How a person can go on with a session that is lost by `code`, and `why`; or leave it."""
    choices: list[LostChoice] = list(_ALWAYS)
    if KEPT_ELSEWHERE in why:
        return choices  # Whatever becomes of the file here, the program goes by another one.
    if _is_of(loop):
        choices.insert(0, "put_back")
    if code == "session_corrupt" and f": {UNREADABLE}: " not in why:
        choices.insert(1 if _is_of(loop) else 0, "as_is")
    return choices


def question(loop: Loop, turn: OpenTurn, failure: ReceiptError) -> GateOpened:
    """What a person is asked."""
    captured = loop.captured if _is_of(loop) else None
    choices = ways_on(loop, failure.code, failure.message)
    through = "as it was then"
    if captured is not None and captured.through_turn is not None:
        through = f"through turn {captured.through_turn}"
    options = [Choice(id=name, label=_LABELS[name].format(through=through)) for name in choices]
    options.append(Choice(id="refuse", label="Leave it: the turn stays parked and the queue held"))
    return GateOpened(
        gate=derived_id("lost", turn.turn, turn.attempts, turn.seq),
        kind="question",
        question=f"The agent's own session is lost: {failure.message[:REASON_LIMIT].rstrip('.')}. What now?",
        choices=options,
        resolver="runtime",
        requested_by="outlast",
    )


def _is_of(loop: Loop) -> bool:
    return loop.captured is not None and loop.captured.provider_session == loop.provider_session
