"""Every scene, the peers' and ours, and what each came to: `make versus`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from examples.versus.ours import all_killed, runtime_killed, two_owners
from examples.versus.stage import Outcome, SceneError
from examples.versus.theirs import dbos_killed, langgraph_two_owners

SCENES = (langgraph_two_owners, two_owners, dbos_killed, runtime_killed, all_killed)
HEADS = ("who", "scene", "kills", "steps 1-6 done", "doubled", "not done", "end")


def row(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.who,
        outcome.scene,
        str(outcome.kills),
        " ".join(f"{times}x" for times in outcome.done),
        ", ".join(map(str, outcome.doubled)) or "none",
        ", ".join(map(str, outcome.missing)) or "none",
        outcome.ended,
    )


def table(outcomes: Sequence[Outcome]) -> list[str]:
    rows = [HEADS, *(row(outcome) for outcome in outcomes)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in rows]


def main() -> int:
    """1 when a scene could not be played, or one of ours has done a step twice."""
    outcomes = []
    for scene in SCENES:
        print(f"{scene.__module__.rpartition('.')[2]}: {scene.__doc__}", flush=True)
        try:
            outcomes.append(scene())
        except SceneError as error:
            print(f"not played: {error}", file=sys.stderr)
            return 1
    print()
    for line in table(outcomes):
        print(line.rstrip())
    return int(any(outcome.doubled for outcome in outcomes if outcome.who == "outlast"))


if __name__ == "__main__":
    sys.exit(main())
