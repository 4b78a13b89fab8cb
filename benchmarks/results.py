"""What a benchmark hands in: figures of several runs, series for plots, and the machine they are of."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path

import apsw
import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One measured number. `runs` are its values, one of each run; the median is what counts."""

    key: str
    what: str
    unit: str
    runs: list[float]
    median: float = 0.0

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError(f"{self.key} has no runs")
        msgspec.structs.force_setattr(self, "runs", [rounded(value) for value in self.runs])
        msgspec.structs.force_setattr(self, "median", rounded(statistics.median(self.runs)))


class Line(msgspec.Struct, frozen=True):
    """One line of a plot: `[x, y]` points."""

    name: str
    points: list[tuple[float, float]]


class Plot(msgspec.Struct, frozen=True):
    """What a picture shows. `log` says that both axes are logarithmic."""

    key: str
    title: str
    x: str
    y: str
    lines: list[Line]
    log: bool = False


class Report(msgspec.Struct, frozen=True):
    """All that one benchmark has found. `notes` say precisely what was measured. The load is the average of
    the minute before it began, in runnable processes."""

    benchmark: str
    command: str
    seconds: float
    load_before: float
    figures: list[Figure]
    notes: list[str] = []
    plots: list[Plot] = []


class Machine(msgspec.Struct, frozen=True):
    """Where it was measured."""

    cpu: str
    cores: int
    memory_gib: float
    filesystem: str
    kernel: str
    python: str
    sqlite: str


class Verdict(msgspec.Struct, frozen=True):
    """A budget beside what was measured. `measured` is None where its benchmark gave no figure."""

    budget: str
    bound: str
    measured: float | None
    unit: str
    met: bool | None
    command: str


class Results(msgspec.Struct, frozen=True):
    """docs/performance.json."""

    measured_on: str
    machine: Machine
    short: bool
    """Whether it was a trial with short runs, whose figures say little."""
    reports: list[Report]
    verdicts: list[Verdict]
    failures: list[str]
    """Benchmarks that did not come to an end, each with why."""


def rounded(value: float) -> float:
    """Four significant digits are more than a second run repeats."""
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))


def number(value: float, unit: str = "") -> str:
    """For people."""
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:g}"
    return f"{shown} {unit}".strip()


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def load() -> float:
    return round(os.getloadavg()[0], 2)


def today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def machine(folder: Path) -> Machine:
    """This machine; `folder` is where the stores were."""
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        filesystem=filesystem(folder),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def filesystem(folder: Path) -> str:
    """The type of the filesystem that `folder` is on."""
    best, kind = "", "unknown"
    where = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, type_, *_ = line.split()
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, type_
    return kind
