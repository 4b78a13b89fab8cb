"""workflow.py FOLDER: a DBOS workflow of six steps; started again, it recovers.

A step leaves its effect in FOLDER/effects, waits for the file FOLDER/go-STEP, and returns: as the agent of
ours does. Prints the workflow's end. Ends itself after LIMIT seconds.
"""

import os
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from dbos import DBOS, SetWorkflowID

STEPS, LIMIT = 6, 90.0
FOLDER = Path(sys.argv[1])


@DBOS.step()
def step(number: int) -> int:
    file = os.open(FOLDER / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"step {number} process {os.getpid()}\n".encode())
    os.fsync(file)
    os.close(file)
    while not (FOLDER / f"go-{number}").exists():
        time.sleep(0.005)
    return number


@DBOS.workflow()
def workflow() -> int:
    return sum(step(number) for number in range(1, STEPS + 1))


def main() -> None:
    threading.Timer(LIMIT, os._exit, (1,)).start()
    database = FOLDER / "dbos.db"
    if not database.exists():
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    DBOS(
        config={
            "name": "outlast-versus",
            "system_database_url": f"sqlite:///{database}",
            "log_level": "ERROR",
            "application_version": "1",
        }
    )
    DBOS.launch()  # recovers what a killed process of this version has left
    with SetWorkflowID("the-workflow"):
        print("done", DBOS.start_workflow(workflow).get_result(), flush=True)
    os._exit(0)


main()
