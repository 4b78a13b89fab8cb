"""Write what the crash campaign found into README.md and docs/campaign.md. Run by `make docs`; the figures
are those of docs/campaign.json, which `make campaign SAVE=docs/campaign.json` writes."""

import json
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE / "campaign.json"
PAGES = (HERE / "campaign.md", HERE.parent / "README.md")
BEGIN, END = "<!-- campaign: written by make_campaign.py -->", "<!-- end of campaign -->"


def table(figures: dict[str, int]) -> str:
    """The figures as a Markdown table."""
    said = {name: f"{value:,}" for name, value in figures.items()}
    cut = f"{said['cut_restores']}, {said['replaced']}"
    rows = [
        ("fault points in the code, of them killed at", f"{said['points']}, {said['killed_at']}"),
        ("passages of points while the story is told once", said["passages"]),
        ("schedules, processes killed in them", f"{said['schedules']}, {said['kills']}"),
        ("of them restores killed too, owners replaced asleep", cut),
        ("**acknowledged and lost**", f"**{said['lost']}**"),
        ("**happened twice**", f"**{said['doubled']}**"),
        ("**invariants violated, or else wrong**", f"**{said['broken']}**"),
        (
            "**broken builds found out**",
            f"**{said['controls_caught']} of {said['controls']}**, in each of {said['control_runs']} runs",
        ),
    ]
    lines = (f"| {words} | {value} |" for words, value in rows)
    return "\n".join(["| the campaign | |", "|---|---|", *lines])


def current(page: str) -> str:
    """`page` with the figures as they should be."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"a page has lost the lines {BEGIN} and {END}")
    figures: dict[str, int] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return f"{before}{BEGIN}\n{table(figures)}\n{END}{after}"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(current(page.read_text(encoding="utf-8")), encoding="utf-8")
