"""A journal's state after records that nobody has stored (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outlast.ids import derived_uuid
from outlast.records.codec import encode_body, record_of, row_of
from outlast.records.envelope import Draft, Record, Stamp
from outlast.records.types import Fence
from outlast.state.fold import apply
from outlast.state.model import State


@dataclass(slots=True)
class Supposed:
    """`state`, and the records that were added to it, each checked as the journal does it."""

    state: State
    records: list[Record] = field(default_factory=list)

    def add(self, drafts: Sequence[Draft]) -> None:
        """One batch. Raises what the fold raises of a record that contradicts what came before it."""
        after = self.state.copy()
        epoch = after.epoch
        for draft in drafts:
            epoch = draft.body.epoch if isinstance(draft.body, Fence) else epoch
            stamp = Stamp(after.seq + 1, epoch, derived_uuid(after.session, after.seq), 0)
            row = row_of(draft, encode_body(draft.body), stamp, after.session, after.chain)
            record = record_of(row, after.session)
            apply(after, record)
            self.records.append(record)
        self.state = after
