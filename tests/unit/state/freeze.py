"""Freeze a generated journal: `python -m tests.unit.state.freeze` makes the next file of `frozen`.

The smallest one is taken that holds every record type which no frozen journal has yet.
"""

from __future__ import annotations

import json
from pathlib import Path

from outlast.records.registry import REGISTRY
from outlast.testing.journals import GeneratedJournal, random_journal

FROZEN = Path(__file__).parent / "frozen"


def missing() -> set[str]:
    """Record types without a frozen example."""
    lines = [line for path in FROZEN.iterdir() for line in path.read_text("utf-8").splitlines()]
    return set(REGISTRY.names) - {json.loads(line)["type"] for line in lines}


def smallest(types: set[str]) -> GeneratedJournal:
    """The shortest generated journal with all of these types."""
    for moves in range(10, 200, 10):
        made = (random_journal(seed, moves) for seed in range(200))
        found = [journal for journal in made if types <= {record.type for record in journal.records}]
        if found:
            return min(found, key=lambda journal: len(journal.rows))
    raise SystemExit(f"no generated journal holds all of {sorted(types)}")


def lines(journal: GeneratedJournal) -> list[str]:
    shown = []
    for row in journal.rows:
        fields = row._asdict() | {"body": row.body.decode()}
        for name in ("id", "chain", "cursor"):
            fields[name] = None if fields[name] is None else fields[name].hex()
        shown.append(json.dumps(fields, separators=(",", ":")))
    return shown


def main() -> None:
    types = missing()
    if not types:
        raise SystemExit("every record type has a frozen example")
    path = FROZEN / f"{len(list(FROZEN.iterdir())) + 1}.jsonl"
    path.write_text("\n".join(lines(smallest(types))) + "\n", "utf-8")
    print(f"{path.name}: {', '.join(sorted(types))}")


if __name__ == "__main__":
    main()
