"""kill -9 at durable steps of a told story: nothing acknowledged is lost, nothing happens twice, every
invariant holds; and builds that are broken on purpose are found out. A sample in `make test`; each point,
restore and control in `make test-all`, with two passages of a point where `make campaign` kills at three."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaign import controls
from tests.campaign.__main__ import schedule_of, table
from tests.campaign.campaign import Campaign, Tally
from tests.campaign.census import ELSEWHERE, elsewhere, points
from tests.campaign.checks import judge
from tests.campaign.driver import run

SAMPLE = [
    "keep.pipe.after@3",
    "keep.exit.before@2",
    "store.admit.after_commit@3",
    "store.append.after_commit@30",
    "turn.input.after@3+all",
    "turn.terminal.before_append@6",
    "turn.events.before_append@1+asleep",
]
RESTORES = [
    ["turn.events.after_append@2", "turn.attach.before_append"],
    ["turn.input.after@3+all", "restore.begin.after_append", "restore.begin.after_append"],
    ["turn.effect.ran@2+all", "turn.effect.settle.before_append"],
]
CONTROLS = ("no-fence", "two-commits", "repaired-twice", "check-skipped")


COME_BY = "let the story come by, or say in census.ELSEWHERE why it does not, and which test does"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    schedules = [schedule_of([kill]) for kill in SAMPLE] + [schedule_of(kills) for kills in RESTORES]
    return Campaign(tmp_path_factory.mktemp("sample")).schedules(schedules)


@pytest.mark.timeout(300)
def test_a_sample_of_kills_costs_nothing(sample: Tally) -> None:
    assert sample.wrong == []
    assert [done.killed for done in sample.ran] == [len(done.schedule) for done in sample.ran]


@pytest.mark.timeout(300)
def test_every_point_is_passed_by_the_story_or_said_to_be_elsewhere(sample: Tally) -> None:
    """The whole campaign kills at each point that is passed: what it would miss is found here, at once."""
    never = {point for point in points() - sample.passed if not elsewhere(point)}
    assert not never, f"the story passes none of these: {COME_BY}"


@pytest.mark.timeout(300)
def test_what_the_story_passes_each_time_is_not_said_to_be_elsewhere(sample: Tally) -> None:
    each_time = set.intersection(*({p for leg in done.passages for p in leg} for done in sample.ran))
    assert {point for point in each_time if elsewhere(point)} == set()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sample_of_broken_builds_is_found_out(tmp_path: Path) -> None:
    wrong, caught, met = Campaign(tmp_path, of_each_control=1).controls(CONTROLS)
    assert wrong == []
    assert caught == list(CONTROLS)
    assert met >= len(CONTROLS)


@pytest.mark.slow
def test_a_turn_that_is_sent_again_is_named(tmp_path: Path) -> None:
    """The verdict says what happened twice, not only that something is wrong."""
    done = run(tmp_path / "told", (), "landing-ignored")
    assert "effect 'seven 1' 2 times" in judge(done).doubled


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_point_and_every_control(tmp_path: Path) -> None:
    findings = Campaign(tmp_path, most=2).run()
    print(table(findings.figures))
    assert findings.wrong == []
    assert findings.figures.kills >= 150
    assert findings.figures.controls_caught == findings.figures.controls == len(controls.NAMES)
    never = {point for point in points() - findings.reached if not elsewhere(point)}
    assert not never, f"nobody is ever killed there: {COME_BY}"


def test_what_the_story_does_not_come_to_is_there() -> None:
    assert [stem for stem in ELSEWHERE if not any(point.startswith(stem) for point in points())] == []
