"""What is said between a check and an incarnation in another process: MessagePack, each with its size."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec

from outlast import errors
from outlast.errors import OutlastError
from outlast.store.contract import (
    AcquireOptions,
    Admission,
    Admitted,
    Append,
    CatalogEntry,
    CatalogQuery,
    Collected,
    Entry,
    Holder,
    Lease,
    Listed,
    LossReason,
    Row,
    Scope,
    Settlement,
    Snapshot,
    Tip,
    Tombstone,
)

SIZE = struct.Struct(">I")


class Method(NamedTuple):
    """What a method of the store takes and gives. A lease goes by its epoch."""

    takes: Any
    gives: Any


class Batch(msgspec.Struct, frozen=True):
    """`Append` with the lease's epoch."""

    name: str
    rows: tuple[Row, ...]
    expected_seq: int
    epoch: int
    settle: tuple[Settlement, ...]
    catalog: CatalogEntry | None
    blobs: tuple[str, ...]
    released: tuple[str, ...]

    @classmethod
    def of(cls, append: Append) -> Batch:
        given = append._asdict()
        return cls(epoch=given.pop("lease").epoch, **given)

    def under(self, lease: Lease) -> Append:
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "epoch"}
        return Append(lease=lease, **given)


class Opened(msgspec.Struct, frozen=True):
    """The answer to `open`: what a store says of itself."""

    url: str
    store_id: str
    scope: Scope
    read_only: bool
    folder: str
    incarnation: str
    label: str


METHODS: dict[str, Method] = {
    "open": Method(tuple[str], Opened),
    "close": Method(tuple[()], None),
    "append": Method(tuple[Batch], int),
    "read": Method(tuple[str, int, int], list[Row]),
    "tip": Method(tuple[str], Tip),
    "put_snapshot": Method(tuple[Snapshot, int], None),
    "snapshots": Method(tuple[str], list[Snapshot]),
    "acquire": Method(tuple[str, AcquireOptions], int),
    "release": Method(tuple[int], None),
    "lose": Method(tuple[int, LossReason], None),
    "holder": Method(tuple[str], Holder | None),
    "admit": Method(tuple[Admission], Admitted),
    "pending": Method(tuple[str], list[Entry]),
    "settled": Method(tuple[str, str], Tombstone | None),
    "put_blob": Method(tuple[bytes], str),
    "get_blob": Method(tuple[str], bytes),
    "collect_blobs": Method(tuple[float, float], Collected | None),
    "list": Method(tuple[CatalogQuery], list[Listed]),
    "listed": Method(tuple[str], Listed | None),
    "entry": Method(tuple[str], CatalogEntry | None),
    "find": Method(tuple[str], str),
    "watch": Method(tuple[int, str | None], None),
    "unwatch": Method(tuple[int], None),
    "cancel": Method(tuple[int], None),
    "limit_files": Method(tuple[int], None),
}


class Call(msgspec.Struct, frozen=True, tag=True):
    """Asks the incarnation for something."""

    number: int
    method: str
    given: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, tag=True):
    number: int
    result: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The call raised an error of the family: its class and its attributes."""

    number: int
    kind: str
    message: str
    attributes: dict[str, str | int | None]


class Rang(msgspec.Struct, frozen=True, tag=True):
    """The doorbell of a watch rang."""

    watch: int


class Lost(msgspec.Struct, frozen=True, tag=True):
    """A lease is lost. Said before the answer from which that could be seen."""

    epoch: int
    reason: LossReason | None


Said = Answer | Failed | Rang | Lost

encode = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(Call).decode
decode_said = msgspec.msgpack.Decoder(Said).decode


def failed(number: int, error: OutlastError) -> Failed:
    attributes = {key: value for key, value in vars(error).items() if isinstance(value, str | int | None)}
    return Failed(number, type(error).__name__, str(error.args[0]), attributes)


def as_error(said: Failed) -> OutlastError:
    kind = getattr(errors, said.kind, OutlastError)
    error: OutlastError = kind.__new__(kind, said.message)
    error.__dict__.update(said.attributes)
    return error
