"""Records to stored rows and back, and the chain over them. Pure; a few microseconds a record."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256 as _sha256
from typing import Annotated

import msgspec

from outlast.errors import InputError, InvalidRecordError, RecordError
from outlast.ids import derived_id
from outlast.records.envelope import Cursor, Draft, Record, Stamp
from outlast.records.registry import REGISTRY
from outlast.records.types import BlobRef, Body
from outlast.records.uuids import UUID_SIZE, uuid_bytes
from outlast.store.contract import Row

BLOB_LIMIT = 256 * 1024
"""Bytes of an encoded body above which it goes to the blob store."""

CHAIN_SIZE = 16

_BLOB_PREFIX = b'{"$blob":'  # no body has such a field: theirs are Python identifiers
_CURSOR = struct.Struct(">BQQQ")
_FIRST_FORMAT = b"\1"
"""How such a cursor begins; no array does."""
_decoders = REGISTRY.decoders
_encode_parts = msgspec.msgpack.Encoder().encode
_Offset = Annotated[int, msgspec.Meta(ge=0)]
_cursor_parts = msgspec.msgpack.Decoder(tuple[str, _Offset, _Offset, _Offset]).decode
_row: Callable[[Iterable[object]], Row] = partial(tuple.__new__, Row)

# --- text --------------------------------------------------------------------------------------


def check_text(text: str, *, what: str = "text") -> str:
    """`text`, unchanged, if it can be stored and given to an agent as it is: everything but lone surrogates
    can (NUL, CRLF and any other character are kept). Raises InputError naming the position."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"the {what} holds a lone surrogate (U+{ord(text[error.start]):04X}) at character "
            f"{error.start + 1}, which is no character and cannot be stored as UTF-8",
            hint="it usually comes from text that was cut inside an emoji or decoded with the wrong encoding",
        ) from error
    return text


# --- bodies ------------------------------------------------------------------------------------


def encode_body(body: Body) -> bytes:
    """The JSON to store, always the same bytes for the same body. Raises InvalidRecordError for values that
    are not of the body's types: nothing is stored that could not be read."""
    return REGISTRY.encode(body)


def decode_body(type_: str, v: int, data: bytes) -> Body:
    """The body that `data` holds, in the newest version of its type; an unfetched blob reference gives a
    `BlobRef`. Raises UnsupportedRecordError naming the type and version found and known,
    InvalidRecordError for bytes that are no such body."""
    if data.startswith(_BLOB_PREFIX):
        REGISTRY.require(type_, v)
        return blob_ref(data)
    return REGISTRY.decode(type_, v, data)


# --- blob references ---------------------------------------------------------------------------


class _Envelope(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"blob": "$blob"}
):
    blob: BlobRef
    outline: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_blob_decoder = msgspec.json.Decoder(_Envelope)
_encode_blob = msgspec.json.Encoder().encode


def is_blob_ref(data: bytes) -> bool:
    """Whether a stored body is a reference to a blob that holds the body."""
    return data.startswith(_BLOB_PREFIX)


def encode_blob_ref(digest: str, size: int, outline: Body | None = None) -> bytes:
    """What is stored in the place of a body of `size` bytes that is kept as the blob `digest`: with its
    outline, so that a fold needs no blob."""
    kept = msgspec.UNSET if outline is None else msgspec.Raw(encode_body(outline))
    return _encode_blob(_Envelope(BlobRef(digest=digest, size=size), kept))


def blob_ref(data: bytes) -> BlobRef:
    """The reference in a stored body. Raises InvalidRecordError when it is none."""
    return _decoded(data).blob


def outline_of(data: bytes) -> bytes | None:
    """The outline that stands beside the reference in a stored body, if any: a body of the record's type and
    version. Raises InvalidRecordError."""
    outline = _decoded(data).outline
    return None if isinstance(outline, msgspec.UnsetType) else bytes(outline)


def _decoded(data: bytes) -> _Envelope:
    try:
        return _blob_decoder.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidRecordError(f"a stored blob reference cannot be read: {error}") from error


# --- ids and cursors ---------------------------------------------------------------------------


