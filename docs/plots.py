"""Small plots as SVG text: lines over two axes, and bars. Pure; they stand on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.results import Plot

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 76, 42, 64, 58
COLOURS = ("#0f766e", "#a3256f", "#1d5aa6", "#b45309")
BAR_PITCH, BAR_HEIGHT, BAR_LEFT = 46, 18, 24

STYLE = """
  svg { color-scheme: light dark; }
  text { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; }
  .page { fill: #ffffff; stroke: #d9dee5; }
  .head { font-size: 15px; font-weight: 600; fill: #1c232c; }
  .label { font-size: 12.5px; fill: #64707f; }
  .name { font-size: 13px; fill: #1c232c; }
  .grid { stroke: #e8ecf1; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f141a; stroke: #2a323c; }
    .head, .name { fill: #e6ebf1; }
    .label { fill: #98a4b3; }
    .grid { stroke: #1f2731; }
  }
"""


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    shown: str


@dataclass(frozen=True)
class Axis:
    """Values between the first and the last tick, laid over pixels."""

    ticks: tuple[float, ...]
    place: Callable[[float], float]


def axis(values: Sequence[float], pixels: tuple[float, float], *, log: bool) -> Axis:
    """Over powers of ten, or from 0 in round steps."""
    start, end = pixels
    if log:
        low = math.floor(math.log10(min(values)))
        high = max(math.ceil(math.log10(max(values))), low + 1)
        ticks = tuple(10.0**power for power in range(low, high + 1))
        return Axis(ticks, lambda value: start + (end - start) * (math.log10(value) - low) / (high - low))
    step = round_step(max(values) / 5)
    count = math.ceil(max(values) / step)
    return Axis(
        tuple(step * n for n in range(count + 1)),
        lambda value: start + (end - start) * value / (step * count),
    )


def round_step(at_least: float) -> float:
    """The next of 1, 2, 5, 10, …"""
    power = 10.0 ** math.floor(math.log10(at_least))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= at_least)


def frame(title: str, description: str, height: int, inside: list[str]) -> str:
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="12"/>',
        f'<text class="head" x="24" y="34">{escape(title)}</text>',
        *inside,
    ]
    return "\n".join([*lines, "</svg>", ""])


def draw_lines(plot: Plot) -> str:
    """A picture of all lines of the plot, each with its name at its end."""
    points = [point for line in plot.lines for point in line.points]
    across = axis([x for x, _ in points], (LEFT, WIDTH - RIGHT), log=plot.log)
    up = axis([y for _, y in points], (HEIGHT - BOTTOM, TOP), log=plot.log)
    inside = []
    for tick in up.ticks:
        y = up.place(tick)
        inside.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        inside.append(text("label", LEFT - 8, y + 4, f"{tick:,g}", "end"))
    for tick in across.ticks:
        inside.append(text("label", across.place(tick), HEIGHT - BOTTOM + 20, f"{tick:,g}", "middle"))
    inside.append(text("label", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, plot.x, "middle"))
    inside.append(text("label", 24, TOP - 10, plot.y, "start"))
    for line, colour in zip(plot.lines, COLOURS, strict=False):
        placed = [(across.place(x), up.place(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        inside.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        inside += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in placed]
        x, y = placed[-1]
        inside.append(text("name", x - 6, y - 10, line.name, "end"))
    said = "; ".join(
        f"{line.name}: " + ", ".join(f"{y:g} at {x:,g}" for x, y in line.points) for line in plot.lines
    )
    return frame(plot.title, f"{said} ({plot.y} by {plot.x})", HEIGHT, inside)


def draw_bars(title: str, bars: Sequence[Bar]) -> str:
    """Bars from zero, the longest over the whole width, each with its label above and its value behind."""
    most = max(bar.value for bar in bars)
    room = WIDTH - 2 * BAR_LEFT - 110
    inside = []
    for index, (bar, colour) in enumerate(zip(bars, COLOURS, strict=False)):
        top = TOP + BAR_PITCH * index
        width = max(2.0, room * bar.value / most)
        inside.append(text("name", BAR_LEFT, top, bar.label, "start"))
        size = f'width="{width:.1f}" height="{BAR_HEIGHT}"'
        inside.append(f'<rect x="{BAR_LEFT}" y="{top + 6}" {size} rx="4" fill="{colour}"/>')
        inside.append(text("label", BAR_LEFT + width + 8, top + 6 + BAR_HEIGHT - 5, bar.shown, "start"))
    said = "; ".join(f"{bar.label}: {bar.shown}" for bar in bars)
    return frame(title, said, TOP + BAR_PITCH * len(bars) + 4, inside)


def text(kind: str, x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
