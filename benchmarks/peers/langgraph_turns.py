"""langgraph_turns.py DATABASE HALF MARK...: turns of one LangGraph thread, HALF bytes asked and answered.

At each mark (a number of turns): bytes of the database, and the median milliseconds of the ten turns before.
"""

import json
import sqlite3
import statistics
import sys
import time
from contextlib import closing
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph


def graph(saver: SqliteSaver, half: int) -> Any:
    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("y" * half)]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def main(database: str, half: int, marks: list[int]) -> None:
    found = []
    with SqliteSaver.from_conn_string(database) as saver:
        thread = graph(saver, half)
        config = {"configurable": {"thread_id": "bench"}}
        taken: list[float] = []
        for turn in range(1, marks[-1] + 1):
            begun = time.perf_counter()
            thread.invoke({"messages": [HumanMessage("x" * half)]}, config, durability="sync")
            taken.append((time.perf_counter() - begun) * 1e3)
            if turn in marks:
                pages = saver.conn.execute("PRAGMA page_count").fetchone()[0]
                size = pages * saver.conn.execute("PRAGMA page_size").fetchone()[0]
                found.append({"turns": turn, "bytes": size, "ms": statistics.median(taken[-10:])})
    with closing(sqlite3.connect(database)) as connection:
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    print(json.dumps({"marks": found, "journal": journal, "synchronous": synchronous}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [int(mark) for mark in sys.argv[3:]])
