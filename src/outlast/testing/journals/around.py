"""Effects around turns, in generated journals: owed, intended, begun, settled, or left to a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from outlast.records import effects as e
from outlast.records import types as t
from outlast.records.envelope import Draft
from outlast.testing.journals.expected import ExpectedEffect, ExpectedTurn
from outlast.testing.journals.provider import ProviderStates

_REPLAYS: tuple[t.EffectReplay, ...] = ("never", "safe", "check")
MOST_BODIES = 3


class Around(ProviderStates):
    """Moves of a turn that owes effects."""

    def _owed(self) -> list[t.PlannedEffect]:
        """What a turn that starts now owes; most owe nothing."""
        if self._pick(4):
            return []
        phases: list[t.EffectPhase] = ["validation", "write_back"]
        return [
            t.PlannedEffect(name=phase, phase=phase, replay=_REPLAYS[self._pick(3)])
            for phase in phases[: 1 + self._pick(2)]
        ]

    def _host_done(self, turn: ExpectedTurn) -> None:
        self._write(*self._of_host_done(turn))

    def _of_host_done(self, turn: ExpectedTurn) -> list[Draft]:
        """The agent's part is over, and with it what it asked and was given."""
        before = [*self._decided(turn), *self._closed_gates(turn)]
        turn.host_done, turn.calls = True, []
        turn.effects = [ExpectedEffect(self._name("effect"), owed.replay) for owed in turn.owed]
        intended = [
            e.EffectIntended(
                effect=effect.effect,
                kind=owed.phase,
                name=owed.name,
                arguments_digest="d" * 64,
                replay=effect.replay,
                key=f"{self.session}/{turn.request}/{turn.attempts}/{owed.name}",
            )
            for owed, effect in zip(turn.owed, turn.effects, strict=True)
        ]
        bodies: list[t.Body] = [e.HostDone(stop_reason="end_turn", usage={"tokens": 5}), *intended]
        return [*before, *(self._of_turn(body, turn) for body in bodies)]

    def _closed_gates(self, turn: ExpectedTurn) -> list[Draft]:
        raise NotImplementedError

    def _effect_moves(self, turn: ExpectedTurn) -> Iterator[Callable[[], None]]:
        """What may come next of the first effect that is not done; nothing where all are."""
        effect = next((each for each in turn.effects if each.outcome != "done"), None)
        if effect is None:
            return
        if _may_begin(effect):
            yield from [partial(self._dispatch, turn, effect)] * 4
        if effect.bodies:
            yield from [partial(self._settle, turn, effect, "done", "run")] * 4
            yield partial(self._settle, turn, effect, "absent", "check")
            yield partial(self._settle, turn, effect, "absent", "run")
            yield partial(self._settle, turn, effect, "unknown", "check")

    def _dispatch(self, turn: ExpectedTurn, effect: ExpectedEffect) -> None:
        effect.bodies += 1
        effect.outcome = effect.by = ""
        self._write(self._of_turn(e.EffectDispatched(effect=effect.effect, body=effect.bodies), turn))

    def _settle(self, turn: ExpectedTurn, effect: ExpectedEffect, outcome: str, by: str) -> None:
        self._write(self._settled(turn, effect, outcome, by))

    def _settled(self, turn: ExpectedTurn, effect: ExpectedEffect, outcome: str, by: str) -> Draft:
        effect.outcome, effect.by = outcome, by
        result = '{"n":1}' if outcome == "done" else None
        body = e.EffectSettled(
            effect=effect.effect,
            outcome=outcome,  # type: ignore[arg-type]
            by=by,  # type: ignore[arg-type]
            result=result,
            reason="seen",
        )
        return self._of_turn(body, turn)

    def _resumed(self, turn: ExpectedTurn) -> Draft:
        return self._of_turn(e.TurnResumed(phase="validation", evidence="its host step is done"), turn)


def _may_begin(effect: ExpectedEffect) -> bool:
    if effect.outcome == "absent":
        return effect.by == "person" or (effect.by == "check" and effect.bodies < MOST_BODIES)
    if effect.outcome:
        return False
    return effect.bodies == 0 or (effect.replay == "safe" and effect.bodies < MOST_BODIES)
