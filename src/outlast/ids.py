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


def uuid7(at: Micros, random: bytes) -> str:
    """The UUIDv7 of a time and ten random bytes, in its text form."""
    millis = at // 1000
    value = (millis & 0xFFFFFFFFFFFF) << 80
    value |= 0x7 << 76 | (int.from_bytes(random[:2], "big") & 0x0FFF) << 64
    value |= 0b10 << 62 | int.from_bytes(random[2:10], "big") & ((1 << 62) - 1)
    return str(UUID(int=value))


def new_id() -> str:
    """A fresh UUIDv7: reads the clock and the system's randomness, so only for the edge."""
    return uuid7(now(), os.urandom(10))


def derived_id(*parts: str | int) -> str:
    """The same id for the same parts, for ever (UUIDv8 over SHA-256 of the length-prefixed parts)."""
    digest = hashlib.sha256()
    for part in parts:
        data = str(part).encode("utf-8")
        digest.update(len(data).to_bytes(8, "big") + data)
    value = int.from_bytes(digest.digest()[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0b11 << 62) | 0b10 << 62
    return str(UUID(int=value))


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
