"""The pictures in docs/ are what their scripts draw, and the roadmap says of the tests what is so."""

import re
import runpy
from pathlib import Path

from docs import make_performance

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
ROADMAP = (DOCS / "roadmap.md").read_text(encoding="utf-8")


def test_the_committed_ladder_is_the_one_that_its_script_draws() -> None:
    drawn = runpy.run_path(str(DOCS / "make_ladder.py"))["draw"]()
    committed = (DOCS / "ladder.svg").read_text(encoding="utf-8")
    assert committed == drawn, "run `make docs` and commit the picture"


def test_failures_that_are_not_impossible_yet_have_no_test_of_their_name() -> None:
    table = ROADMAP.partition("## Failures that are not impossible yet")[2]
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE)
    source = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    tested = set(re.findall(r"def test_([a-z0-9_]+)\(", source))
    assert len(set(listed)) == len(listed) > 0
    assert [name for name in listed if name.replace("-", "_") in tested] == []


def test_what_the_roadmap_points_at_is_there() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", ROADMAP)
    assert targets
    assert [target for target in targets if not (DOCS / target).exists()] == []


def test_the_page_of_figures_and_its_pictures_are_drawn_from_what_was_measured() -> None:
    results = make_performance.read()
    stale = "run `make docs` and commit what it writes"
    assert (DOCS / "performance.md").read_text(encoding="utf-8") == make_performance.page(results), stale
    drawn = make_performance.pictures(results)
    committed = {file.name: file.read_text(encoding="utf-8") for file in DOCS.glob("performance-*.svg")}
    assert committed == drawn, stale
