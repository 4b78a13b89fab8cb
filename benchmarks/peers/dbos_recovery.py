"""dbos_recovery.py DATABASE (begin|recover) STEPS: a workflow that has done STEPS steps and is in its last.

`begin` prints a line when it is there, and is to be killed. `recover` prints the milliseconds from the
construction of DBOS until it is there again. Both stay there for LIMIT seconds at most.
"""

import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from dbos import DBOS, SetWorkflowID

LIMIT = 60.0
begun = 0.0


@DBOS.step()
def step(number: int) -> str:
    return "x" * 180


@DBOS.step()
def last() -> None:
    print(json.dumps({"ms": (time.perf_counter() - begun) * 1e3}), flush=True)
    time.sleep(LIMIT)
    os._exit(1)


@DBOS.workflow()
def workflow(steps: int) -> None:
    for number in range(steps):
        step(number)
    last()


def main(database: str, role: str, steps: int) -> None:
    global begun  # noqa: PLW0603 - the workflow's functions are global too
    if not Path(database).exists():
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    begun = time.perf_counter()
    DBOS(
        config={
            "name": "outlast-bench",
            "system_database_url": f"sqlite:///{database}",
            "log_level": "ERROR",
            "application_version": "1",
        }
    )
    DBOS.launch()
    if role == "begin":
        with SetWorkflowID("the-workflow"):
            workflow(steps)
    time.sleep(LIMIT)  # its recovery runs in a thread


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
