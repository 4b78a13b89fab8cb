"""Write docs/performance.md and its pictures from docs/performance.json. Run by `make bench` and `make docs`.

    python -m docs.make_performance

All is a function of that file and of this one, so a test can hold the committed ones against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from benchmarks.results import Figure, Report, Results, Verdict, number
from docs.plots import Bar, draw_bars, draw_lines

DOCS = Path(__file__).parent
MEASURED = DOCS / "performance.json"
BUSY = 0.5
"""A load average per core above this is not the benchmarks' own."""

INTRO = """\
# Performance

<!-- Written by docs/make_performance.py from performance.json; `make bench` measures anew. -->

Every figure here is measured by a command in [benchmarks/](../benchmarks/), and `make bench` runs them all.
Ratios are taken within one run, against bare SQLite or against the peer, so that they say more than
absolute figures about another machine. A figure is the median of its runs; where there were several, the
least and the greatest stand beside it. A budget that is missed is shown as missed.
"""

NOT_YET = """\
## Not measured yet

There is no figure for what is not there yet: a loop of our own, checkpoints of a workspace, the ACP proxy,
PostgreSQL and NATS, and 10,000 open sessions on one node: 1,000 are measured, and nothing is concluded from
them. What the peers lose when they are killed is no question of speed: `make versus` shows it
([examples/versus](../examples/versus/README.md)).
"""

HEADS = {
    "commands": "Commands",
    "fold": "Reading a journal",
    "keep": "Guard, shim and spool",
    "store": "The store, beside bare SQLite",
    "node": "A node with many open sessions",
    "turns": "Turns as a session grows",
    "restore": "Restoring, and reading whole",
    "writers": "Eight writers on one file",
    "beside": "Beside the peers",
}


def page(results: Results) -> str:
    """The whole page."""
    parts = [INTRO, machine(results), budgets(results.verdicts)]
    by_name = {report.benchmark: report for report in results.reports}
    for name, head in HEADS.items():
        if name in by_name:
            parts.append(section(head, by_name[name]))
    if results.failures:
        failed = "\n".join(f"- {failure}" for failure in results.failures)
        parts.append(f"## Benchmarks that did not come to an end\n\n{failed}\n")
    return "\n".join([*parts, NOT_YET])


def machine(results: Results) -> str:
    here = results.machine
    load = results.reports[0].load_before if results.reports else 0.0
    lines = [
        f"Measured on {results.measured_on}: {here.cpu}, {here.cores} cores,",
        f"{here.memory_gib:g} GiB of memory, {here.filesystem}, {here.kernel}, Python {here.python},",
        f"SQLite {here.sqlite}. The load average before the first benchmark was {load:g}.",
    ]
    if results.short:
        lines.append("\n**These were short runs, to try the benchmarks: the figures say little.**")
    elif load / here.cores > BUSY:
        lines.append("\n**The machine was busy with other things: figures are worse than they would be.**")
    return "\n".join([*lines, ""])


def budgets(verdicts: list[Verdict]) -> str:
    rows = ["## Budgets", "", "| budget | promised | measured | | command |", "|---|---|---|---|---|"]
    for verdict in verdicts:
        word = {None: "not measured", True: "met", False: "**missed**"}[verdict.met]
        value = "" if verdict.measured is None else number(verdict.measured, verdict.unit)
        rows.append(f"| {verdict.budget} | {verdict.bound} | {value} | {word} | `{verdict.command}` |")
    return "\n".join([*rows, ""])


def section(head: str, report: Report) -> str:
    rows = [f"## {head}", "", f"`{report.command}`, {report.seconds:g} s.", ""]
    rows += ["| figure | median | least to greatest |", "|---|---|---|"]
    for figure in report.figures:
        spread = f"{number(min(figure.runs))} to {number(max(figure.runs))}" if len(figure.runs) > 1 else ""
        rows.append(f"| {figure.what} | {number(figure.median, figure.unit)} | {spread} |")
    for note in report.notes:
        rows += ["", note]
    for name, title in names(report).items():
        rows += ["", f"![{title}]({name})"]
    return "\n".join([*rows, ""])


# --- pictures ------------------------------------------------------------------------------------

BARS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "store": (
        "rows",
        "Durable rows a second, in batches of 5–20, 100 sessions",
        ("store.raw_batches_rows_per_s", "store.batches_rows_per_s", "store.journal_batches_per_s"),
    ),
    "beside": (
        "recovery",
        "Recovery after a kill, milliseconds",
        ("beside.restore_few_ms", "beside.restore_many_ms", "beside.dbos_few_ms", "beside.dbos_many_ms"),
    ),
}
"""Of a benchmark: a picture's name, its title, and the figures that are its bars."""


def names(report: Report) -> dict[str, str]:
    """The pictures of a report: file names with titles."""
    found = {f"performance-{plot.key}.svg": plot.title for plot in report.plots}
    if report.benchmark in BARS:
        key, title, _ = BARS[report.benchmark]
        found[f"performance-{key}.svg"] = title
    return found


def pictures(results: Results) -> dict[str, str]:
    """Every picture as SVG text, by its file name."""
    drawn = {}
    for report in results.reports:
        for plot in report.plots:
            drawn[f"performance-{plot.key}.svg"] = draw_lines(plot)
        if report.benchmark in BARS:
            key, title, wanted = BARS[report.benchmark]
            figures = {figure.key: figure for figure in report.figures}
            drawn[f"performance-{key}.svg"] = draw_bars(title, [bar(figures[name]) for name in wanted])
    return drawn


def bar(figure: Figure) -> Bar:
    return Bar(figure.what, figure.median, number(figure.median, figure.unit))


def read() -> Results:
    return msgspec.json.decode(MEASURED.read_bytes(), type=Results)


def main() -> None:
    results = read()
    for old in DOCS.glob("performance-*.svg"):
        old.unlink()
    for name, svg in pictures(results).items():
        (DOCS / name).write_text(svg, encoding="utf-8")
    (DOCS / "performance.md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
