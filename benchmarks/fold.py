"""Full replay of a journal without a snapshot: scan, verify the chain, decode, fold.

    python benchmarks/fold.py [RECORDS] [TEXT_BYTES]

Prints one JSON object: records per second of processor time of each step alone, of the whole replay out
of an SQLite file, and of the raw scan and decode of the same file (rows in pages, bodies by msgspec; no
chain, no fold). Budget: replay >= 0.33 of raw, and >= 200,000/s.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from outlast.records import types as t
from outlast.records.codec import chain_of, encode_body, record_of, row_of
from outlast.records.envelope import Draft, Record, Stamp
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.store.contract import Row
from outlast.testing.journals import JournalBuilder, bodies

ROUNDS = 5
SESSION = "0193a2f0-0000-7000-8000-000000000000"


def drafts(count: int, text_bytes: int) -> list[Draft]:
    """Turns of ten events each, one event of `text_bytes`."""
    journal = JournalBuilder()
    message = t.AgentEventRecorded(kind="message", text="x" * text_bytes)
    call = t.CallObserved(call="c", name="sh", status="completed", input="ls -la", output="y" * text_bytes)
    turn = 0
    while len(journal.drafts) < count:
        turn += 1
        name = f"0193a2f0-0000-7000-8000-{turn:012}"
        journal.accept(name).start(name, turn).add(bodies.attempt(1, "g" * 32), turn=name).reserve(name)
        journal.add(*([message, call] * 5), turn=name).done(name)
    return journal.drafts[:count]


def rows_of(count: int, text_bytes: int) -> list[Row]:
    rows: list[Row] = []
    chain = b""
    for seq, draft in enumerate(drafts(count, text_bytes), start=1):
        stamp = Stamp(seq, 1, f"0193a2f0-0000-7000-8000-{seq:012}", 1_764_428_400_000_000 + seq)
        rows.append(row_of(draft, encode_body(draft.body), stamp, SESSION, chain))
        chain = rows[-1].chain
    return rows


def verify(rows: list[Row]) -> None:
    chain = b""
    for row in rows:
        chain = chain_of(chain, SESSION, row)
        assert chain == row.chain


def decode(rows: list[Row]) -> None:
    for row in rows:
        record_of(row, SESSION)


def fold(records: list[Record]) -> State:
    state = State(SESSION)
    for record in records:
        apply(state, record)
    return state


def store(rows: list[Row], path: Path) -> apsw.Connection:
    """The rows in a file of the shape that the sqlite store has."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE record (s INTEGER, seq INTEGER, epoch, id, at, type, v, loop, turn, cause, actor, "
        "cursor, body, chain, UNIQUE (s, seq))"
    )
    with connection:
        connection.executemany("INSERT INTO record VALUES (1, ?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    return connection


def scan(connection: apsw.Connection) -> Iterator[tuple[Any, ...]]:
    after = 0
    query = (
        "SELECT seq, epoch, id, at, type, v, loop, turn, cause, actor, cursor, body, chain FROM record "
        "WHERE s = 1 AND seq > ? AND seq <= ? + 1000 ORDER BY seq"
    )
    while page := connection.execute(query, (after, after)).fetchall():
        yield from page
        after += 1000


def replay(connection: apsw.Connection) -> State:
    state, chain = State(SESSION), b""
    for values in scan(connection):
        row = Row._make(values)
        chain = chain_of(chain, SESSION, row)
        assert chain == row.chain
        apply(state, record_of(row, SESSION))
    return state


def raw(connection: apsw.Connection) -> None:
    decoders = {
        body.__name__: msgspec.json.Decoder(body).decode
        for body in vars(t).values()
        if isinstance(body, type) and issubclass(body, t.Body)
    }
    for values in scan(connection):
        decoders[values[4]](values[11])


def rate(count: int, work: Callable[[], object]) -> int:
    """Records per second of processor time, the best of some rounds: no input or output is measured here."""
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return int(count / best)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    text_bytes = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    rows = rows_of(count, text_bytes)
    records = [record_of(row, SESSION) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        connection = store(rows, Path(folder) / "journal.db")
        figures = {
            "chain": rate(count, lambda: verify(rows)),
            "decode": rate(count, lambda: decode(rows)),
            "fold": rate(count, lambda: fold(records)),
            "raw_scan_and_decode": rate(count, lambda: raw(connection)),
            "replay": rate(count, lambda: replay(connection)),
        }
        connection.close()
    result = {
        "records": count,
        "body_bytes": sum(len(row.body) for row in rows) // count,
        "per_second": figures,
        "replay_to_raw": round(figures["replay"] / figures["raw_scan_and_decode"], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
