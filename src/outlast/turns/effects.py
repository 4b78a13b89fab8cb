"""Named effects around a turn: what they are, and what comes next of them (pure).

A crash leaves three facts about an effect: it was intended, its body began, its outcome is recorded. What is
missing decides, and nothing that this process remembers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from outlast.errors import UsageError
from outlast.ids import check_label, derived_id
from outlast.records.effects import EffectIntended, EffectOutcome, HostDone
from outlast.records.types import EffectPhase, EffectReplay, PlannedEffect
from outlast.state.effect_rules import BODIES, may_begin
from outlast.state.model import Closed, Effect, OpenTurn

PHASES: tuple[EffectPhase, ...] = get_args(EffectPhase)
"""In the order in which they run."""
RESULT_LIMIT = 16 * 1024
"""Bytes of JSON that an effect may give back: they are part of the session's state while the turn is open."""
REASON_LIMIT = 2_000
"""Characters."""


@dataclass(frozen=True, slots=True)
class EffectContext:
    """What a body and a check are given: the same after any crash, but for `body`."""

    session: str
    turn: str
    name: str
    phase: EffectPhase
    key: str
    """What an outside service can know the effect again by: the same in every body of it."""
    body: int
    """Which body this is, from 1 on; of a check the newest one that began."""
    workspace: str
    text: str
    """What the agent said in the turn."""
    stop_reason: str
    usage: Mapping[str, int] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    """What the effects before it gave back, by name."""


Run = Callable[[EffectContext], Any]
"""Does it, and gives something that JSON can hold, or an awaitable of that. A function that is not async runs
in a thread."""
Check = Callable[[EffectContext], EffectOutcome | Awaitable[EffectOutcome]]
"""Finds out whether the effect of this key has happened: done, absent or unknown. It changes nothing."""


@dataclass(frozen=True, slots=True)
class TurnEffect:
    """Something to run after a turn's agent is done and before the turn is.

    `replay` says what may be done about a body that began and whose outcome nobody recorded: `never` begins
    another and leaves it to a person (the default), `safe` runs it again, `check` asks `check` first (the
    default where there is one). Raises UsageError.
    """

    name: str
    phase: EffectPhase
    run: Run
    check: Check | None = None
    replay: EffectReplay | None = None

    def __post_init__(self) -> None:
        check_label(self.name, what="effect name")
        if self.phase not in PHASES:
            raise UsageError(
                f"{self.phase!r} is no phase of an effect", hint=f"there are {', '.join(PHASES)}"
            )
        if self.replay is not None and self.replay not in get_args(EffectReplay):
            known = ", ".join(get_args(EffectReplay))
            raise UsageError(f"{self.replay!r} is no replay rule", hint=f"there are {known}")
        if not all(callable(each) for each in (self.run, self.check) if each is not None):
            raise UsageError(f"effect {self.name} cannot be called", hint="run and check are functions")
        if self.replay == "check" and self.check is None:
            raise UsageError(f"effect {self.name} has no check", hint="pass check=, or another replay rule")

    @property
    def rule(self) -> EffectReplay:
        """The rule that is recorded."""
        return self.replay or ("never" if self.check is None else "check")


class Effects(Mapping[str, TurnEffect]):
    """The effects of a runtime, by name, in the order in which they run. Raises UsageError where two have one
    name."""

    def __init__(self, effects: Sequence[TurnEffect] = ()) -> None:
        ordered = sorted(effects, key=lambda effect: PHASES.index(effect.phase))
        self._effects = {effect.name: effect for effect in ordered}
        if len(self._effects) != len(ordered):
            raise UsageError(
                "two effects have one name", hint="a turn's effects are told apart by their names"
            )

    def __getitem__(self, name: str) -> TurnEffect:
        return self._effects[name]

    def __iter__(self) -> Any:
        return iter(self._effects)

    def __len__(self) -> int:
        return len(self._effects)

    def planned(self) -> list[PlannedEffect]:
        """What a turn that begins now owes."""
        return [PlannedEffect(name=e.name, phase=e.phase, replay=e.rule) for e in self._effects.values()]


