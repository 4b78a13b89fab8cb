"""Draw docs/ladder.svg: what may die under a session, and what happens then. Run by `make docs`.

The picture is a function of this file alone, so a test can hold the committed one against it.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).with_name("ladder.svg")


@dataclass(frozen=True)
class Rung:
    """One thing that may die: its name, how that looks, what outlast does then, and the bar's colour.

    The colours carry white letters and stand on a light and on a dark page.
    """

    name: str
    death: str
    answer: str
    colour: str


RUNGS = (
    Rung(
        "the client",
        "a closed tab, editor or terminal; a dropped connection",
        "The turn runs on. Whoever comes back picks it up and reads what was missed.",
        "#0f766e",
    ),
    Rung(
        "the agent",
        "a crash, out of memory, a time-out, a hang",
        "Its own session goes on. The failed step is named, and not run again.",
        "#0e6a86",
    ),
    Rung(
        "the runtime",
        "kill -9 in mid turn",
        "The agent works on. The next runtime attaches to it and finishes the same turn.",
        "#1d5aa6",
    ),
    Rung(
        "the machine",
        "a reboot, a power cut",
        "Back to the last durable record. Open turns are closed openly, never guessed.",
        "#3f4bb0",
    ),
    Rung(
        "the node",
        "gone for good, or only asleep",
        "Another node takes over with a higher epoch. The old one can write nothing more.",
        "#6340ae",
    ),
    Rung(
        "the record",
        "torn, flipped, edited or missing bytes; a full disk",
        "Found, named and set aside. Everything before it stays readable.",
        "#852f9b",
    ),
    Rung(
        "the deadly turn",
        "an input that kills its agent every time",
        "Stopped after a limit and parked. The session stays usable.",
        "#a3256f",
    ),
)

WIDTH = 920
TOP = 74
PITCH = 70
BAR_HEIGHT = 40
RAIL_LEFT, RAIL_RIGHT, RAIL_WIDTH = 34, 222, 8
TEXT_LEFT = 264
HEIGHT = TOP + PITCH * len(RUNGS) + 22

STYLE = """
  svg { color-scheme: light dark; }
  text { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; }
  .page { fill: #ffffff; stroke: #d9dee5; }
  .rail { fill: #b9c2ce; }
  .head { font-size: 13px; font-weight: 600; letter-spacing: 0.06em; fill: #64707f; }
  .name { font-size: 16px; font-weight: 600; fill: #ffffff; }
  .number { font-size: 14px; font-weight: 700; text-anchor: middle; fill: #ffffff; }
  .badge { fill: #000000; fill-opacity: 0.2; }
  .death { font-size: 13.5px; fill: #64707f; }
  .answer { font-size: 15px; fill: #1c232c; }
  .line { stroke: #e8ecf1; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f141a; stroke: #2a323c; }
    .rail { fill: #4a5562; }
    .head, .death { fill: #98a4b3; }
    .answer { fill: #e6ebf1; }
    .line { stroke: #1f2731; }
  }
"""


def draw_rung(index: int, rung: Rung) -> list[str]:
    """The bar with its number and name, and the two lines beside it; the first rung is the lowest."""
    middle = TOP + PITCH * (len(RUNGS) - 1 - index) + PITCH // 2
    bar_left, bar_width = RAIL_LEFT - 6, RAIL_RIGHT + RAIL_WIDTH - RAIL_LEFT + 12
    bar_top, fill = middle - BAR_HEIGHT // 2, f'fill="{rung.colour}"'
    badge = bar_left + 24
    return [
        f'<rect x="{bar_left}" y="{bar_top}" width="{bar_width}" height="{BAR_HEIGHT}" rx="8" {fill}/>',
        f'<circle class="badge" cx="{badge}" cy="{middle}" r="13"/>',
        f'<text class="number" x="{badge}" y="{middle + 5}">{index + 1}</text>',
        f'<text class="name" x="{badge + 26}" y="{middle + 6}">{escape(rung.name)}</text>',
        f'<text class="death" x="{TEXT_LEFT}" y="{middle - 6}">{escape(rung.death)}</text>',
        f'<text class="answer" x="{TEXT_LEFT}" y="{middle + 15}">{escape(rung.answer)}</text>',
    ]


def draw() -> str:
    """The whole picture as SVG text that ends in a newline."""
    rail_top, rail_height = TOP - 14, PITCH * len(RUNGS) + 20
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    in_words = " ".join(f"{n}. {rung.name}: {rung.death}. {rung.answer}" for n, rung in enumerate(RUNGS, 1))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
        '<title id="title">The ladder of outlast</title>',
        f'<desc id="description">{escape(in_words)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12"/>',
        f'<text class="head" x="{RAIL_LEFT - 6}" y="38">WHAT DIES</text>',
        f'<text class="head" x="{TEXT_LEFT}" y="38">WHAT HAPPENS THEN</text>',
    ]
    lines += [
        f'<rect class="rail" x="{x}" y="{rail_top}" width="{RAIL_WIDTH}" height="{rail_height}" rx="4"/>'
        for x in (RAIL_LEFT, RAIL_RIGHT)
    ]
    lines += [
        f'<line class="line" x1="{TEXT_LEFT}" x2="{WIDTH - 28}" y1="{y}" y2="{y}"/>'
        for y in range(TOP + PITCH, TOP + PITCH * len(RUNGS), PITCH)
    ]
    for index, rung in enumerate(RUNGS):
        lines += draw_rung(index, rung)
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
