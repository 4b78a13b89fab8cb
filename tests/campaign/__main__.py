"""`make campaign`, and single schedules by hand: `python -m tests.campaign --help`."""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec
from tests.campaign import controls
from tests.campaign.campaign import Campaign, Figures
from tests.campaign.census import points
from tests.campaign.checks import judge
from tests.campaign.driver import Kill, Schedule, named, run

ROWS = (
    ("fault points in the code", "points"),
    ("of them killed at", "killed_at"),
    ("passages while the story is told once", "passages"),
    ("schedules", "schedules"),
    ("processes killed", "kills"),
    ("restores killed too", "cut_restores"),
    ("owners replaced while they slept", "replaced"),
    ("kills that did not come about", "not_reached"),
    ("lost", "lost"),
    ("doubled", "doubled"),
    ("invariants violated, or else wrong", "broken"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--every", action="store_true", help="kill at every passage of every point")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the figures as JSON")
    parser.add_argument(
        "--kill",
        action="append",
        type=kill_of,
        default=[],
        metavar="POINT[@N][+all|+asleep]",
        help="run this schedule alone; again for a kill after the first one's restart",
    )
    parser.add_argument("--control", choices=sorted(controls.NAMES), help="with this broken build")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave what the runs left there")
    return parser.parse_args()


def kill_of(text: str) -> Kill:
    """Raises ValueError for a point that is not in the code, and for what is no number or victim."""
    place, _, victims = text.partition("+")
    point, _, nth = place.partition("@")
    if point not in points():
        alike = difflib.get_close_matches(point, points())
        raise argparse.ArgumentTypeError(
            f"the code has no point {point}; perhaps {', '.join(alike) or 'none'}"
        )
    match victims:
        case "" | "all" | "asleep":
            return Kill(point, int(nth or 1), victims or "process")
    raise argparse.ArgumentTypeError(f"+{victims} is neither +all nor +asleep")


def schedule_of(texts: list[str]) -> Schedule:
    return tuple(map(kill_of, texts))


def one(root: Path, schedule: Schedule, control: str | None) -> int:
    done = run(root / "run", schedule, control)
    wrong = judge(done).wrong
    print(f"{named(schedule)}: {done.killed} of {len(schedule)} kills came about")
    print("\n".join(f"  {what}" for what in wrong) if wrong else "  all is as it must be")
    return 1 if wrong else 0


def table(figures: Figures) -> str:
    lines = [f"{words:40} {getattr(figures, name):>6,}" for words, name in ROWS]
    caught = f"{figures.controls_caught} of {figures.controls}, in {figures.control_runs} runs"
    return "\n".join([*lines, f"{'controls caught':40} {caught:>6}", f"{'seconds':40} {figures.seconds:>6,}"])


def main() -> int:
    asked = arguments()
    if asked.keep is not None and asked.keep.exists():
        sys.exit(f"{asked.keep} is there already: name a new folder")
    root = asked.keep or Path(tempfile.mkdtemp(prefix="campaign-"))
    wrong = False
    try:
        if asked.kill or asked.control:
            wrong = bool(one(root, tuple(asked.kill), asked.control))
            return int(wrong)
        findings = Campaign(root, asked.workers).run(every=asked.every)
        print(table(findings.figures))
        wrong = bool(findings.wrong)
        print("\n".join([*findings.wrong, *(f"did not come about: {text}" for text in findings.missed)]))
        if asked.save and not wrong:
            asked.save.write_bytes(msgspec.json.format(msgspec.json.encode(findings.figures)) + b"\n")
        return int(wrong)
    finally:
        if asked.keep is None and not wrong:
            shutil.rmtree(root)


if __name__ == "__main__":
    sys.exit(main())
