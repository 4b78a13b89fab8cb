"""How a benchmark is run by itself: its arguments, its throw-away folder, its printed lines and its JSON."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.results import Figure, Plot, Report, load, number


@dataclass(frozen=True)
class Options:
    """`folder` is empty, on the disk that is to be measured. `short` is for trying: less of everything."""

    folder: Path
    short: bool

    def pick(self, whole: int, short: int) -> int:
        return short if self.short else whole


@dataclass
class Findings:
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    def add(self, key: str, what: str, unit: str, runs: list[float]) -> None:
        self.figures.append(Figure(key, what, unit, runs))


def run(name: str, measure: Callable[[Options], Findings]) -> None:
    """Measure and print; `--json FILE` writes the report too."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; the default is that of /tmp")
    parser.add_argument("--short", action="store_true", help="less of everything, to try it")
    parser.add_argument("--json", type=Path, help="write the report there")
    arguments = parser.parse_args()
    before, begun = load(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=arguments.folder) as folder:
        # What a store leaves in the state folder goes with the rest.
        os.environ["OUTLAST_STATE_DIR"] = str(Path(folder) / "state")
        found = measure(Options(Path(folder), arguments.short))
    report = Report(
        benchmark=name,
        command=f"python -m benchmarks.{name}",
        seconds=round(time.monotonic() - begun, 1),
        load_before=before,
        figures=found.figures,
        notes=found.notes,
        plots=found.plots,
    )
    for line in lines(report):
        print(line)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(report))


def lines(report: Report) -> list[str]:
    """The report for people."""
    width = max((len(figure.what) for figure in report.figures), default=0)
    shown = [f"{report.benchmark}: {report.seconds} s, load before {report.load_before}"]
    for figure in report.figures:
        least, most = number(min(figure.runs)), number(max(figure.runs))
        spread = f"  ({len(figure.runs)} runs: {least} to {most})" if len(figure.runs) > 1 else ""
        shown.append(f"  {figure.what:<{width}}  {number(figure.median):>12} {figure.unit}{spread}")
    return shown + [f"  {note}" for note in report.notes]
