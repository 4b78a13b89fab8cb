"""The shape in which records are shown outside (`tail --json`, `run --json`)."""

from __future__ import annotations

import msgspec

from outlast.clock import isoformat
from outlast.records.envelope import Record

_encode = msgspec.json.Encoder().encode


def public_json(record: Record) -> dict[str, object]:
    """All fields of a record as plain JSON values: `at` in RFC 3339, `chain` in hex, `bytes` in base64. Of a
    body too, also those that hold their default, which are not stored. It shows internal records too: the
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
        "body": _whole(record.body),
        "chain": record.chain.hex(),
    }


def _whole(value: object) -> object:
    """A structure with every field that is set, whatever its type leaves out when it is stored."""
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: _whole(each) for name, each in fields.items() if each is not msgspec.UNSET}
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return msgspec.to_builtins(value)


def public_line(record: Record) -> bytes:
    """`public_json` as one line of JSON, without a newline."""
    return _encode(public_json(record))
