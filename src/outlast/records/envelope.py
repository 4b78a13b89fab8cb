"""The envelope of a record: what is known of it beside its body (records.md, "Envelope")."""

from __future__ import annotations

import msgspec

from outlast.records.registry import REGISTRY
from outlast.records.types import Body
from outlast.records.uuids import uuid_text


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """How far the journal has taken an agent's output in (shim.md, "Cursor")."""

    generation: str
    frame: int
    """Spool offset after the last frame that was taken in, or of an input of which only a part lay before."""
    stdout: int
    """Stdout offset after the last line that was taken in."""
    last_input: int
    """Seq of the last input frame that was folded."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A record before it is written: the journal adds seq, epoch, id, time and chain."""

    body: Body
    loop: str | None = None
    turn: str | None = None
    cause: str | None = None
    """Id of the record or request that led to this one."""
    actor: str | None = None
    cursor: Cursor | None = None
    id: str | None = None
    """Given where the same record may be written again (`codec.output_record_id`), else the journal makes
    one."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """What the journal gives to a draft."""

    seq: int
    epoch: int
    uuid: bytes
    """16 bytes; used where the draft has no id of its own."""
    at: int
    """UTC, microseconds."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One durable record of a session, decoded. `body` is of the newest version of its type, whatever `v`
    was stored; it is a `BlobRef` only where the reader asked for that."""

    seq: int
    epoch: int
    uuid: bytes
    """The 16 bytes of `id`."""
    at: int
    """UTC, microseconds; for people, never for order."""
    type: str
    v: int
    loop: str | None
    turn: str | None
    cause: str | None
    actor: str | None
    cursor: Cursor | None
    body: Body
    chain: bytes

    @property
    def id(self) -> str:
        """The record's UUID as text. Made when asked for: a replay asks for none."""
        return uuid_text(self.uuid)

    @property
    def public(self) -> bool:
        """Whether it is shown outside: a property of its type."""
        return REGISTRY.is_public(self.type)
