"""The pictures in docs/ are what their scripts draw."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_committed_ladder_is_the_one_that_its_script_draws() -> None:
    drawn = runpy.run_path(str(DOCS / "make_ladder.py"))["draw"]()
    committed = (DOCS / "ladder.svg").read_text(encoding="utf-8")
    assert committed == drawn, "run `make docs` and commit the picture"
