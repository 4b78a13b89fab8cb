"""What comes next of an effect, by what the journal can hold; and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import UsageError
from outlast.records.effects import EffectDispatched, EffectIntended, EffectOutcome, EffectSettled, HostDone
from outlast.records.types import EffectReplay, PlannedEffect, TurnStarted
from outlast.state.model import OpenTurn
from outlast.testing.journals import JournalBuilder, bodies
from outlast.turns.effects import EffectContext, Effects, TurnEffect, intents, lacking, next_step, told


def run(given: EffectContext) -> None:
    raise AssertionError("nothing runs here")


def check(given: EffectContext) -> EffectOutcome:
    raise AssertionError("nothing is asked here")


NEVER, SAFE = TurnEffect("push", "write_back", run), TurnEffect("push", "write_back", run, replay="safe")
CHECK = TurnEffect("push", "write_back", run, check)
BEGUN = EffectDispatched(effect="e", body=1)


def settled(outcome: EffectOutcome, by: str = "run") -> EffectSettled:
    return EffectSettled(effect="e", outcome=outcome, by=by, reason="seen")  # type: ignore[arg-type]


def turn(replay: EffectReplay, *after: Any) -> OpenTurn:
    """A turn whose host step is done, and what the journal holds of its one effect."""
    owed = PlannedEffect(name="push", phase="write_back", replay=replay)
    intended = EffectIntended(
        effect="e", kind="write_back", name="push", arguments_digest="d", replay=replay, key="k"
    )
    journal = (
        JournalBuilder()
        .accept("t")
        .add(TurnStarted(index=1, request_id="t", effects=[owed]), bodies.attempt(1, "g"), turn="t")
    )
    journal.reserve("t").add(HostDone(stop_reason="end_turn"), intended, *after, turn="t")
    return journal.state().open_turns["t"]


AGAIN = (BEGUN, settled("absent", "check"), EffectDispatched(effect="e", body=2))
THRICE = (*AGAIN, settled("absent", "check"), EffectDispatched(effect="e", body=3))


@pytest.mark.parametrize(
    ("replay", "after", "known", "step"),
    [
        ("never", (), NEVER, "begin"),
        ("never", (BEGUN,), NEVER, "lose"),
        ("safe", (BEGUN,), SAFE, "begin"),
        ("safe", (BEGUN, EffectDispatched(effect="e", body=2)), SAFE, "begin"),
        ("safe", tuple(EffectDispatched(effect="e", body=n) for n in (1, 2, 3)), SAFE, "lose"),
        ("check", (BEGUN,), CHECK, "check"),
        ("check", (BEGUN, settled("absent", "check")), CHECK, "begin"),
        ("check", AGAIN, CHECK, "check"),
        ("check", (*THRICE, settled("absent", "check")), CHECK, "lose"),
        # Both the recorded rule and today's must allow it.
        ("safe", (BEGUN,), NEVER, "lose"),
        ("never", (BEGUN,), SAFE, "lose"),
        ("never", (BEGUN,), CHECK, "lose"),
        ("safe", (BEGUN,), CHECK, "check"),
        ("check", (BEGUN,), SAFE, "lose"),
        # What was said counts.
        ("never", (BEGUN, settled("done")), NEVER, "finish"),
        ("never", (BEGUN, settled("absent")), NEVER, "fail"),
        ("never", (BEGUN, settled("unknown")), NEVER, "stop"),
        ("check", (BEGUN, settled("unknown", "check")), CHECK, "stop"),
        ("never", (BEGUN, settled("unknown"), settled("absent", "person")), NEVER, "begin"),
        ("never", (BEGUN, settled("unknown"), settled("done", "person")), NEVER, "finish"),
        ("never", (settled("done", "person"),), NEVER, "finish"),
        # It is not known here.
        ("never", (), None, "lack"),
        ("never", (), TurnEffect("push", "validation", run), "lack"),
        ("never", (BEGUN, settled("done")), None, "finish"),
    ],
)
def test_what_comes_next_follows_from_the_journal(
    replay: EffectReplay, after: tuple[Any, ...], known: TurnEffect | None, step: str
) -> None:
    assert next_step(turn(replay, *after), Effects([known] if known else [])).step == step


def test_the_plan_says_what_will_be_done_about_an_effect() -> None:
    assert "push is not begun" in told(turn("never"))
    assert told(turn("never", BEGUN)).endswith("only a person settles it")
    assert told(turn("safe", BEGUN)).endswith("it is run again")
    assert told(turn("check", BEGUN)).endswith("it is asked whether it happened")


def test_effects_run_in_the_order_of_their_phases() -> None:
    effects = Effects([TurnEffect("b", "settle", run), NEVER, TurnEffect("a", "typed_result", run)])
    assert [each.name for each in effects.planned()] == ["a", "push", "b"]
    assert [each.replay for each in Effects([CHECK]).planned()] == ["check"]
    assert lacking(effects.planned(), Effects([NEVER])) == ["a", "b"]


def test_the_key_stays_with_the_attempt_that_gave_the_reply() -> None:
    """A recovery, however often, makes the same key; an attempt that a person asks for is another reply."""
    first = turn("never")
    (one,), (same,) = (intents("s", first, HostDone(stop_reason="end_turn")) for _ in range(2))
    assert (one.key, one.effect, one.arguments_digest) == (same.key, same.effect, same.arguments_digest)
    assert one.key == "s/t/1/push"
    first.attempts = 2
    (later,) = intents("s", first, HostDone(stop_reason="end_turn"))
    assert later.key == "s/t/2/push"
    assert later.effect != one.effect


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"phase": "host_execute"},
        {"replay": "always"},
        {"replay": "check"},
        {"run": "push"},
        {"check": "look"},
    ],
)
def test_an_effect_that_cannot_work_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"name": "push", "phase": "write_back", "run": run}
    with pytest.raises(UsageError):
        TurnEffect(**given | wrong)


def test_two_effects_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="one name"):
        Effects([NEVER, SAFE])
