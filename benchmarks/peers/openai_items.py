"""openai_items.py DATABASE SECONDS: items a second into an OpenAI Agents SQLiteSession, one after another."""

import asyncio
import json
import sqlite3
import sys
import time
from contextlib import closing

from agents import SQLiteSession


async def add(database: str, seconds: float) -> float:
    session = SQLiteSession("bench", database)
    item = {"role": "assistant", "content": "x" * 180}
    for _ in range(50):
        await session.add_items([item])
    count, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + seconds:
        await session.add_items([item])
        count += 1
    took = time.perf_counter() - begun
    session.close()
    return count / took


def main(database: str, seconds: float) -> None:
    rate = asyncio.run(add(database, seconds))
    with closing(sqlite3.connect(database)) as connection:
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    print(json.dumps({"items_per_s": rate, "journal": journal, "synchronous": synchronous}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
