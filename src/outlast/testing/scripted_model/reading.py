"""The body of a request, however it was sent: with a length or in chunks, compressed or not."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from email.message import Message
from io import BufferedIOBase
from typing import cast

from outlast.testing.scripted_model.conversation import Json, JsonObject
from outlast.testing.scripted_model.dialect import MalformedRequestError

_BODY_LIMIT = 256 * 1024 * 1024


def read_json(stream: BufferedIOBase, headers: Message) -> JsonObject:
    """Read the body as a JSON object. Raises `MalformedRequestError`."""
    raw = _read(stream, headers)
    encoding = headers.get("content-encoding", "identity").lower()
    try:
        if encoding == "gzip":
            raw = gzip.decompress(raw)
        elif encoding == "deflate":
            raw = zlib.decompress(raw)
        elif encoding != "identity":
            raise MalformedRequestError(
                f"content-encoding {encoding} is not understood: use gzip, deflate or none"
            )
        body = cast(Json, json.loads(raw))
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise MalformedRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(body, Mapping):
        raise MalformedRequestError("the body must be a JSON object")
    return body


def _read(stream: BufferedIOBase, headers: Message) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _read_chunks(stream)
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > _BODY_LIMIT:
        raise MalformedRequestError(f"content-length {length} is not a number of at most {_BODY_LIMIT} bytes")
    return stream.read(int(length))


def _read_chunks(stream: BufferedIOBase) -> bytes:
    body = bytearray()
    while True:
        line = stream.readline(1024).partition(b";")[0].strip()
        try:
            size = int(line, 16)
        except ValueError as error:
            raise MalformedRequestError("a chunk has no size") from error
        if size < 0 or len(body) + size > _BODY_LIMIT:
            raise MalformedRequestError(f"the body is larger than {_BODY_LIMIT} bytes")
        body += stream.read(size)
        stream.readline(1024)
        if size == 0:
            return bytes(body)
