"""The proof at the end: what was promised, counted in the effects file and in the journal. Pure.

Nothing here knows what the demo has printed, only what was asked, what lies in the file, what the journal
says and which processes are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from outlast.demo.effects import Effects
from outlast.records.envelope import Record
from outlast.records.types import (
    AgentSessionChanged,
    CallObserved,
    Fence,
    InputAccepted,
    InputCancelled,
    SessionStarted,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnStarted,
)

Fate = Literal["undisturbed", "agent killed", "runtime killed", "both killed"]


@dataclass(frozen=True, slots=True)
class Asked:
    """An input that was acknowledged: `turn` is its id, `steps` what it asks for, `fate` what it met with."""

    turn: str
    steps: int
    fate: Fate = "undisturbed"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is left when all is over."""

    session: str
    asked: tuple[Asked, ...]
    effects: Effects
    records: Sequence[Record]
    runtimes: int
    """How many runtimes were started."""
    refused: int
    """How many of them were refused, because another one owned the session."""
    left: tuple[str, ...] = ()
    """Processes that still live, each in words."""


@dataclass(frozen=True, slots=True)
class TurnCount:
    """One line of the table: steps asked for, done exactly once, done more than once."""

    turn: str
    ended: str
    asked: int
    once: int
    more: int
    missing: int
    """Steps that had to be done and were not: those of a done turn, and those that the journal saw end."""
    note: str


@dataclass(frozen=True, slots=True)
class Check:
    """Something of which there must be none. `detail` says what was counted."""

    name: str
    wrong: int
    detail: str


@dataclass(frozen=True, slots=True)
class Proof:
    turns: tuple[TurnCount, ...]
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        return not any(check.wrong for check in self.checks)


