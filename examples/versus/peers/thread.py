"""thread.py FOLDER (begin|resume): a LangGraph thread of six nodes under SqliteSaver.

A node leaves its effect in FOLDER/effects, waits for the file FOLDER/go-NODE, and returns. `resume` opens
the thread, prints a line, and goes on with it once a line comes on standard input. Ends itself after LIMIT
seconds.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

NODES, LIMIT = 6, 90.0
FOLDER = Path(sys.argv[1])


class Thread(TypedDict):
    done: int


def node(number: int) -> Callable[[Thread], Thread]:
    def work(state: Thread) -> Thread:
        file = os.open(FOLDER / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"step {number} process {os.getpid()}\n".encode())
        os.fsync(file)
        os.close(file)
        while not (FOLDER / f"go-{number}").exists():
            time.sleep(0.005)
        return {"done": number}

    return work


def main(role: str) -> None:
    threading.Timer(LIMIT, os._exit, (1,)).start()
    builder = StateGraph(Thread)
    for number in range(1, NODES + 1):
        builder.add_node(f"node-{number}", node(number))
        builder.add_edge(START if number == 1 else f"node-{number - 1}", f"node-{number}")
    builder.add_edge(f"node-{NODES}", END)
    with SqliteSaver.from_conn_string(str(FOLDER / "thread.db")) as saver:
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "the-thread"}}
        if role == "resume":
            print("there", flush=True)
            sys.stdin.readline()
        given = {"done": 0} if role == "begin" else None  # None: go on where the checkpoint is
        result = graph.invoke(given, config, durability="sync")
        print("done", result["done"], flush=True)
    os._exit(0)


main(sys.argv[2])
