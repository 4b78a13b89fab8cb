"""A state survives its snapshot whole, and a snapshot that is anything else than that is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.records.codec import record_of
from outlast.records.envelope import Record
from outlast.records.registry import REGISTRY
from outlast.state import snapshot as snapshots
from outlast.state.fold import apply, digest, fold
from outlast.state.model import Queued, State
from outlast.state.queue import Queue
from outlast.state.snapshot import FOLD_VERSION, UnfitSnapshotError, snapshot_of, state_of
from outlast.store.contract import Row, Snapshot
from outlast.testing.journals import GeneratedJournal, JournalBuilder, journals

FROZEN = Path(__file__).parent / "frozen"
"""Journals as they were stored once. They stay; a record type that is new comes in another one, made by
`python -m tests.unit.state.freeze`."""

FOLDS = {
    1: {"shape": "90e73a798f480000", "1": "a1fb3e93255c0557", "2": "adf35b8ee17ee0a4"},
    2: {
        "shape": "16fc759dc2efb9b3",
        "1": "1cce9957daa2fdef",
        "2": "1fcfe2d5341ec9fc",
        "3": "16f4e5d4b2c86707",
    },
    3: {
        "shape": "c832ca4bb9c34b8a",
        "1": "ce0f108f76be10c0",
        "2": "5155f2c6dcc7f358",
        "3": "4c493b01a42ab9fd",
        "4": "b922610bc5d2cd2e",
    },
    4: {
        "shape": "b22227c70fc51c58",
        "1": "e11c84e6789b68a5",
        "2": "c0435c3fb539e367",
        "3": "74d70aecbf90aaca",
        "4": "dc6f03efe0b33eed",
    },
    5: {
        "shape": "36b96039215fc1ac",
        "1": "6b8d648ecf667d98",
        "2": "a4418a3af01c4bd3",
        "3": "0ee592298fc2dd16",
        "4": "e9d3a596518ff19c",
    },
    6: {
        "shape": "53bc7404df3b6fc7",
        "1": "c5fae58dbfbe7446",
        "2": "ef09106843870941",
        "3": "0f91b5968c87d234",
        "4": "b268e8880ead0422",
        "5": "2603ff3307270a6e",
    },
    7: {
        "shape": "51dfa6af993a9a04",
        "1": "6d1f1ce2b9bb30d6",
        "2": "84616d1e81c25801",
        "3": "9d880a0e62708dff",
        "4": "0d1d1e3907b0379e",
        "5": "f4d142fece9b2770",
    },
    8: {
        "shape": "adc16f0a6a643b17",
        "1": "6d1f1ce2b9bb30d6",
        "2": "84616d1e81c25801",
        "3": "9d880a0e62708dff",
        "4": "5312208faaaa1e32",
        "5": "f4d142fece9b2770",
    },
    9: {
        "shape": "fe466318052638e1",
        "1": "a1b598064e7351f6",
        "2": "bd517b275d2e62a6",
        "3": "b79c41057e0fde57",
        "4": "a909c851ed7389e5",
        "5": "99ce3e905f18106d",
    },
    10: {
        "shape": "e481c24676b10132",
        "1": "724c925ab2ec358f",
        "2": "c13087d86526b8f7",
        "3": "7bb6cae0e42e4269",
        "4": "8d8a0cefaeda3ed4",
        "5": "67f45e21a9feee29",
    },
    11: {
        "shape": "17f4f800cb8ac113",
        "1": "e59210973b91cc86",
        "2": "c552a33f6dbabff9",
        "3": "2888283af34cfde5",
        "4": "15421f54318b3cb2",
        "5": "1756a21d13264d27",
    },
    12: {
        "shape": "636dd8ab1520c86f",
        "1": "2b5429c6f68aa8f4",
        "2": "dcc311ba747d3345",
        "3": "26bf5b10dfda684e",
        "4": "d02c95c4882bbf88",
        "5": "f7a448615758b568",
    },
    13: {
        "shape": "636dd8ab1520c86f",
        "1": "8f06116dfdee881e",
        "2": "dcc311ba747d3345",
        "3": "26bf5b10dfda684e",
        "4": "d02c95c4882bbf88",
        "5": "f7a448615758b568",
    },
    14: {
        "shape": "636dd8ab1520c86f",
        "1": "8f06116dfdee881e",
        "2": "dcc311ba747d3345",
        "3": "26bf5b10dfda684e",
        "4": "d02c95c4882bbf88",
        "5": "f7a448615758b568",
    },
}
"""Fold version -> of what its states consist, and what it makes of each frozen journal."""


def frozen(path: Path) -> Iterator[Record]:
    for line in path.read_text("utf-8").splitlines():
        fields = json.loads(line)
        for name in ("id", "chain", "cursor"):
            fields[name] = None if fields[name] is None else bytes.fromhex(fields[name])
        yield record_of(Row(**fields | {"body": fields["body"].encode()}), "session")


def without_docs(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: without_docs(value) for key, value in schema.items() if key != "description"}
    return [without_docs(each) for each in schema] if isinstance(schema, list) else schema


def as_stored(kind: type[State]) -> type[msgspec.Struct]:
    """A state with the plain types that its snapshot holds."""
    shape: list[Any] = []
    for field in msgspec.structs.fields(kind):
        if field.type is Queue:
            shape.append((field.name, dict[str, Queued], msgspec.field(default_factory=dict)))
        elif field.required:
            shape.append((field.name, field.type))
        elif field.default is msgspec.NODEFAULT:
            shape.append((field.name, field.type, msgspec.field(default_factory=field.default_factory)))
        else:
            shape.append((field.name, field.type, field.default))
    return msgspec.defstruct(kind.__name__, shape)


def test_a_changed_fold_has_a_new_version() -> None:
    """A snapshot of the fold before it would be taken for what this one makes of the journal."""
    shape = json.dumps(without_docs(msgspec.json.schema(as_stored(State)))).encode()
    found = {"shape": hashlib.sha256(shape).hexdigest()[:16]}
    for path in FROZEN.iterdir():
        found[path.stem] = folded(path)
    told = FOLDS[FOLD_VERSION]
    assert {key: found.get(key) for key in told} == told, (
        "the fold, or what a state is made of, has changed: raise FOLD_VERSION and add it to FOLDS"
    )
    assert found == told, "a frozen journal is new: add what this version of the fold makes of it"
    assert max(FOLDS) == FOLD_VERSION


def folded(path: Path) -> str:
    """Digest of the state after each record."""
    state, seen = State("session"), hashlib.sha256()
    for record in frozen(path):
        apply(state, record)
        seen.update(snapshot_of(state).body)
    return seen.hexdigest()[:16]


def test_the_frozen_journals_have_every_record_type() -> None:
    seen = {record.type for path in FROZEN.iterdir() for record in frozen(path)}
    assert seen == set(REGISTRY.names), "freeze another journal: python -m tests.unit.state.freeze"


@given(journals(), st.data())
def test_a_journal_folded_on_from_a_snapshot_gives_the_same_state(
    journal: GeneratedJournal, data: st.DataObject
) -> None:
    """Invariant 7, from any record on."""
    whole = fold(journal.session, journal.records)
    cut = data.draw(st.integers(0, len(journal.records)))
    state = state_of(snapshot_of(fold(journal.session, journal.records[:cut])))
    for record in journal.records[cut:]:
        apply(state, record)
    assert state == whole
    assert digest(state) == digest(whole)


@given(journals(max_moves=40))
def test_a_journal_folded_through_a_snapshot_at_each_record_gives_the_same_states(
    journal: GeneratedJournal,
) -> None:
    plain, through = State(journal.session), State(journal.session)
    for record in journal.records:
        apply(plain, record)
        before = snapshot_of(through)
        through = state_of(before)
        apply(through, record)
        assert through == plain
        assert digest(through) == digest(plain)
        assert (before.seq, before.chain) == (record.seq - 1, state_of(before).chain)


def some_state() -> State:
    journal = JournalBuilder().running("one").ask("one", "gate").accept("two", "three")
    return journal.state()


def test_a_state_keeps_the_order_of_its_queue_and_the_bytes_of_its_gates() -> None:
    state = state_of(snapshot_of(some_state()))
    assert list(state.queue) == ["two", "three"]
    assert state.gates["gate"].payload == b"raw"
    assert state.running is not None
    assert state.running.attempt == some_state().loops["main"].attempt


def test_two_states_of_one_snapshot_share_nothing() -> None:
    snapshot = snapshot_of(some_state())
    state_of(snapshot).queue.clear()
    assert state_of(snapshot) == some_state()


def resigned(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """A snapshot of which the digest says that it is whole."""
    changed = replace(snapshot, **changes)
    return replace(changed, digest=snapshots._digest(changed))


@pytest.mark.parametrize("field", ["name", "seq", "chain", "fold_version", "digest", "body"])
def test_a_changed_field_is_noticed(field: str) -> None:
    snapshot = snapshot_of(some_state())
    value = getattr(snapshot, field)
    changed: Any = value + 1 if isinstance(value, int) else value[:-1] + (b"\0" if field != "name" else "x")
    with pytest.raises(UnfitSnapshotError, match="digest"):
        state_of(replace(snapshot, **{field: changed}))


@given(st.data())
def test_a_flipped_bit_is_noticed(data: st.DataObject) -> None:
    snapshot = snapshot_of(some_state())
    at = data.draw(st.integers(0, len(snapshot.body) * 8 - 1))
    body = bytearray(snapshot.body)
    body[at // 8] ^= 1 << at % 8
    with pytest.raises(UnfitSnapshotError):
        state_of(replace(snapshot, body=bytes(body)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fold_version": FOLD_VERSION + 1}, "version"),
        ({"fold_version": FOLD_VERSION - 1}, "version"),
        ({"name": "other"}, "holds the state of session"),
        ({"seq": 3}, "holds the state of session"),
        ({"chain": b"\0" * 16}, "holds the state of session"),
        ({"body": b""}, "holds no state"),
        ({"body": b"\xc1"}, "holds no state"),
        ({"body": msgspec.msgpack.encode({"session": "session", "seq": "many"})}, "holds no state"),
        ({"body": msgspec.msgpack.encode({"session": b"\xff"})}, "holds no state"),
    ],
)
def test_what_is_whole_and_yet_no_snapshot_of_this_session_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnfitSnapshotError, match=reason):
        state_of(resigned(snapshot_of(some_state()), **changes))
