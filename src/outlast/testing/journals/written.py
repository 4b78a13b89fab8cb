"""Records of a journal that a test spells out itself."""

from __future__ import annotations

from collections.abc import Iterable

from outlast.ids import derived_uuid
from outlast.records.codec import encode_body, record_of, row_of
from outlast.records.envelope import Draft, Record, Stamp
from outlast.records.types import Fence

START = 1_700_000_000_000_000


def written(drafts: Iterable[Draft], session: str = "session") -> list[Record]:
    """The drafts as records of one journal, from seq 1 on, a millisecond apart. Each `Fence` begins its
    epoch; nothing else is checked."""
    records: list[Record] = []
    epoch, chain = 0, b""
    for seq, draft in enumerate(drafts, start=1):
        if isinstance(draft.body, Fence):
            epoch = draft.body.epoch
        stamp = Stamp(seq, epoch, derived_uuid(session, seq), START + seq * 1000)
        row = row_of(draft, encode_body(draft.body), stamp, session, chain)
        chain = row.chain
        records.append(record_of(row, session))
    return records
