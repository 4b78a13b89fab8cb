"""dbos_steps.py DATABASE (default|wal) STEPS: steps a second of one DBOS workflow."""

import json
import sqlite3
import sys
import time
from contextlib import closing

from dbos import DBOS

TEXT = "x" * 180


@DBOS.step()
def step(number: int) -> str:
    return TEXT


@DBOS.workflow()
def workflow(steps: int) -> float:
    begun = time.perf_counter()
    for number in range(steps):
        step(number)
    return time.perf_counter() - begun


def main(database: str, mode: str, steps: int) -> None:
    if mode == "wal":
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # stays with the file
    DBOS(
        config={
            "name": "outlast-bench",
            "system_database_url": f"sqlite:///{database}",
            "log_level": "ERROR",
            "application_version": "1",
        }
    )
    DBOS.launch()
    workflow(50)
    seconds = workflow(steps)
    DBOS.destroy()
    with closing(sqlite3.connect(database)) as connection:
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    print(json.dumps({"steps_per_s": steps / seconds, "journal": journal, "synchronous": synchronous}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
