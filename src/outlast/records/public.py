"""The shape in which records are shown outside (`tail --json`, `run --json`)."""

from __future__ import annotations

import msgspec

from outlast.clock import isoformat
from outlast.records.envelope import Record

_encode = msgspec.json.Encoder().encode


def public_json(record: Record) -> dict[str, object]:
    """All envelope fields of a record as plain JSON values: `at` in RFC 3339, `chain` in hex, `bytes` in
    base64; a body's fields that hold their default are left out. It shows internal records too: the
    caller leaves out what is not `record.public`."""
    return {
        "seq": record.seq,
        "epoch": record.epoch,
        "id": record.id,
        "at": isoformat(record.at),
        "type": record.type,
        "v": record.v,
        "loop": record.loop,
        "turn": record.turn,
        "cause": record.cause,
        "actor": record.actor,
        "cursor": msgspec.to_builtins(record.cursor),
        "body": msgspec.to_builtins(record.body),
        "chain": record.chain.hex(),
    }


def public_line(record: Record) -> bytes:
    """`public_json` as one line of JSON, without a newline."""
    return _encode(public_json(record))
