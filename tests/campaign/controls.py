"""Negative controls: each broken build is run where its fault can show, and must be found wrong each time;
the real build is run on the same schedules, and must be found right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaign.broken import CONTROLS
from tests.campaign.driver import LEG, Kill, Run, Schedule, run
from tests.campaign.schedules import BEFORE_AN_INPUT, SLEEPERS, spread

MOST = 3
"""Schedules of one control, spread over those in which it can show."""

IN_THE_MIDDLE = (
    (Kill("turn.policy.before_append", 1, "all", "two 1"),),
    (Kill("actor.command.before_append", 1, "all", "two 1"),),
    (Kill("actor.command.after_append", 1, "all", "two 1"),),
    (Kill("store.admit.before_commit", 8, "all", "three 1"),),
    (),
)
"""Everything dies while an agent has had an effect and waits: what becomes of its turn nobody can know.
Without a kill there is the story's own power cut."""


def fixed(control: str) -> Sequence[Schedule] | None:
    """The schedules of a control whose fault shows wherever a restore has to do with it; None: it says itself
    at which passages it does."""
    return {
        "no-fence": SLEEPERS,
        "not-cut-off": BEFORE_AN_INPUT,
        "sent-again": IN_THE_MIDDLE,
        "landing-ignored": IN_THE_MIDDLE,
        "repaired-twice": IN_THE_MIDDLE,
    }.get(control)


def schedules(control: str, root: Path, most: int = MOST) -> list[Schedule]:
    """Where to kill a broken build, `most` of all such schedules. Many a build is first told without a kill,
    and says where it departs."""
    known = fixed(control)
    if known is not None:
        return [known[nth - 1] for nth in spread(len(known), most)]
    told = run(root, (), control)
    at = list(dict.fromkeys(text for leg, text in departures(told) if leg == LEG.format(0)))
    return [_as_schedule(control, at[nth - 1]) for nth in spread(len(at), most)]


def _as_schedule(control: str, departure: str) -> Schedule:
    point, _, rest = departure.partition("@")
    nth, _, effect = rest.partition(" ")
    if control == "input-before-intent":
        return (Kill(point, int(nth), "all", effect),)
    return (Kill(point, int(nth)),)


def departures(done: Run) -> list[tuple[str, str]]:
    """Where the broken build of a run departed from the real one: in which leg, at which passage."""
    file = done.root / "departures"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    return [(leg, text) for leg, _, text in (line.partition(" ") for line in lines)]


def met(done: Run) -> bool:
    """Whether the fault could show in this run: it happened, or the kill came where it stood open."""
    said = set(departures(done))
    kills = enumerate(done.schedule[: done.killed])
    at = {(LEG.format(leg), f"{kill.point}@{kill.nth} {kill.awaits}".strip()) for leg, kill in kills}
    came_about = done.killed == len(done.schedule)
    return (("now", "") in said and came_about) or bool(at & said) or bool(done.trespassed)


NAMES: Mapping[str, str] = {name: (build.__doc__ or "").strip() for name, build in CONTROLS.items()}
"""Control -> what is broken in it, in one sentence."""
