"""Effects around a turn: kill -9 between every two of their steps. The agent never runs again, an effect
happens as often as its rule says, and the turn ends or says what only a person can know."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.place import Place
from tests.support.processes import Finished

from outlast.records.effects import EffectDispatched, EffectIntended, EffectSettled, HostDone, TurnResumed
from outlast.records.types import TurnAttemptStarted, TurnDone, TurnFailed
from outlast.state.invariants import violations

ROOT = Path(__file__).parent.parent.parent
NAMES = ("parse", "validate", "push", "spend")
"""In the order of their phases; their rules are safe, check, check, never."""

DISPATCH, SETTLE = "turn.effect.dispatch", "turn.effect.settle"
NOT_BEGUN = f"{DISPATCH}.before_append"
BEGUN = f"{DISPATCH}.after_append"
RAN = ("turn.effect.ran", f"{SETTLE}.before_append")
SETTLED = f"{SETTLE}.after_append"
AROUND = (
    *("turn.host_done.before_append", "turn.host_done.after_append"),
    *("turn.terminal.before_append", "turn.terminal.after_append"),
)

IN_SHORT = {(RAN[0], 3), (BEGUN, 4)}
"""The ones that every `make test` runs."""


def rows(*points: str) -> list[object]:
    return [
        pytest.param(point, nth, marks=() if (point, nth) in IN_SHORT else pytest.mark.slow)
        for point in points
        for nth in range(1, len(NAMES) + 1)
    ]


def owner(place: Place, how: str, faults: str | None = None) -> Finished:
    """The embedding program, to its end."""
    environ = place.environ(faults) | {"PYTHONPATH": str(ROOT)}
    program = (sys.executable, "-m", "tests.support.effects_owner")
    place.state.mkdir(exist_ok=True)
    return place.start_program(
        *program, str(place.state / "outlast.db"), str(place.root), how, env=environ
    ).wait()


def cut(place: Place, point: str, nth: int = 1) -> Finished:
    """The program is killed at a point, and begun again."""
    killed = owner(place, "send", f"{point}@{nth}=kill")
    assert killed.status == -signal.SIGKILL, killed
    again = owner(place, "send")
    assert again.status == 0, again
    return again


def outside(place: Place) -> dict[str, int]:
    """How often each effect has happened."""
    path = place.root / "outside"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    assert set(lines) <= {f"{name} job/one/1/{name}" for name in NAMES}, "a key has changed"
    return Counter(line.split()[0] for line in lines)


def assert_done(place: Place, finished: Finished, **happened: int) -> None:
    """The turn is done, its agent ran once, and each effect happened once but for those named."""
    assert finished.stdout.decode() == "done|finished one|\n", finished
    assert outside(place) == dict.fromkeys(NAMES, 1) | happened
    assert_right(place)
    assert place.journal("job").the(TurnDone).stop_reason == "end_turn"


def assert_right(place: Place) -> None:
    """What holds however it came about."""
    journal = place.journal("job")
    journal.assert_every_input_ends_once()
    assert violations(journal.records) == []
    assert place.effects == ["one"]
    assert len(journal.bodies(TurnAttemptStarted)) == len(journal.bodies(HostDone)) == 1
    assert [body.name for body in journal.bodies(EffectIntended)] == list(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("point", AROUND)
def test_a_crash_between_two_phases_resumes_at_the_first_that_is_not_recorded(
    place: Place, point: str
) -> None:
    finished = cut(place, point)
    assert_done(place, finished)
    resumed = place.journal("job").bodies(TurnResumed)
    if point == "turn.host_done.after_append":
        assert resumed[0].phase == "typed_result"


@pytest.mark.parametrize(("point", "nth"), rows(NOT_BEGUN, SETTLED))
def test_what_was_not_begun_or_is_recorded_happens_once(place: Place, point: str, nth: int) -> None:
    assert_done(place, cut(place, point, nth))
    assert len(place.journal("job").bodies(EffectDispatched)) == len(NAMES)


@pytest.mark.parametrize(("point", "nth"), rows(BEGUN, *RAN))
def test_what_was_begun_is_decided_by_its_rule(place: Place, point: str, nth: int) -> None:
    """A safe one runs again, a check tells whether it happened, and of any other nobody knows."""
    finished, name, ran = cut(place, point, nth), NAMES[nth - 1], point in RAN
    settled = [body for body in place.journal("job").bodies(EffectSettled) if body.by != "run"]
    if name == "parse":
        assert_done(place, finished, parse=2 if ran else 1)
        assert settled == []
    elif name in ("validate", "push"):
        assert_done(place, finished)
        (checked,) = settled
        assert (checked.outcome, checked.by) == ("done" if ran else "absent", "check")
    else:
        assert finished.stdout.decode().startswith("parked|finished one|whether spend was done is not known")
        assert outside(place)["spend"] == int(ran)
        assert_right(place)


def unknown(place: Place, point: str) -> None:
    """A turn whose last effect was cut off, and whose rule lets nobody find out."""
    cut(place, point, len(NAMES))
    receipt = place.journal("job").the(TurnFailed).receipt
    assert (receipt.failed_phase, receipt.error.code) == ("settle", "effect_unknown")
    assert receipt.completed_phases[-1] == "write_back"
    assert receipt.host_recovery is None
    (shown,) = place.show("job")["turns"]
    assert [effect["outcome"] for effect in shown["effects"]] == ["done", "done", "done", "unknown"]


@pytest.mark.slow
@pytest.mark.parametrize("done", [True, False])
def test_resolve_refused(place: Place, done: bool) -> None:
    """A person settles what nobody knows, in exactly that state: the turn ends, the agent is not asked
    again, and the effect happens at most once more, under its key."""
    unknown(place, RAN[0] if done else BEGUN)
    said = ("--done", "--result", '{"paid": 1}') if done else ("--not-done",)
    told = place.call("settle", "job", "spend", *said, "--reason", "seen in the books", "--json")
    assert (told.status, told.lines[0]["result"]) == (0, "queued"), told

    restored = owner(place, "restore")

    assert_done(place, restored)
    by_person = [body for body in place.journal("job").bodies(EffectSettled) if body.by == "person"]
    assert [(b.outcome, b.reason) for b in by_person] == [("done" if done else "absent", "seen in the books")]
    again = place.call("settle", "job", "spend", "--done", "--json")
    assert (again.status, again.errors[0]["error"]) == (3, "effect_not_found")


@pytest.mark.slow
def test_a_process_without_the_effects_does_not_end_the_turn_without_them(place: Place) -> None:
    killed = owner(place, "send", "turn.host_done.after_append=kill")
    assert killed.status == -signal.SIGKILL
    place.config.write_text(place.config.read_text().replace("[agents.plain]", "[agents.a]"))

    refused = place.call("resume", "job", "--json")
    assert refused.status != 0
    assert "parse, validate, push, spend" in refused.errors[0]["message"]
    planned = place.call("plan", "job", "--json").lines[0]
    assert [turn["action"] for turn in planned["turns"]] == ["resume"]
    assert "parse is not begun" in planned["turns"][0]["evidence"]

    assert_done(place, owner(place, "send"))


@pytest.mark.slow
def test_commit_forgotten(place: Place) -> None:
    """A commit that a crash hid from its owner is recognised as one, what follows it runs, and the journal's
    end is that of a turn without a crash."""
    finished = cut(place, RAN[1], NAMES.index("push") + 1)
    assert_done(place, finished)
    (checked,) = (body for body in place.journal("job").bodies(EffectSettled) if body.by == "check")
    assert checked.outcome == "done"


@pytest.mark.slow
def test_identity_drift(place: Place) -> None:
    """A turn that is resumed once its agent has a session has the same id, and its effects the same keys."""
    finished = cut(place, "turn.host_done.after_append")
    assert_done(place, finished)
    keys = {body.key for body in place.journal("job").bodies(EffectIntended)}
    assert keys == {f"job/one/1/{name}" for name in NAMES}