def output_record_id(generation: str, stdout_offset: int, index: int) -> str:
    """The id of the `index`-th record made from the agent's output line that ends at `stdout_offset`: the
    same whoever takes that line in, so that a replayed append is the same record."""
    return derived_id("output", generation, stdout_offset, index)


def encode_cursor(cursor: Cursor) -> bytes:
    """The bytes to store: a MessagePack array. Raises InvalidRecordError for offsets below 0."""
    parts = (cursor.generation, cursor.frame, cursor.stdout, cursor.last_input)
    try:
        if min(parts[1:]) < 0:
            raise InvalidRecordError(f"{cursor} cannot be stored: an offset is below 0")
        return _encode_parts(parts)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidRecordError(f"{cursor} cannot be stored: {error}") from error


def decode_cursor(data: bytes) -> Cursor:
    """The cursor that `encode_cursor` stored. Raises InvalidRecordError."""
    try:
        return Cursor(*_cursor_parts(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if data[:1] == _FIRST_FORMAT:
            return _first_format(data)
        raise InvalidRecordError(f"a stored cursor cannot be read: {error}") from error


def _first_format(data: bytes) -> Cursor:
    """As journals have it that were begun before cursors were arrays."""
    try:
        _, frame, stdout, last_input = _CURSOR.unpack_from(data)
        return Cursor(data[_CURSOR.size :].decode("utf-8"), frame, stdout, last_input)
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidRecordError(f"a stored cursor cannot be read: {error}") from error


# --- rows --------------------------------------------------------------------------------------


def row_of(draft: Draft, body: bytes, stamp: Stamp, session: str, previous: bytes) -> Row:
    """The row to store for a draft whose body is stored as `body` (`encode_body`, or a blob reference).
    `previous` is the chain of the record before it, empty for the first. Raises InvalidRecordError for
    coordinates that cannot be stored."""
    kind = type(draft.body)
    parts = (
        stamp.seq,
        stamp.epoch,
        stamp.uuid if draft.id is None else uuid_bytes(draft.id),
        stamp.at,
        kind.__name__,
        kind.VERSION,
        draft.loop,
        draft.turn,
        draft.cause,
        draft.actor,
        None if draft.cursor is None else encode_cursor(draft.cursor),
        body,
    )
    try:
        return _row((*parts, _chained(previous, session, parts)))
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidRecordError(
            f"the coordinates of this {kind.__name__} cannot be stored: {error}"
        ) from error


def record_of(row: Row, session: str, body: bytes | None = None) -> Record:
    """The record that a row holds. `body` is the fetched blob, or its outline, where the row has a reference
    to one; without it the record's body is the `BlobRef`. Raises UnsupportedRecordError, InvalidRecordError,
    each with the session's id."""
    seq, epoch, id_, at, type_, v, loop, turn, cause, actor, cursor, stored, chain = row
    data = stored if body is None else body
    try:
        if len(id_) != UUID_SIZE:
            raise InvalidRecordError(f"a record id has {len(id_)} bytes instead of {UUID_SIZE}")
        try:
            decoded = _decoders[type_, v](data)
        except (KeyError, msgspec.DecodeError):
            decoded = decode_body(
                type_, v, data
            )  # a reference, which is no body of any type; or what is wrong
        return Record(
            seq,
            epoch,
            id_,
            at,
            type_,
            v,
            loop,
            turn,
            cause,
            actor,
            None if cursor is None else decode_cursor(cursor),
            decoded,
            chain,
        )
    except RecordError as error:
        error.of_session(session)
        raise


def chain_of(previous: bytes, session: str, row: Row) -> bytes:
    """First 16 bytes of SHA-256 over the previous chain, the session id and every stored byte of the row but
    its own chain, as one MessagePack array: there every part is preceded by its kind and length, and nil
    is not empty."""
    return _sha256(_encode_parts((previous, session) + row[:-1])).digest()[:CHAIN_SIZE]  # noqa: RUF005 - half the time


def _chained(previous: bytes, session: str, parts: tuple[str | int | bytes | None, ...]) -> bytes:
    """The same, of a row without its chain."""
    return _sha256(_encode_parts((previous, session) + parts)).digest()[:CHAIN_SIZE]  # noqa: RUF005 - half the time
