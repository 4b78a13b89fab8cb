"""What a restore writes, made by the restore's own record makers, without processes."""

from __future__ import annotations

from dataclasses import replace

from outlast.agents.contract import TurnEnded
from outlast.records.envelope import Draft
from outlast.records.types import Fence, RestoreDone, RestoreStarted, TurnAttached
from outlast.restore.facts import Facts
from outlast.restore.plan import RestorePlan
from outlast.restore.repairs import closing_gates, quick_repairs, slow_ending
from outlast.state.model import State
from outlast.state.supposed import Supposed
from outlast.turns.steering import Unlanded
from outlast.turns.terminal import Ending, close, host_done


def carried_out(state: State, seen: Facts, chosen: RestorePlan, unlanded: Unlanded = None) -> Supposed:
    """`state` after the restore that `chosen` describes. `unlanded`: what the agent's spool says of the
    inputs that were to join the turn."""
    epoch = state.epoch + 1
    on = Supposed(state)
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
