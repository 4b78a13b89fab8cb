"""Records are laid down packed and come back byte for byte; damaged ones come back changed, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stores import admit
from tests.unit.journal.test_journal import opened, opening

from outlast.errors import IntegrityError
from outlast.ids import derived_id
from outlast.journal import Journal, read_records
from outlast.records import types as t
from outlast.records.envelope import Cursor, Draft
from outlast.records.registry import REGISTRY
from outlast.store.contract import Row, Store
from outlast.store.sqlite.packing import (
    CUT,
    FORMS,
    REACH,
    TYPES,
    Columns,
    Earlier,
    PackingError,
    packed,
    unpacking,
)
from outlast.store.url import database_path, open_store, sqlite_url
from outlast.testing.journals import random_journal

FROZEN = Path(__file__).parent / "frozen"
LOOP = derived_id("loop")
TURNS = [derived_id("turn", number) for number in range(3)]


def laid_down(rows: Sequence[Row]) -> list[Columns]:
    earlier = Earlier(1)
    return [packed(1, row, earlier)[1:] for row in rows]


def found_again(stored: Sequence[Columns], after: int = 0) -> list[Row]:
    """One page, from there on."""

    def find(seq: int) -> Columns | None:
        place = next((row for row in stored if row[0] == seq), None)
        return None if place is None else (place[4], place[6], place[7], place[11])

    page: list[Row] = []
    unpacked = unpacking(page, find)
    for values in stored[after:]:
        page.append(unpacked(values))
    return page


ids = st.one_of(
    st.none(),
    st.sampled_from([LOOP, *TURNS]),
    st.uuids().map(str),
    st.sampled_from(["", "main", LOOP.upper(), LOOP.replace("-", ""), "0" * 36, "-" * 36, "\0", "é" * 36]),
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b'{"kind":"message","text":"',
            b'{"kind":"message","text":"\0\1"}',
            b'{"request_id":"%b","content":[{"type":"text","text":"hi\0"}]}' % TURNS[0].encode(),
            b'{"index":2,"request_id":"%b","settings":{"agent":"a","model":""}}' % TURNS[0].encode(),
            b'{"index":2,"request_id":"%b","settings":{"agent":"a\0","model":""}}' % TURNS[0].encode(),
            b'{"generation":"gen-1","seq":1,"key":"%b","digest":"d"}' % TURNS[1].encode(),
            b'{"stop_reason":"end_turn"}',
            *(
                b'{"generation":"gen-1","offset":1,"stdout":2,"last_input":3,"state":"%b"}' % state
                for state in (b"", b"AA==", b"AB==", b"AAAA", b"A", b"AAA", b"====", b"AAAA====")
            ),
        ]
    ),
    st.builds(
        lambda a, f, b, p: (
            b'{"attempt":%d,"folder":"%b","generation":"g","machine":"\1","boot_id":"%b","processes":['
            b'{"role":"guard","pid":%d,"start_ticks":1},{"role":"shim","pid":2,"start_ticks":2}]}'
            % (a, f, b, p)
        ),
        st.integers(1, 2),
        st.sampled_from([b"/a", b"/b", b"", b'/\\"']),
        st.sampled_from([b"boot", b"\0"]),
        st.integers(1, 3),
    ),
)


@st.composite
def journals(draw: st.DrawFn) -> list[Row]:
    rows = []
    seq = draw(st.sampled_from([0, 1, 254, 2**40]))
    for _ in range(draw(st.integers(1, 12))):
        seq += 1
        rows.append(
            Row(
                seq,
                1,
                b"i" * 16,
                5,
                draw(st.sampled_from([*FORMS, "Fence", "TurnDreamt", "", "\x00"])),
                1,
                draw(ids),
                draw(ids),
                draw(ids),
                None,
                None,
                draw(bodies),
                b"c" * 16,
            )
        )
    return rows


@given(journals(), st.data())
def test_what_is_laid_down_is_found_again_from_every_place(rows: list[Row], data: st.DataObject) -> None:
    stored = laid_down(rows)
    assert found_again(stored) == rows
    after = data.draw(st.integers(0, len(rows) - 1))
    assert found_again(stored, after) == rows[after:]


@pytest.mark.parametrize("seed", range(10))
def test_generated_journals_come_back(seed: int) -> None:
    rows = list(random_journal(seed, 100).rows)
    stored = laid_down(rows)
    assert found_again(stored) == rows
    for after in range(0, len(rows), 7):
        assert found_again(stored, after) == rows[after:]


def a_turn(number: int) -> list[Draft]:
    """The records of a turn with an agent, as the drivers write them."""
    turn = TURNS[number] if number < len(TURNS) else derived_id("turn", number)
    generation = f"gen-{number:06}"
    content = [t.Content(text="x" * 512)]
    attempt = t.TurnAttemptStarted(
        attempt=1,
        folder="/home/somebody/.local/state/outlast/outlast.d/agents/" + LOOP,
        generation=generation,
        machine="0" * 32,
        boot_id=LOOP,
        processes=[
            t.Process(role="guard", pid=1000 + number, start_ticks=300_000 + number),
            t.Process(role="shim", pid=2000 + number, start_ticks=300_001 + number),
        ],
    )
    cursor = Cursor(generation, 4096 * number, 1000 * number, 1)
    return [
        Draft(t.InputAccepted(request_id=turn, content=content), LOOP, None, turn),
        Draft(
            t.TurnStarted(request_id=turn, index=number + 1, settings={"agent": "a", "model": ""}),
            LOOP,
            turn,
            turn,
        ),
        Draft(attempt, LOOP, turn),
        Draft(t.InputReserved(generation=generation, seq=1, key=turn, digest="d" * 64), LOOP, turn),
        Draft(t.AgentEventRecorded(kind="message", text="y" * 512), LOOP, turn, None, None, cursor),
        Draft(t.CallObserved(call="c", name="sh", status="started"), LOOP, turn, None, None, cursor),
        Draft(t.TurnDone(stop_reason="end_turn"), LOOP, turn),
        Draft(
            t.AgentStateFolded(
                generation=generation, offset=7, stdout=5, last_input=1, state=b"\0" * (number % 4)
            ),
            LOOP,
        ),
    ]


async def with_turns(store: Store, turns: range, name: str = "s") -> Journal:
    lease = await store.acquire(name)
    journal = await Journal.open(store, lease)
    fence, started, _ = opening(lease.epoch)
    loop = Draft(t.LoopStarted(loop=LOOP, name="main", agent="a", agent_kind="command"), loop=LOOP)
    await journal.append([fence, started, loop])
    for number in turns:
        await further_turn(store, journal, number)
    return journal


async def further_turn(store: Store, journal: Journal, number: int, *without: type[t.Body]) -> None:
    drafts = [draft for draft in a_turn(number) if not isinstance(draft.body, without)]
    await admit(store, journal.name, drafts[0].cause or "")
    await journal.append(drafts, settle=[(drafts[0].cause or "", 0)])


def of_the_file(store: Store, sql: str) -> list[tuple[apsw.SQLiteValue, ...]]:
    connection = apsw.Connection(str(database_path(store.url, {})))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def test_what_the_codec_writes_has_the_forms_that_are_known(store: Store) -> None:
    """Else every turn would be kept in more bytes, and nothing else would show it."""
    await with_turns(store, range(2))
    codes = {bytes(code)[0] for (code,) in of_the_file(store, "SELECT type FROM record")}  # type: ignore[arg-type]
    assert {TYPES[code & ~CUT] for code in codes if code & CUT} == set(FORMS)
    assert {TYPES[code] for code in codes if not code & CUT}.isdisjoint(FORMS)


def test_every_record_type_has_a_place() -> None:
    assert set(TYPES) == set(REGISTRY.names)
    assert len(TYPES) == len(set(TYPES)) < CUT


async def test_a_kibibyte_of_content_is_stored_in_less_than_two(store: Store) -> None:
    """Of a turn whose agent calls no tools and ends with it."""
    journal = await with_turns(store, range(100))
    pages = "SELECT page_count FROM pragma_page_count"
    (before,) = of_the_file(store, pages)[0]
    for number in range(100, 600):
        await further_turn(store, journal, number, t.CallObserved, t.AgentStateFolded)
    (after,) = of_the_file(store, pages)[0]
    assert isinstance(before, int)
    assert isinstance(after, int)
    assert (after - before) * 8192 / 500 < 2 * 1024


async def test_several_owners_and_processes_refer_to_their_own_records_only(store: Store) -> None:
    """Each commit of one is one that the other did not expect."""
    other = await open_store(store.url)
    one, two = await with_turns(store, range(2), "one"), await with_turns(other, range(2), "two")
    for number in range(2, 6):
        await further_turn(store, one, number)
        await further_turn(other, two, number)
    await one.lease.release()
    again = await opened(other, "one")
    await further_turn(other, again, 6)
    for name, turns in (("one", 7), ("two", 6)):
        records = [record async for record in read_records(store, name)]
        assert [r.turn for r in records if isinstance(r.body, t.TurnDone)] == [
            a_turn(number)[1].turn for number in range(turns)
        ]
    await other.close()


async def test_a_damaged_record_takes_no_more_with_it_than_what_is_near(store: Store) -> None:
    journal = await with_turns(store, range(60))
    last = journal.state.seq
    of_the_file(store, "UPDATE record SET loop = x'', turn = x'', body = x'' WHERE seq = 20")
    with pytest.raises(IntegrityError) as refused:
        [record async for record in read_records(store, "s")]
    assert refused.value.seq == 20
    read = [record.seq async for record in read_records(store, "s", 20 + REACH)]
    assert read == list(range(21 + REACH, last + 1))


def damaged(values: Columns) -> list[Columns]:
    """Each of its packed columns with each of its bits turned, one byte longer, and one shorter."""
    changed: list[Columns] = []
    for place in (4, 6, 7, 8, 11):
        value = values[place]
        if not isinstance(value, bytes):
            continue
        others = [value + b"x", value[:-1], b"", None, "text", 7]
        others += [
            value[:n] + bytes([value[n] ^ 1 << bit]) + value[n + 1 :]
            for n in range(min(len(value), 80))
            for bit in range(8)
        ]
        changed += [(*values[:place], other, *values[place + 1 :]) for other in others if other != value]
    return changed


async def test_every_turned_bit_of_a_packed_value_shows(store: Store) -> None:
    """In the row, which its chain then does not fit; or because there is no such value. One that leads to
    another record which says the same changes nothing, from wherever the journal is read."""
    await with_turns(store, range(3))
    stored: list[Columns] = [row[1:] for row in of_the_file(store, "SELECT * FROM record ORDER BY seq")]
    rows = found_again(stored)
    tried = shown = 0
    for place in range(len(stored) - 9, len(stored)):
        for change in damaged(stored[place]):
            tried += 1
            try:
                found = found_again([*stored[:place], change])[place]
            except PackingError:
                shown += 1
                continue
            if found == rows[place]:
                assert found_again([*stored[:place], change], place) == [found], (stored[place], change)
            else:
                shown += 1
    assert shown > 1000
    assert tried - shown < 0.01 * tried


async def test_a_store_that_packs_is_read_for_ever(tmp_path: Path) -> None:
    """`frozen/version-5` was written by the first outlast that packed: four turns, one of 160 pieces,
    and a turn of its second owner. The chain is over all that the rows had said."""
    folder = tmp_path / "old"
    shutil.copytree(FROZEN / "version-5", folder)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    store = await open_store(sqlite_url(folder / "x.db"))
    records = [record async for record in read_records(store, "made")]
    assert len(records) == 204
    assert {type(record.body).__name__ for record in records} >= set(FORMS)
    assert {record.loop for record in records if isinstance(record.body, t.TurnDone)} == {LOOP}
    settled = await store.settled("made", TURNS[1])
    assert settled is not None
    assert records[settled.seq - 1].cause == TURNS[1]
    await store.close()


async def test_tombstones_of_an_older_store_are_found_by_their_keys(tmp_path: Path) -> None:
    """They were kept by the text of a UUID before."""
    url = sqlite_url(tmp_path / "x" / "x.db")
    store = await open_store(url)
    journal = await with_turns(store, range(3))
    await admit(store, "s", "a label")
    said = t.InputAccepted(request_id="a label", content=[t.Content(text="hi")])
    await journal.append([Draft(said, LOOP, None, "a label")], settle=[("a label", 0)])
    keys = [*TURNS, "a label"]
    before = [await store.settled("s", key) for key in keys]
    assert None not in before
    await store.close()
    connection = apsw.Connection(str(database_path(url, {})))
    for turn in TURNS:
        data = bytes.fromhex(turn.replace("-", ""))
        connection.execute("UPDATE settled SET request = ? WHERE request = ?", (turn, data))
        assert connection.changes() == 1
    connection.execute("DROP INDEX inbox_commands")
    connection.execute("DELETE FROM schema_version WHERE version >= 5; PRAGMA user_version = 4")
    connection.close()
    store = await open_store(url)
    assert [await store.settled("s", key) for key in keys] == before
    await store.close()
