"""What people have decided about turns and no owner has carried out yet: of two contrary words about one turn
the first counts (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outlast.errors import InvalidRecordError
from outlast.state.choices import LOST_CHOICES, chosen
from outlast.state.delays import delayed
from outlast.state.effect_rules import settleable
from outlast.state.model import State
from outlast.store.contract import Entry, EntryKind
from outlast.turns.reopening import of_parked, retryable
from outlast.turns.requests import AnswerRequest, Request, SettleRequest, TurnRequest, decode

_REQUESTS: Mapping[str, type[Request]] = {
    "retry": TurnRequest,
    "skip": TurnRequest,
    "settle": SettleRequest,
    "answer": AnswerRequest,
}


class Decision(NamedTuple):
    """What a person has decided about a turn."""

    turn: str
    word: str
    """As it is typed, with the effect's name: `retry --fresh`, `settle push --done`."""
    effect: str | None = None
    """The effect that it is about; None: the whole turn."""
    result: str | None = None
    request_id: str = ""
    by: str | None = None
    choice: str | None = None
    """Of an answer, the choice."""

    def same(self, other: Decision) -> bool:
        """Whether both say the same."""
        mine, theirs = (self.word, self.effect, self.result), (other.word, other.effect, other.result)
        return mine == theirs

    @property
    def told(self) -> str:
        """Whose word it was, and which."""
        return f"{self.word}{f' by {self.by}' if self.by else ''}"


def decision_of(state: State, kind: EntryKind, request: Request) -> Decision | None:
    """What the command decides about a turn; None where it is about none, or finds nothing to decide."""
    match request:
        case TurnRequest(turn=turn) if turn is not None and kind == "retry":
            found = retryable(state, turn) is not None or delayed(state, turn) is not None
            return Decision(turn, _again(request.session)) if found else None
        case TurnRequest(turn=turn) if turn is not None and kind == "skip":
            found = turn in state.parked or delayed(state, turn) is not None
            return Decision(turn, "skip") if found else None
        case SettleRequest(turn=turn):
            closed = settleable(state, turn)
            effect = None if closed is None else closed.effects.get(request.effect)
            if effect is None or effect.outcome == "done":
                return None
            said = "--done" if request.outcome == "done" else "--not-done"
            return Decision(turn, f"settle {effect.name} {said}", effect.effect, request.result)
        case AnswerRequest():
            gate = state.gates.get(request.gate)
            choice = None if gate is None else chosen(request.choice, gate.choices)
            if gate is None or gate.turn is None or choice is None or not of_parked(state, gate):
                return None
            word = _again(choice) if choice in LOST_CHOICES else choice
            return Decision(gate.turn, word, choice=choice)
        case _:
            return None


def _again(session: str | None) -> str:
    return "retry" if session is None else f"retry --{session.replace('_', '-')}"


def waiting_decisions(state: State, pending: Sequence[Entry], turn: str) -> list[Decision]:
    """Those about `turn` among `pending`, in their order."""
    found = []
    for entry in pending:
        if (kind := _REQUESTS.get(entry.kind)) is None:
            continue
        try:
            request = decode(kind, entry.body)
        except InvalidRecordError:
            continue  # Its owner refuses it.
        decision = decision_of(state, entry.kind, request)
        if decision is not None and decision.turn == turn:
            by = (request.by if isinstance(request, AnswerRequest) else None) or entry.actor
            found.append(decision._replace(request_id=entry.request_id, by=by))
    return found


def came_first(state: State, pending: Sequence[Entry], decision: Decision) -> Decision | None:
    """The first word among `pending` about what `decision` is about: words about two effects of a turn do not
    meet."""
    for earlier in waiting_decisions(state, pending, decision.turn):
        if None in (earlier.effect, decision.effect) or earlier.effect == decision.effect:
            return earlier
    return None
