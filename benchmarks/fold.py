"""Full replay of a journal without a snapshot: scan, verify the chain, decode, fold.

    python -m benchmarks.fold

Records per second of processor time of each step alone, of the whole replay out of an SQLite file as the
store lays it down, and of the raw scan and decode of the same records (rows in pages, as they are; bodies by
msgspec; no chain, no fold).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.running import Findings, Options, run
from outlast.clock import Micros
from outlast.ids import UUID7_RANDOM, uuid7
from outlast.journal.loading import fold_rows
from outlast.records import types as t
from outlast.records.codec import chain_of, encode_body, record_of, row_of
from outlast.records.envelope import Draft, Record, Stamp
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.store.contract import Row
from outlast.store.sqlite.packing import Earlier, packed, unpacking
from outlast.testing.journals import JournalBuilder, bodies

TEXT_BYTES = 300
SESSION = "0193a2f0-0000-7000-8000-000000000000"
EARLIER = "SELECT type, loop, turn, body FROM record WHERE s = 1 AND seq = ?"


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
        at = Micros(1_764_428_400_000_000 + seq)
        stamp = Stamp(seq, 1, uuid7(at, seq.to_bytes(UUID7_RANDOM)), at)
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


def store(rows: Iterable[tuple[Any, ...]], path: Path) -> apsw.Connection:
    """Rows in a file of the shape that the sqlite store has."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE record (s INTEGER, seq INTEGER, epoch, id, at, type, v, loop, turn, cause, actor, "
        "cursor, body, chain, UNIQUE (s, seq))"
    )
    with connection:
        connection.executemany("INSERT INTO record VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    return connection


def pages(connection: apsw.Connection) -> Iterator[list[tuple[Any, ...]]]:
    after = 0
    query = (
        "SELECT seq, epoch, id, at, type, v, loop, turn, cause, actor, cursor, body, chain FROM record "
        "WHERE s = 1 AND seq > ? AND seq <= ? + 1000 ORDER BY seq"
    )
    while page := connection.execute(query, (after, after)).fetchall():
        yield page
        after += 1000


def replay(connection: apsw.Connection) -> State:
    """As a session is opened that has no snapshot."""
    state = State(SESSION)
    for page in pages(connection):
        rows: list[Row] = []
        unpacked = unpacking(rows, lambda seq: connection.execute(EARLIER, (seq,)).fetchone())
        for values in page:
            rows.append(unpacked(values))
        assert fold_rows(state, rows) == len(page)
    return state


def raw(connection: apsw.Connection) -> None:
    decoders = {
        body.__name__: msgspec.json.Decoder(body).decode
        for body in vars(t).values()
        if isinstance(body, type) and issubclass(body, t.Body)
    }
    for page in pages(connection):
        for values in page:
            decoders[values[4]](values[11])


def rates(count: int, rounds: int, work: Callable[[], object]) -> list[float]:
    """Records per second of processor time of each round: no input or output is measured here."""
    found = []
    for _ in range(rounds):
        gc.collect()
        begun = time.process_time()
        work()
        found.append(count / (time.process_time() - begun))
    return found


def measure(options: Options) -> Findings:
    count, rounds = options.pick(50_000, 10_000), options.pick(5, 2)
    rows = rows_of(count, TEXT_BYTES)
    records = [record_of(row, SESSION) for row in rows]
    earlier = Earlier(1)
    connection = store([packed(1, row, earlier) for row in rows], options.folder / "journal.db")
    plain = store([(1, *row) for row in rows], options.folder / "plain.db")
    found = Findings()
    for key, what, work in (
        ("chain", "verify the chain", lambda: verify(rows)),
        ("decode", "decode", lambda: decode(rows)),
        ("fold", "fold", lambda: fold(records)),
    ):
        found.add(f"fold.{key}_per_s", f"records: {what}", "/s", rates(count, rounds, work))
    bare = rates(count, rounds, lambda: raw(plain))
    whole = rates(count, rounds, lambda: replay(connection))
    connection.close()
    plain.close()
    found.add("fold.raw_per_s", "records: raw scan and decode", "/s", bare)
    found.add("fold.replay_per_s", "records: full replay (scan, chain, decode, fold)", "/s", whole)
    shares = [ours / limit for ours, limit in zip(whole, bare, strict=True)]
    found.add("fold.replay_to_raw", "full replay, of raw scan and decode", "of raw", shares)
    size = sum(len(row.body) for row in rows) // count
    found.notes.append(f"{count:,} records with bodies of {size} bytes on average; processor time.")
    return found


if __name__ == "__main__":
    run("fold", measure)
