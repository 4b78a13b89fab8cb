"""Where to kill: at the passages that a recorded run made, and at those of restores that follow on a kill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaign.census import points_of_the_shim
from tests.campaign.driver import Kill, Run, Schedule, run

MOST = 3
"""Passages of one point that are killed at (the first, the last and one in the middle), unless all are asked
for."""

CUT: Sequence[Schedule] = (
    (Kill("turn.events.after_append", 2),),
    (Kill("turn.input.after", 3),),
    (Kill("turn.attempt.after_append", 3),),
    (Kill("keep.close_stdin.send", 2),),
    (Kill("actor.command.after_append", 2),),
    (Kill("turn.input.after", 3, "all"),),
    (Kill("turn.events.after_append", 3, "all"),),
    (Kill("turn.host_done.before_append", 3, "all"),),
    (Kill("turn.effect.dispatch.after_append", 4),),
    (Kill("turn.effect.ran", 2, "all"),),
)
"""States in which a restore finds something to do: an agent at work, with a question, about to begin,
through with its turn; a cancel under way; agents that are dead, with a question, with their turn's end in the
spool; a checked effect that has begun and not happened, one that has happened, neither with an outcome."""

SLEEPERS: Sequence[Schedule] = tuple(
    (Kill(f"{stem}.before_append", nth, "asleep"),)
    for stem, nth in (
        ("turn.terminal", 1),
        ("turn.effect.dispatch", 2),
        ("turn.events", 1),
        ("turn.attempt", 2),
        ("actor.turn", 2),
        ("actor.accept", 3),
    )
)
"""An owner is replaced while it sleeps, right before it writes."""
BEFORE_AN_INPUT: Sequence[Schedule] = tuple((Kill("turn.input.before", nth, "asleep"),) for nth in (1, 3))
"""The same, right before it gives its agent an input that is named in the journal."""

OF_A_RESTORE = (
    "restore.",
    "turn.attach.",
    "keep.fence",
    "keep.raise_floor",
    "keep.attach",
    "store.acquire",
)
OF_EFFECTS = "turn.effect."
ANOTHER_BODY = ("turn.effect.dispatch.after_append", "turn.effect.ran")
"""A kill there takes one of the three bodies that an effect has without a person's word."""


def record(root: Path) -> Mapping[str, int]:
    """How often each point is passed while the story is told without a kill."""
    told = run(root)
    if told.stuck:
        raise AssertionError(f"the story does not even come to its end undisturbed: {told.stuck}")
    return told.passages[0]


def one_by_one(passages: Mapping[str, int], most: int | None = MOST) -> list[Schedule]:
    """A kill of the passing process, owner, shim or guard."""
    return [(Kill(point, nth),) for point, count in sorted(passages.items()) for nth in spread(count, most)]


def with_their_agents(passages: Mapping[str, int], most: int | None = 1) -> list[Schedule]:
    """An owner that takes shim, guard and agent with it, as a machine does."""
    owners = {point: count for point, count in passages.items() if point not in points_of_the_shim()}
    return [
        (Kill(point, nth, "all"),) for point, count in sorted(owners.items()) for nth in spread(count, most)
    ]


def cut_restores(root: Path, cut: Sequence[Schedule] = CUT) -> list[Schedule]:
    """After each state, a kill at the first passage of every point that its restore makes, as a restore that
    was left alone made them."""
    found: list[Schedule] = []
    for number, first in enumerate(cut):
        after = _of_the_restore(run(root / str(number), first), first[-1])
        found += [(*first, Kill(point)) for point in after]
    return found


def cut_again(restores: Sequence[Schedule], every: int = 8) -> list[Schedule]:
    """Some of them, whose next restore is killed at the same place."""
    chosen = [schedule for schedule in restores if schedule[-1].point not in ANOTHER_BODY]
    return [(*schedule, schedule[-1]) for schedule in chosen[::every]]


def _of_the_restore(told: Run, cut: Kill) -> list[str]:
    """The points that were passed after `cut` because of it."""
    after = told.passages[1] if len(told.passages) > 1 else {}
    stems = (*OF_A_RESTORE, OF_EFFECTS) if cut.point.startswith(OF_EFFECTS) else OF_A_RESTORE
    return sorted(point for point in after if point.startswith(stems))


def spread(count: int, most: int | None) -> list[int]:
    """Up to `most` of 1..count: the first and the last among them, where it is more than one."""
    if most is None or count <= most:
        return list(range(1, count + 1))
    if most == 1:
        return [(count + 1) // 2]
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})
