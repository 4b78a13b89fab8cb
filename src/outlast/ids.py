"""Typed ids. Ids of ours are UUIDv7 (RFC 9562); a session or request id may also be a caller's label."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from typing import NewType
from uuid import UUID

from outlast.clock import Micros, now
from outlast.errors import UsageError

SessionId = NewType("SessionId", str)
LoopId = NewType("LoopId", str)
RequestId = NewType("RequestId", str)
"""One id for request, input and turn; unique within its session."""
GateId = NewType("GateId", str)
RecordId = NewType("RecordId", str)
Epoch = NewType("Epoch", int)
Seq = NewType("Seq", int)

LABEL_LIMIT = 200


UUID7_RANDOM = 10
"""Random bytes in a UUIDv7."""

_UUID7 = 0x7 << 76 | 0b10 << 62
_UUID7_RANDOM_BITS = 0x0FFF_3FFF_FFFF_FFFF_FFFF


def uuid7(at: Micros, random: bytes) -> bytes:
    """The 16 bytes of the UUIDv7 of a time and UUID7_RANDOM random bytes."""
    millis = at // 1000 & 0xFFFF_FFFF_FFFF
    chance = int.from_bytes(random, "big") & _UUID7_RANDOM_BITS
    return (millis << 80 | _UUID7 | chance).to_bytes(16, "big")


def new_id() -> str:
    """The text of `new_uuid`."""
    return str(UUID(bytes=new_uuid()))


def new_uuid() -> bytes:
    """A fresh UUIDv7: reads the clock and the system's randomness, so only for the edge."""
    return uuid7(now(), os.urandom(UUID7_RANDOM))


def derived_id(*parts: str | int) -> str:
    """The text of `derived_uuid`."""
    return str(UUID(bytes=derived_uuid(*parts)))


def derived_uuid(*parts: str | int) -> bytes:
    """The same 16 bytes for the same parts, for ever (UUIDv8 over SHA-256 of the length-prefixed parts)."""
    digest = hashlib.sha256()
    for part in parts:
        data = str(part).encode("utf-8")
        digest.update(len(data).to_bytes(8, "big") + data)
    value = int.from_bytes(digest.digest()[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0b11 << 62) | 0b10 << 62
    return value.to_bytes(16, "big")


def check_label(text: str, *, what: str) -> str:
    """`text` if it can be a session or request id: 1–200 characters, no control characters, no lone
    surrogates, no leading dash. Raises UsageError otherwise."""
    problem = None
    if not text:
        problem = "is empty"
    elif len(text) > LABEL_LIMIT:
        problem = f"is {len(text)} characters long, the limit is {LABEL_LIMIT}"
    elif text.startswith("-"):
        problem = "begins with a dash"
    elif any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in text):
        problem = "contains a control character"
    if problem:
        raise UsageError(f"the {what} {problem}", hint="use 1 to 200 printable characters")
    return text