def lacking(planned: Sequence[PlannedEffect], known: Mapping[str, TurnEffect]) -> list[str]:
    """Names of the effects that a turn owes and that are not known here as what they were."""
    return [each.name for each in planned if _known(each.name, each.phase, known) is None]


def still_owed(turn: OpenTurn | Closed) -> list[PlannedEffect]:
    """What a turn owes that goes on as it stands: not what is done."""
    done = {effect.name for effect in turn.effects.values() if effect.outcome == "done"}
    return [each for each in turn.owed if each.name not in done]


def intents(session: str, turn: OpenTurn, done: HostDone) -> list[EffectIntended]:
    """What is intended once the host step of `turn` is `done`."""
    digest = hashlib.sha256(
        msgspec.json.encode([session, turn.turn, turn.attempts, done], order="deterministic")
    ).hexdigest()
    return [
        EffectIntended(
            effect=derived_id("effect", session, turn.turn, turn.attempts, each.name),
            kind=each.phase,
            name=each.name,
            arguments_digest=digest,
            replay=each.replay,
            # An attempt that a person asks for gives another reply, whose effects are others.
            key=f"{session}/{turn.turn}/{turn.attempts}/{each.name}",
        )
        for each in turn.owed
    ]


# --- what comes next ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Next:
    """`begin` its next body, `check` what became of the last, `lose` it (the outcome is recorded as unknown
    for `why`), `stop` (it is unknown, and only a person goes on), `fail` (it refused: the turn fails),
    `lack` (it is not known here); `finish`: all are done."""

    step: Literal["begin", "check", "lose", "stop", "fail", "lack", "finish"]
    effect: Effect | None = None
    why: str = ""


def next_step(turn: OpenTurn, known: Mapping[str, TurnEffect]) -> Next:
    """What comes next of a turn whose host step is done."""
    effect = next((each for each in turn.effects.values() if each.outcome != "done"), None)
    if effect is None:
        return Next("finish")
    if effect.outcome == "unknown":
        return Next("stop", effect, effect.reason)
    if effect.outcome == "absent" and effect.by == "run":
        return Next("fail", effect, effect.reason)
    today = _known(effect.name, effect.phase, known)
    if today is None:
        return Next("lack", effect, f"no effect {effect.name} of phase {effect.phase} is known here")
    if effect.bodies == 0 or effect.outcome == "absent":
        if may_begin(effect):
            return Next("begin", effect)
        return Next("lose", effect, f"its body began {effect.bodies} times, each time it was absent")
    return _begun(effect, today)


def _begun(effect: Effect, today: TurnEffect) -> Next:
    """Its body began, and how that ended nobody has recorded: both the recorded rule and today's must allow
    what is done about it."""
    rules = {effect.replay, today.rule}
    if "never" in rules:
        return Next("lose", effect, "its body began, and how that ended is not recorded")
    if "check" in rules:
        if today.check is None:
            return Next("lose", effect, "its body began, and it has no check any more")
        return Next("check", effect)
    if may_begin(effect):
        return Next("begin", effect)
    return Next("lose", effect, f"its body began {BODIES} times and never ended")


def told(turn: OpenTurn) -> str:
    """Where a turn whose host step is done stands, in words: the evidence of a plan."""
    effect = next((each for each in turn.effects.values() if each.outcome != "done"), None)
    if effect is None:
        return "its host step and all effects are done, its end is not recorded"
    stands = effect.outcome or ("begun, how it ended is not recorded" if effect.bodies else "not begun")
    then = ""
    if effect.bodies and not effect.outcome:
        then = {
            "never": ": unknown, only a person settles it",
            "safe": ": it is run again",
            "check": ": it is asked whether it happened",
        }[effect.replay]
    return f"its host step is done and is not executed again, {effect.name} is {stands}{then}"


def phase_of(turn: OpenTurn) -> str:
    """The first phase that is not recorded."""
    left = next((each for each in turn.effects.values() if each.outcome != "done"), None)
    return "settle" if left is None else left.phase


def _known(name: str, phase: str, known: Mapping[str, TurnEffect]) -> TurnEffect | None:
    effect = known.get(name)
    return effect if effect is not None and effect.phase == phase else None
