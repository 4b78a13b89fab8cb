"""The budgets that can be measured so far: what is promised, which figure tells, and the bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.results import Figure, Report, Verdict


@dataclass(frozen=True)
class Budget:
    """`figure` is to be at least, or at most, `bound`."""

    name: str
    figure: str
    sense: Literal["at least", "at most"]
    bound: float
    unit: str

    def met(self, value: float) -> bool:
        return value >= self.bound if self.sense == "at least" else value <= self.bound


BUDGETS = (
    Budget("rows in batches of 5–20, 100 sessions, at the store: of raw commits",
           "store.batches_to_raw", "at least", 0.5, "of raw"),
    Budget("the same through the journal (encode, chain, fold, catalog)",
           "store.journal_batches_to_raw", "at least", 0.5, "of raw"),
    Budget("appends of one record, each acknowledged, 100 callers, at the store",
           "store.singles_per_s", "at least", 30_000, "/s"),
    Budget("the same through the journal", "store.journal_singles_per_s", "at least", 30_000, "/s"),
    Budget("appends beside an event loop that is busy in 4 ms ticks: 99 of 100 within",
           "store.busy_loop_p99_ms", "at most", 50, "ms"),
    Budget("one append alone, at the store: to a raw FULL commit",
           "store.alone_to_raw", "at most", 2.5, "x raw"),
    Budget("one append alone, through the journal: to a raw FULL commit",
           "store.journal_alone_to_raw", "at most", 2.5, "x raw"),
    Budget("eight writers on one file: least share", "writers.least_share", "at least", 0.7, ""),
    Budget("eight writers on one file: 99 of 100 appends within", "writers.p99_ms", "at most", 50, "ms"),
    Budget("eight writers on one file: longest wait", "writers.longest_ms", "at most", 250, "ms"),
    Budget("steps of two commits (no loop of our own yet): to DBOS on SQLite as it comes",
           "beside.steps_to_dbos", "at least", 2.5, "x"),
    Budget("the same, to DBOS with its file set to WAL by hand",
           "beside.steps_to_faster_dbos", "at least", 2.5, "x"),
    Budget("full replay with chain check: of raw scan and decode",
           "fold.replay_to_raw", "at least", 0.33, "of raw"),
    Budget("full replay with chain check", "fold.replay_per_s", "at least", 200_000, "/s"),
    Budget("the same through the store, 1,000,000 records",
           "restore.replay_1000000_per_s", "at least", 200_000, "/s"),
    Budget("restore, 1,000,000 records to 10", "restore.ratio", "at most", 2, "x"),
    Budget("the same with the longest tail after a snapshot", "restore.long_tail_ratio", "at most", 2, "x"),
    Budget("restore of 1,000,000 records, longest tail", "restore.long_tail_1000000_ms", "at most", 50, "ms"),
    Budget("restore after a kill in mid turn, 2,000 steps to 10", "beside.restore_ratio", "at most", 2, "x"),
    Budget("restore after a kill in mid turn, 2,000 steps", "beside.restore_many_ms", "at most", 50, "ms"),
    Budget("a turn after 10,000 turns, to one after 100", "turns.real_ratio", "at most", 1.3, "x"),
    Budget("its records alone, without the agent", "turns.records_ratio", "at most", 1.3, "x"),
    Budget("stored bytes to content, 10,000 turns of 1 KiB", "turns.bytes_1024_10000", "at most", 2, "x"),
    Budget("wake of another process through the store, median", "store.wake_p50_ms", "at most", 3, "ms"),
    Budget("processor time of an idle owner", "store.idle_cpu_percent", "at most", 0.2, "%"),
    Budget("outlast --help", "commands.help_ms", "at most", 150, "ms"),
    Budget("outlast ls, 1,000 sessions", "commands.ls_ms", "at most", 150, "ms"),
)  # fmt: skip


def judged(reports: list[Report]) -> list[Verdict]:
    """Each budget beside its figure; not measured is neither met nor missed."""
    found: dict[str, tuple[Figure, str]] = {
        figure.key: (figure, report.command) for report in reports for figure in report.figures
    }
    verdicts = []
    for budget in BUDGETS:
        figure, command = found.get(
            budget.figure, (None, f"python -m benchmarks.{budget.figure.split('.')[0]}")
        )
        value = figure.median if figure else None
        verdicts.append(
            Verdict(
                budget=budget.name,
                bound=f"{budget.sense} {budget.bound:,g} {budget.unit}".strip(),
                measured=value,
                unit=budget.unit,
                met=None if value is None else budget.met(value),
                command=command,
            )
        )
    return verdicts
