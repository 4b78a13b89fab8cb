"""Records that were stored once are read for ever, and written again as the same bytes."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from outlast.records.codec import chain_of, decode_cursor, encode_body, encode_cursor, record_of
from outlast.records.registry import REGISTRY
from outlast.store.contract import Row

FROZEN = Path(__file__).parent / "frozen"


def read(path: Path) -> tuple[Row, str, bytes]:
    """A frozen row, its session and the chain before it."""
    document = json.loads(path.read_text())
    row = document["row"]
    for name in ("id", "chain", "cursor"):
        row[name] = None if row[name] is None else bytes.fromhex(row[name])
    row["body"] = row["body"].encode()
    return Row(**row), document["session"], bytes.fromhex(document["previous"])


@pytest.mark.parametrize("path", sorted(FROZEN.iterdir()), ids=lambda path: path.stem)
def test_a_frozen_record_is_read_and_written_again_as_the_same_bytes(path: Path) -> None:
    row, session, previous = read(path)
    record = record_of(row, session)
    assert chain_of(previous, session, row) == row.chain
    if record.cursor is not None:  # its bytes have changed since: `test_codec` holds both
        assert decode_cursor(encode_cursor(record.cursor)) == record.cursor
    if row.v == REGISTRY.version(row.type):
        assert encode_body(record.body) == row.body


@pytest.mark.parametrize("name", REGISTRY.names)
def test_every_version_of_every_type_has_a_frozen_example(name: str) -> None:
    for version in range(1, REGISTRY.version(name) + 1):
        assert (FROZEN / f"{name}.{version}.json").is_file()


def test_the_frozen_records_are_one_chain() -> None:
    rows = sorted((read(path) for path in FROZEN.glob("*.1.json")), key=lambda item: item[0].seq)
    for (before, _, _), (_, _, previous) in pairwise(rows):
        assert previous == before.chain
