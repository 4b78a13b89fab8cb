"""UUIDs as text and as the 16 bytes that are stored."""

from __future__ import annotations

from outlast.errors import InvalidRecordError

UUID_SIZE = 16


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a UUID's text. Raises InvalidRecordError."""
    try:
        data = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        data = b""
    if len(data) != 16 or uuid_text(data) != text:
        raise InvalidRecordError(f"{text!r} is no UUID in its usual lower-case form")
    return data


def uuid_text(data: bytes) -> str:
    """The text of a UUID's 16 bytes. Raises InvalidRecordError."""
    if len(data) != 16:
        raise InvalidRecordError(f"a record id has {len(data)} bytes instead of 16")
    h = data.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
