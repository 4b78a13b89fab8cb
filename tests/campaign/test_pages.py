"""What the pages say of the campaign is what it found, and what there is."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import msgspec
from tests.campaign.campaign import Figures
from tests.campaign.controls import NAMES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "campaign.md"


def test_the_pages_print_the_committed_figures() -> None:
    made = runpy.run_path(str(DOCS / "make_campaign.py"))
    for page in made["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert made["current"](text) == text, f"{page.name}: run `make docs` and commit the pages"


def test_the_committed_figures_are_those_of_a_campaign_that_found_nothing() -> None:
    figures = msgspec.json.decode((DOCS / "campaign.json").read_bytes(), type=Figures)
    assert (figures.lost, figures.doubled, figures.broken) == (0, 0, 0)
    assert figures.kills >= 150
    assert figures.controls_caught == figures.controls == len(NAMES)


def test_every_control_is_on_the_page() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| control |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(NAMES)
