"""The one binary format of the spool and of the shim's socket.

A frame is a 40-byte little-endian header and its payload: magic, type, flags, payload length (at most
1 MiB), `seq`, `offset`, `time` and a CRC-32 over the rest of the header and the payload. In the spool
`seq` is the input's number, `offset` the agent's stdout offset and `time` nanoseconds of CLOCK_BOOTTIME;
in a message `offset` is the request's number and `time` is 0.

Standard library only, and only its light parts: the shim imports this.
"""

from __future__ import annotations

import struct
import zlib

MAGIC = b"oLf1"
VERSION = 1
"""Protocol version of spool and socket; a runtime speaks this one and the one before."""
HEADER_SIZE = 40
MAX_PAYLOAD = 1 << 20
FILE_LIMIT = "file_limit"
"""Who ended an agent whose spool may not grow, in its exit record."""

MORE = 1
"""Another part of the same message follows."""
EOF = 2
"""The agent's stdout has ended."""
FIRST = 4
"""First part of a message: what was incomplete before it is void."""

HEAD, ATTACHED, OWNER_GONE, FENCED, STARTED, OUTPUT, INPUT, VOID, WRITTEN, STDIN_CLOSED, KILL_BEGUN, EXIT = (
    range(1, 13)
)
RECORD = 32
"""A record in a file of its own: floor, exit, guard, id, a starter's report."""
ATTACH, START, KILL, FENCE, GRACE, DETACH, TRIM, STATUS, ALLOW = range(64, 73)
OK, REFUSED, ACCEPTED, TIP, LOST, FACTS = range(96, 102)

_HEAD = struct.Struct("<4sBBHIQQQ")
_CRC = struct.Struct("<I")
_LENGTH = struct.Struct("<I")


class FrameDamaged(ValueError):  # noqa: N818 - it names a fact about bytes; the typed error is SpoolCorruptError
    """The bytes at `position` are no frame."""

    def __init__(self, position: int, reason: str, end: int) -> None:
        super().__init__(f"no frame at {position}: {reason}")
        self.position = position
        self.reason = reason
        self.end = end
        """Where the damaged frame says that it ends; `position` when not even that is known."""


class Frame:
    """One decoded frame."""

    __slots__ = ("flags", "offset", "payload", "seq", "time", "type")

    def __init__(self, kind: int, payload: bytes, flags: int, seq: int, offset: int, time: int) -> None:
        self.type = kind
        self.flags = flags
        self.seq = seq
        self.offset = offset
        self.time = time
        self.payload = payload

    @property
    def more(self) -> bool:
        return bool(self.flags & MORE)


def header(
    kind: int,
    payload: bytes | memoryview = b"",
    *,
    flags: int = 0,
    seq: int = 0,
    offset: int = 0,
    time: int = 0,
) -> bytes:
    """The 40 bytes that stand before `payload`, which need not be copied to be written after them."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame's payload is at most {MAX_PAYLOAD} bytes, this one has {len(payload)}")
    head = _HEAD.pack(MAGIC, kind, flags, 0, len(payload), seq, offset, time)
    return head + _CRC.pack(zlib.crc32(payload, zlib.crc32(head)))


def encode(
    kind: int, payload: bytes = b"", *, flags: int = 0, seq: int = 0, offset: int = 0, time: int = 0
) -> bytes:
    """A whole frame."""
    return header(kind, payload, flags=flags, seq=seq, offset=offset, time=time) + payload


def with_length(frame: bytes, length: int) -> bytes:
    """The same bytes with another payload length in the header."""
    return frame[:8] + _LENGTH.pack(length) + frame[12:]


def peek(buffer: bytes | bytearray, position: int) -> tuple[int, int, int, int, int] | None:
    """(type, flags, payload length, seq, offset) of the header at `position`, its CRC unchecked; None if
    it is cut off. Raises FrameDamaged when it cannot be a header."""
    if len(buffer) - position < HEADER_SIZE:
        if not MAGIC.startswith(bytes(buffer[position : position + 4])):
            raise FrameDamaged(position, "bad magic", position)
        return None
    magic, kind, flags, reserved, length, seq, offset, _ = _HEAD.unpack_from(buffer, position)
    if magic != MAGIC or reserved != 0:
        raise FrameDamaged(position, "bad magic", position)
    if length > MAX_PAYLOAD:
        raise FrameDamaged(position, "impossible length", position)
    return kind, flags, length, seq, offset


def decode(buffer: bytes | bytearray, position: int = 0) -> tuple[Frame, int] | None:
    """The frame at `position` and where it ends; None while it is incomplete. Raises FrameDamaged."""
    seen = peek(buffer, position)
    if seen is None:
        return None
    kind, flags, length, seq, offset = seen
    body = position + HEADER_SIZE
    if len(buffer) < body + length:
        return None
    payload = bytes(buffer[body : body + length])
    head = bytes(buffer[position : body - 4])
    if _CRC.unpack_from(buffer, body - 4)[0] != zlib.crc32(payload, zlib.crc32(head)):
        raise FrameDamaged(position, "bad checksum", body + length)
    time: int = _HEAD.unpack_from(buffer, position)[7]
    return Frame(kind, payload, flags, seq, offset, time), body + length


class Decoder:
    """Frames out of a byte stream that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes. Raises FrameDamaged: the stream cannot be used any more."""
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while position < len(self._buffer):
            found = decode(self._buffer, position)
            if found is None:
                break
            frame, position = found
            frames.append(frame)
        del self._buffer[:position]
        return frames
