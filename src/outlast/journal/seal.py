"""Seals: where a journal ended, under a key or carried elsewhere, so that a rewrite shows.

The chain finds every change that does not also change all that comes after it. Who rewrites the rest as well
has to make a seal for it, which takes the key; and an exported head lies where he does not come. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal

import msgspec

from outlast.errors import InvalidRecordError

KEY_SIZE = 32
Standing = Literal["holds", "broken", "no_key", "not_reached"]


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a session's journal at some time. A contract: docs/cli.md."""

    schema: Literal["outlast_head_v1"] = "outlast_head_v1"
    store: str
    session: str
    lineage: str
    seq: int
    chain: str
    """Hexadecimal."""
    at: str
    """RFC 3339."""
    key: str | None = None
    """Which key made `mac`: the first 16 hexadecimal digits of its SHA-256."""
    mac: str | None = None
    """HMAC-SHA-256 over session, lineage, seq and chain, hexadecimal."""


def key_id(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:16]


def sealed(head: Head, key: bytes) -> Head:
    """`head` under a key."""
    return msgspec.structs.replace(head, key=key_id(key), mac=_mac(head, key))


def standing(head: Head, *, lineage: str, chain: bytes | None, key: bytes | None) -> Standing:
    """What becomes of `head` beside a journal of this lineage whose record `head.seq` has this chain (None:
    there is none). Without the key that sealed it, a seal that fits proves nothing: `no_key`."""
    if chain is None or head.chain != chain.hex() or head.lineage != lineage:
        return "broken"
    if head.mac is None:
        return "holds"
    if key is None or key_id(key) != head.key:
        return "no_key"
    return "holds" if hmac.compare_digest(head.mac, _mac(head, key)) else "broken"


def encode_head(head: Head) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(head) + b"\n"


def decode_head(data: bytes, *, what: str) -> Head:
    """Raises InvalidRecordError."""
    try:
        return msgspec.json.decode(data, type=Head)
    except msgspec.MsgspecError as error:
        raise InvalidRecordError(
            f"{what} is no head of a journal: {error}", hint="`outlast seal ID --export FILE` makes one"
        ) from error


def _mac(head: Head, key: bytes) -> str:
    # One MessagePack array: each part is preceded by its kind and length.
    parts = (head.schema, head.session, head.lineage, head.seq, head.chain)
    return hmac.new(key, msgspec.msgpack.encode(parts), hashlib.sha256).hexdigest()
