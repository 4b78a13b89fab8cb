"""Every benchmark, one after another, and every budget beside its figure.

    python -m benchmarks [NAME...] [--short] [--folder DIR] [--out FILE]

`make bench` runs all and writes docs/performance.json. A benchmark that fails is named, and the others are
kept: the exit status is 1 then. A budget that is missed is no failure of the run. Run it when nothing else
runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.budgets import judged
from benchmarks.results import Report, Results, Verdict, machine, number, today

NAMES = ("commands", "fold", "keep", "store", "node", "turns", "restore", "writers", "beside")
PATIENCE = 300.0
"""Seconds that one benchmark may take."""


def one(name: str, scratch: Path, arguments: list[str]) -> Report | str:
    """Its report, or why there is none."""
    file = scratch / f"{name}.json"
    argv = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file), *arguments]
    try:
        status = subprocess.run(argv, check=False, timeout=PATIENCE).returncode
    except subprocess.TimeoutExpired:
        return f"{name}: it took longer than {PATIENCE:.0f} s and was ended"
    if status != 0 or not file.exists():
        return f"{name}: it ended with status {status}"
    return msgspec.json.decode(file.read_bytes(), type=Report)


def shown(verdict: Verdict) -> str:
    word = {None: "not measured", True: "met", False: "MISSED"}[verdict.met]
    value = "" if verdict.measured is None else number(verdict.measured, verdict.unit)
    return f"  {word:<12}  {value:>16}  {verdict.bound:<22}  {verdict.budget}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--short", action="store_true", help="less of everything, to try it")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; the default is that of /tmp")
    parser.add_argument("--out", type=Path, help="write all results there as JSON")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    passed = ["--short"] if arguments.short else []
    if arguments.folder:
        passed += ["--folder", str(arguments.folder)]
    reports: list[Report] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        for name in arguments.names or NAMES:
            found = one(name, Path(scratch), passed)
            if isinstance(found, Report):
                reports.append(found)
            else:
                failures.append(found)
        here = machine(Path(scratch))
    results = Results(today(), here, arguments.short, reports, judged(reports), failures)
    for verdict in results.verdicts:
        if verdict.met is not None or not arguments.names:
            print(shown(verdict))
    for failure in failures:
        print(f"  FAILED  {failure}")
    if arguments.out:
        data = msgspec.json.encode(results)
        arguments.out.write_bytes(msgspec.json.format(data, indent=1) + b"\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
