"""The whole campaign: what it runs, what it counts, what it found."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests.campaign import controls
from tests.campaign.census import elsewhere, points, points_of_the_shim
from tests.campaign.checks import judge
from tests.campaign.driver import Kill, Run, Schedule, named, run, run_until_replaced
from tests.campaign.schedules import (
    BEFORE_AN_INPUT,
    MOST,
    SLEEPERS,
    cut_again,
    cut_restores,
    one_by_one,
    record,
    with_their_agents,
)

TRIES = 3
"""Runs of a schedule whose kill did not come about: how often some points are passed differs a little."""

ASLEEP = (*SLEEPERS, *BEFORE_AN_INPUT)

Tell = Callable[[str], None]


class Figures(msgspec.Struct, kw_only=True):
    """What a campaign found; the numbers that the README prints."""

    points: int
    """Fault points that the code has."""
    killed_at: int
    """Of them: those that at least one process was killed at."""
    passages: int
    """Of all points, while the story is told once without a kill."""
    schedules: int
    kills: int
    cut_restores: int
    """Schedules in which a restore was killed too."""
    replaced: int
    """Schedules in which an owner was replaced while it slept."""
    lost: int
    doubled: int
    broken: int
    """Invariants violated, and whatever else was not as it must be."""
    not_reached: int
    """Schedules whose kill never came about."""
    controls: int
    controls_caught: int
    control_runs: int
    """Runs in which the fault of a broken build could show; it was caught in each, or its control is not."""
    seconds: int


@dataclass(slots=True)
class Findings:
    figures: Figures
    wrong: list[str] = field(default_factory=list)
    """Every schedule that went wrong, and every control that escaped, in words."""
    reached: set[str] = field(default_factory=set)
    """The points that a process was killed at."""
    missed: list[str] = field(default_factory=list)
    """Schedules whose kill never came about."""


@dataclass(slots=True)
class Tally:
    """What has come of the schedules that were run."""

    ran: list[Run] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    broken: int = 0
    wrong: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)

    @property
    def passed(self) -> set[str]:
        """The points that somebody passed."""
        return {point for done in self.ran for leg in done.passages for point in leg}

    @property
    def left_out(self) -> list[Schedule]:
        """A kill at each point that somebody passed, after the kills of the run in which it was, and that
        nobody was killed at: some are passed only then."""
        found: dict[str, Schedule] = {}
        for done in self.ran:
            for leg, passages in enumerate(done.passages):
                for point in sorted(passages.keys() - self.reached):
                    if not elsewhere(point):
                        found.setdefault(point, (*done.schedule[:leg], Kill(point)))
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Campaign:
    """Runs schedules in folders below `root`, `workers` at a time; keeps the folders of what went wrong."""

    root: Path
    workers: int = 2
    tell: Tell = print
    of_each_control: int = controls.MOST
    most: int = MOST
    """Passages of one point that are killed at, unless all are asked for."""

    def __post_init__(self) -> None:
        # Python's parser is not to be used by several threads at once (3.11: "recursion depth mismatch").
        points_of_the_shim()

    def run(self, *, every: bool = False) -> Findings:
        """All of it; `every`: each passage of each point, and not `most` of them."""
        begun = time.monotonic()
        passages = record(self.root / "recorded")
        restores = cut_restores(self.root / "cut")
        chosen = [
            *one_by_one(passages, None if every else self.most),
            *with_their_agents(passages, MOST if every else 1),
            *restores,
            *cut_again(restores),
            *ASLEEP,
        ]
        self.tell(f"{len(points())} points, {sum(passages.values())} passages, {len(chosen)} schedules")
        tally = self.schedules(chosen)
        more = tally.left_out
        tally = self.schedules(more, tally)
        chosen += more
        escaped, caught, met = self.controls(tuple(controls.NAMES))
        figures = _figures(passages, chosen, tally, int(time.monotonic() - begun))
        figures.controls, figures.controls_caught, figures.control_runs = (
            len(controls.NAMES),
            len(caught),
            met,
        )
        missed = [named(done.schedule) for done in tally.ran if done.killed < len(done.schedule)]
        return Findings(figures, tally.wrong + escaped, tally.reached, missed)

    def schedules(self, chosen: Sequence[Schedule], tally: Tally | None = None) -> Tally:
        """Run each and judge it; added to `tally`, if there is one already."""
        tally = tally or Tally()
        with ThreadPoolExecutor(self.workers) as pool:
            numbered = enumerate(chosen, len(tally.ran))
            for number, (done, wrong) in enumerate(pool.map(self._one, numbered), 1):
                self._count(tally, done, wrong)
                if number % 50 == 0:
                    self.tell(f"  {number} of {len(chosen)}, {len(tally.wrong)} wrong")
        return tally

    def _one(self, item: tuple[int, Schedule]) -> tuple[Run, Mapping[str, list[str]]]:
        number, schedule = item
        attempt = 0
        while True:
            attempt += 1
            folder = self.root / f"{number:04}-{attempt}"
            done = run(folder, schedule)
            verdict = judge(done)
            if not verdict.wrong:
                shutil.rmtree(folder)
            if verdict.wrong or done.killed == len(schedule) or attempt == TRIES:
                return done, {"lost": verdict.lost, "doubled": verdict.doubled, "broken": verdict.broken}

    def _count(self, tally: Tally, done: Run, found: Mapping[str, list[str]]) -> None:
        tally.ran.append(done)
        tally.lost += len(found["lost"])
        tally.doubled += len(found["doubled"])
        tally.broken += len(found["broken"])
        tally.reached |= {kill.point for kill in done.schedule[: done.killed]}
        for kind, words in found.items():
            for what in words:
                tally.wrong.append(f"{named(done.schedule)}: {kind}: {what} ({done.root})")
                self.tell(f"  WRONG {tally.wrong[-1]}")

    # --- controls ------------------------------------------------------------------------------

    def controls(self, names: Sequence[str]) -> tuple[list[str], list[str], int]:
        """Run these broken builds, and the real one on their schedules: what escaped or went wrong in words,
        who was caught every time, and in how many runs a fault could show."""
        with ThreadPoolExecutor(self.workers) as pool:
            outcomes = list(pool.map(self._control, names))
        escaped: list[str] = []
        caught: list[str] = []
        for name, (met, words) in zip(names, outcomes, strict=True):
            escaped += words
            if met and not words:
                caught.append(name)
            self.tell(f"  control {name}: " + ("; ".join(words) or f"caught {met} of {met}"))
        return escaped, caught, sum(met for met, _ in outcomes)

    def _control(self, name: str) -> tuple[int, list[str]]:
        met, words = 0, list[str]()
        for schedule, broken, real in self._pairs(name):
            met += controls.met(broken)
            if controls.met(broken) and not judge(broken).wrong:
                words.append(f"{name} was not caught at {named(schedule)} ({broken.root})")
            where = f"the real build, at {named(schedule)}"
            words += [f"{where}: {what} ({real.root})" for what in judge(real).wrong]
        if not met:
            words.append(f"{name} never met its fault")
        return met, words

    def _pairs(self, name: str) -> Iterator[tuple[Schedule, Run, Run]]:
        root = self.root / name
        chosen = controls.schedules(name, root / "recorded", self.of_each_control)
        for number, schedule in enumerate(chosen):
            broken, real = root / f"{number}-broken", root / f"{number}-real"
            yield schedule, run_until_replaced(broken, schedule, name), run_until_replaced(real, schedule)


def _figures(passages: Mapping[str, int], chosen: Sequence[Schedule], tally: Tally, seconds: int) -> Figures:
    return Figures(
        points=len(points()),
        killed_at=len(tally.reached),
        passages=sum(passages.values()),
        schedules=len(chosen),
        kills=sum(done.killed for done in tally.ran),
        cut_restores=sum(len(schedule) > 1 for schedule in chosen),
        replaced=len(ASLEEP),
        lost=tally.lost,
        doubled=tally.doubled,
        broken=tally.broken,
        not_reached=sum(done.killed < len(done.schedule) for done in tally.ran),
        controls=0,
        controls_caught=0,
        control_runs=0,
        seconds=seconds,
    )
