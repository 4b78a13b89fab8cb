"""What the first input of a session says about the session."""

from __future__ import annotations

import msgspec

from outlast.errors import InvalidRecordError


class Opening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stored with the first admission, read by the session's first owner."""

    agent: str
    workspace: str
    title: str
    labels: dict[str, str] = {}


def encode_opening(opening: Opening) -> bytes:
    return msgspec.json.encode(opening, order="deterministic")


def decode_opening(body: bytes) -> Opening:
    """Raises InvalidRecordError."""
    try:
        return msgspec.json.decode(body, type=Opening)
    except msgspec.MsgspecError as error:
        raise InvalidRecordError(f"the session's opening cannot be read: {error}") from error
