"""Named values as bytes: the payload of messages, of the floor, of exit records.

Standard library only, light parts only: the shim imports this.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

Value = int | str | bytes | list[bytes] | None

_LENGTH = struct.Struct("<I")


class FieldsDamaged(ValueError):  # noqa: N818 - internal; callers turn it into their own error
    """Bytes that are no fields, or fields that lack what was asked for."""


def _block(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def pack(values: Mapping[str, Value]) -> bytes:
    """The bytes of `values`, in their order."""
    out = []
    for name, value in values.items():
        if value is None:
            kind, data = b"n", b""
        elif isinstance(value, int):
            kind, data = b"i", b"%d" % value
        elif isinstance(value, str):
            kind, data = b"s", value.encode("utf-8", "surrogateescape")
        elif isinstance(value, bytes):
            kind, data = b"b", value
        else:
            kind, data = b"l", b"".join(_block(item) for item in value)
        out.append(_block(name.encode()) + kind + _block(data))
    return b"".join(out)


def _take(data: bytes, position: int) -> tuple[bytes, int]:
    if len(data) < position + 4:
        raise FieldsDamaged("cut off")
    end = position + 4 + _LENGTH.unpack_from(data, position)[0]
    if len(data) < end:
        raise FieldsDamaged("cut off")
    return data[position + 4 : end], end


def _value(kind: bytes, data: bytes) -> Value:
    if kind == b"n":
        return None
    if kind == b"i":
        return int(data)
    if kind == b"s":
        return data.decode("utf-8", "surrogateescape")
    if kind == b"b":
        return data
    if kind == b"l":
        items, position = [], 0
        while position < len(data):
            item, position = _take(data, position)
            items.append(item)
        return items
    raise FieldsDamaged("unknown kind")


class Fields:
    """Unpacked fields; a missing or mistyped one raises FieldsDamaged unless a default is given."""

    __slots__ = ("_values",)

    def __init__(self, data: bytes) -> None:
        self._values: dict[str, Value] = {}
        position = 0
        while position < len(data):
            name, position = _take(data, position)
            kind = data[position : position + 1]
            value, position = _take(data, position + 1)
            try:
                self._values[name.decode()] = _value(kind, value)
            except FieldsDamaged:
                raise
            except ValueError:
                raise FieldsDamaged("undecodable") from None

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._values.get(name, default)
        if not isinstance(value, int):
            raise FieldsDamaged(name)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if not isinstance(value, str):
            raise FieldsDamaged(name)
        return value

    def blob(self, name: str, default: bytes | None = None) -> bytes:
        value = self._values.get(name, default)
        if not isinstance(value, bytes):
            raise FieldsDamaged(name)
        return value

    def blobs(self, name: str) -> list[bytes]:
        value = self._values.get(name)
        if not isinstance(value, list):
            raise FieldsDamaged(name)
        return value

    def optional(self, name: str) -> int | None:
        """The integer, or None when it is absent or null."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, int):
            raise FieldsDamaged(name)
        return value
