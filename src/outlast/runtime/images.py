"""Images as blocks of an input: recognised by their first bytes, whatever their name says."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from outlast.errors import InputError, UsageError
from outlast.records.codec import check_text
from outlast.records.types import Content

LIMIT = 20 * 1024 * 1024
"""Bytes of the largest image."""
_SMALLER = f"an image has at most {LIMIT:,} bytes (20 MiB): make it smaller"
_NAME_SHOWN = 80

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_TYPES = "png, jpeg, gif or webp"


def image(source: str | os.PathLike[str] | bytes, *, name: str | None = None) -> Content:
    """An image as a block of an input, from a file or from its bytes. People are shown `name` in its place,
    by default the file's.

    Raises InputError for a file that can't be read, for bytes that are no png, jpeg, gif or webp, and for
    more than 20 MiB of them.
    """
    said: tuple[object, object] = source, name
    if not isinstance(said[0], str | os.PathLike | bytes) or not isinstance(said[1], str | None):
        raise UsageError("an image is made from a path or from bytes, and its name is text")
    data, size, shown = (source, len(source), "image") if isinstance(source, bytes) else _read(Path(source))
    shown = name or shown
    media_type = _type_of(data)
    if media_type is None:
        raise InputError(f"{shown} is no image that agents take", hint=f"convert it to {_TYPES}")
    if size > LIMIT:
        raise InputError(f"the image {shown} is too large: {size:,} bytes", hint=_SMALLER)
    shown = check_text(shown.encode(errors="replace").decode(), what="name of an image")[:_NAME_SHOWN]
    encoded = base64.b64encode(data).decode("ascii")
    return Content(type="image", text=f"[image {shown}]", media_type=media_type, data=encoded)


def check_block(block: Content) -> None:
    """Whether a block can be stored, and given to an agent as it is. Raises InputError, and UsageError for a
    block that is neither text nor an image."""
    check_text(block.text)
    if block.type == "text":
        if isinstance(block.media_type, str) or isinstance(block.data, str):
            raise UsageError("a block of text has the fields of an image", hint="make it with outlast.image")
        return
    if not isinstance(block.media_type, str) or not isinstance(block.data, str):
        raise UsageError("an image has no media type or no data", hint="make it with outlast.image")
    try:
        data = base64.b64decode(block.data, validate=True)
    except binascii.Error:
        raise UsageError("the data of an image is not base64", hint="make it with outlast.image") from None
    if len(data) > LIMIT:
        raise UsageError(f"the data of an image is too large: {len(data):,} bytes", hint=_SMALLER)
    if (found := _type_of(data)) != block.media_type:
        told = f"the data of an image of {len(data):,} bytes is {found or 'no image'}, not {block.media_type}"
        raise UsageError(told, hint=f"an image is a {_TYPES}: make it with outlast.image")


def _read(path: Path) -> tuple[bytes, int, str]:
    """Its bytes, as far as an image may be long; how many there are; its name."""
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT + 1)
            return data, max(len(data), os.fstat(file.fileno()).st_size), path.name
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            f"the image {path} cannot be read: {why}", hint="name a file that is there"
        ) from error


def _type_of(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _MAGIC if data.startswith(magic)), None)