@dataclass(slots=True)
class _Turn:
    """What the journal says of one turn."""

    accepted: int = 0
    started: int = 0
    attempts: int = 0
    attached: int = 0
    endings: list[TurnDone | TurnFailed | TurnInterrupted | TurnParked | InputCancelled] = field(
        default_factory=list
    )
    calls: dict[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> str:
        if len(self.endings) != 1:
            return "ended twice" if self.endings else "open"
        return _NAMES[type(self.endings[0])]


_NAMES: Mapping[type, str] = {
    TurnDone: "done",
    TurnFailed: "failed",
    TurnInterrupted: "interrupted",
    TurnParked: "parked",
    InputCancelled: "cancelled",
}


def prove(evidence: Evidence) -> Proof:
    """Count everything."""
    told = _told(evidence.records)
    turns = tuple(_count(asked, told.get(asked.turn, _Turn()), evidence.effects) for asked in evidence.asked)
    checks = (
        _inputs_lost(evidence, told),
        _run_again(evidence, told),
        _effects_lost(turns, told),
        _effects_doubled(evidence, turns),
        _wrong_endings(evidence, told),
        _ids_changed(evidence, told),
        _second_owners(evidence),
        _processes_left(evidence, told),
    )
    return Proof(turns, checks)


def _told(records: Sequence[Record]) -> dict[str, _Turn]:
    told: dict[str, _Turn] = {}
    for record in records:
        body = record.body
        if isinstance(body, InputAccepted):
            told.setdefault(body.request_id, _Turn()).accepted += 1
        elif isinstance(body, InputCancelled):
            told.setdefault(body.request_id, _Turn()).endings.append(body)
        elif record.turn is not None:
            _tell(told.setdefault(record.turn, _Turn()), body)
    return told


def _tell(turn: _Turn, body: object) -> None:
    match body:
        case TurnStarted():
            turn.started += 1
        case TurnAttemptStarted():
            turn.attempts += 1
        case TurnAttached():
            turn.attached += 1
        case CallObserved(call=call, status=status):
            turn.calls[call] = status
        case TurnDone() | TurnFailed() | TurnInterrupted() | TurnParked():
            turn.endings.append(body)


def _count(asked: Asked, turn: _Turn, effects: Effects) -> TurnCount:
    counted = Counter(effect.step for effect in effects.of(asked.turn))
    once = sum(1 for step in range(1, asked.steps + 1) if counted[step] == 1)
    seen_to_end = {
        step for step in range(1, asked.steps + 1) if turn.calls.get(f"step-{step}") == "completed"
    }
    due = set(range(1, asked.steps + 1)) if turn.ended == "done" else seen_to_end
    return TurnCount(
        turn=asked.turn,
        ended=turn.ended,
        asked=asked.steps,
        once=once,
        more=sum(1 for count in counted.values() if count > 1),
        missing=sum(1 for step in due if not counted[step]),
        note=_note(asked, turn, effects),
    )


def _note(asked: Asked, turn: _Turn, effects: Effects) -> str:
    if turn.attached:
        agents = len({effect.agent for effect in effects.of(asked.turn)})
        return f"{turn.attached + 1} runtimes, {agents} agent process{'' if agents == 1 else 'es'}"
    cut = [call.replace("-", " ") for call, status in turn.calls.items() if status == "started"]
    if turn.ended in ("failed", "interrupted") and cut:
        return f"cut in {', '.join(cut)}, not rerun"
    return ""


# --- of each of these there must be none ------------------------------------------------------------


def _inputs_lost(evidence: Evidence, told: Mapping[str, _Turn]) -> Check:
    ended = [asked for asked in evidence.asked if _ended(told, asked)]
    count = len(evidence.asked)
    return Check("inputs lost", count - len(ended), f"{count} acknowledged, {len(ended)} came to an end")


def _ended(told: Mapping[str, _Turn], asked: Asked) -> bool:
    turn = told.get(asked.turn)
    return turn is not None and turn.accepted > 0 and len(turn.endings) > 0


def _run_again(evidence: Evidence, told: Mapping[str, _Turn]) -> Check:
    turns = [told.get(asked.turn, _Turn()) for asked in evidence.asked]
    again = sum(
        max(0, turn.accepted - 1) + max(0, turn.started - 1) + max(0, turn.attempts - 1) for turn in turns
    )
    attempts = sum(turn.attempts for turn in turns)
    return Check(
        "turns run twice", again, f"{len(turns)} turns were given to an agent, {attempts} times in all"
    )


def _effects_lost(turns: Sequence[TurnCount], told: Mapping[str, _Turn]) -> Check:
    done = [turn for turn in turns if turn.ended == "done"]
    due, there = sum(turn.asked for turn in done), sum(turn.asked - turn.missing for turn in done)
    return Check(
        "effects lost",
        sum(turn.missing for turn in turns),
        f"{there} of the {due} steps of the {len(done)} turns that are done",
    )


def _effects_doubled(evidence: Evidence, turns: Sequence[TurnCount]) -> Check:
    effects = evidence.effects
    wanted = {(asked.turn, step) for asked in evidence.asked for step in range(1, asked.steps + 1)}
    counted = Counter((effect.turn, effect.step) for effect in effects.done)
    doubled = sum(count - 1 for count in counted.values())
    unasked = len(effects.strange) + sum(1 for step in counted if step not in wanted)
    detail = f"{effects.lines} lines in the file, {len(counted)} different steps"
    if unasked:
        detail += f", {unasked} that nobody asked for"
    return Check("effects doubled", doubled + unasked, detail)


def _wrong_endings(evidence: Evidence, told: Mapping[str, _Turn]) -> Check:
    wrong = [
        asked.turn for asked in evidence.asked if not _AS_IT_MUST[asked.fate](told.get(asked.turn, _Turn()))
    ]
    ends = [
        f"{asked.fate}, {told.get(asked.turn, _Turn()).ended}"
        for asked in evidence.asked
        if asked.fate != "undisturbed" or asked.turn in wrong
    ]
    return Check("wrong endings", len(wrong), "; ".join(ends))


def _crashed(turn: _Turn) -> bool:
    match turn.endings:
        case [TurnFailed(receipt=receipt)]:
            return (receipt.failed_phase, receipt.error.code, receipt.error.signal) == (
                "host_execute",
                "crashed",
                9,
            )
    return False


def _interrupted(turn: _Turn) -> bool:
    match turn.endings:
        case [TurnInterrupted(reason="crash", evidence=evidence)]:
            return bool(evidence)
    return False


def _done(turn: _Turn) -> bool:
    return len(turn.endings) == 1 and isinstance(turn.endings[0], TurnDone)


_AS_IT_MUST: Mapping[Fate, Callable[[_Turn], bool]] = {
    "undisturbed": _done,
    "agent killed": _crashed,
    "runtime killed": lambda turn: _done(turn) and turn.attached == 1,
    "both killed": _interrupted,
}


def _ids_changed(evidence: Evidence, told: Mapping[str, _Turn]) -> Check:
    bodies = [record.body for record in evidence.records]
    sessions = sum(1 for body in bodies if isinstance(body, SessionStarted))
    given = [asked.turn for asked in evidence.asked]
    begun = [record.turn for record in evidence.records if isinstance(record.body, TurnStarted)]
    moved = sum(1 for turn in given if turn not in begun) + sum(1 for turn in begun if turn not in given)
    agents = {body.provider_session for body in bodies if isinstance(body, AgentSessionChanged)}
    detail = f"session {evidence.session}, {len(given)} turn ids, {len(agents)} session of the agent's own"
    return Check("ids changed", abs(sessions - 1) + moved + max(0, len(agents) - 1), detail)


def _second_owners(evidence: Evidence) -> Check:
    epochs = [record.body.epoch for record in evidence.records if isinstance(record.body, Fence)]
    owners = evidence.runtimes - evidence.refused
    back = sum(1 for earlier, later in pairwise(epochs) if later <= earlier)
    detail = f"{evidence.runtimes} runtimes: {len(epochs)} owned it one after another"
    if evidence.refused:
        detail += f", {evidence.refused} was refused" if evidence.refused == 1 else " and others were refused"
    return Check("second owners", abs(len(epochs) - owners) + back, detail)


def _processes_left(evidence: Evidence, told: Mapping[str, _Turn]) -> Check:
    agents = sum(turn.attempts for turn in told.values())
    detail = f"{evidence.runtimes} runtimes and {agents} agents with their shims are gone"
    if evidence.left:
        detail = "; ".join(evidence.left)
    return Check("processes left", len(evidence.left), detail)
