"""What a restore writes, made by the restore's own record makers, without processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from outlast.agents.contract import TurnEnded
from outlast.ids import derived_uuid
from outlast.records.codec import encode_body, record_of, row_of
from outlast.records.envelope import Draft, Record, Stamp
from outlast.records.types import Fence, RestoreDone, RestoreStarted, TurnAttached
from outlast.restore.facts import Facts
from outlast.restore.plan import RestorePlan
from outlast.restore.repairs import closing_gates, quick_repairs, slow_ending
from outlast.state.fold import apply
from outlast.state.model import State
from outlast.turns.steering import Unlanded
from outlast.turns.terminal import Ending, close, host_done


@dataclass
class Continued:
    """A journal's state, and the records that were added to it, each checked as the journal does it."""

    state: State
    records: list[Record] = field(default_factory=list)

    def add(self, drafts: Sequence[Draft]) -> None:
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


def carried_out(state: State, seen: Facts, chosen: RestorePlan, unlanded: Unlanded = None) -> Continued:
    """`state` after the restore that `chosen` describes. `unlanded`: what the agent's spool says of the
    inputs that were to join the turn."""
    epoch = state.epoch + 1
    on = Continued(state)
    on.add(
        [
            Draft(Fence(epoch=epoch, holder="next", previous_epoch=state.epoch)),
            Draft(RestoreStarted(from_seq=chosen.tip, turns=list(chosen.turns))),
            *quick_repairs(state, chosen),
        ]
    )
    for turn in chosen.turns:
        if turn.action == "attach":
            attached = TurnAttached(attempt=1, generation="g", spool_offset=0)
            on.add([Draft(attached, loop=turn.loop, turn=turn.turn)])
        elif turn.action in ("settle", "interrupt"):
            ending = slow_ending(turn, seen.agents[turn.loop])
            if turn.action == "settle":
                ending = Ending(ended=TurnEnded(turn.turn))
            ending = replace(ending, unlanded=unlanded)
            closing = host_done(on.state, turn.turn, ending) or close(on.state, turn.turn, ending)
            on.add(closing.drafts)
    on.add(closing_gates(on.state, chosen))
    on.add([Draft(RestoreDone(took_ms=0))])
    return on
