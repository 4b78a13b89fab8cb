"""How records of ownership, session, restore and loops change the state."""

from __future__ import annotations

from msgspec.structs import replace

from outlast.records import agent_state as a
from outlast.records import types as t
from outlast.records.envelope import Record
from outlast.state.lookup import Rules, loop_of, refuse
from outlast.state.model import Loop, State
from outlast.state.title import one_line

# --- ownership, session, restore ---------------------------------------------------------------


def _fence(state: State, record: Record, body: t.Fence) -> None:
    if body.epoch != record.epoch:
        refuse(state, record, f"it fences epoch {body.epoch} and was written under {record.epoch}")
    if body.epoch <= state.epoch:
        refuse(state, record, f"epoch {body.epoch} is not above that of the newest Fence ({state.epoch})")
    state.epoch = body.epoch
    state.holder = body.holder
    state.restoring = False


def _journal_repaired(state: State, record: Record, body: t.JournalRepaired) -> None:
    """For people: what the cut left undecided is told by the records after it."""


def _session_started(state: State, record: Record, body: t.SessionStarted) -> None:
    if state.lineage:
        refuse(state, record, "the session had started before")
    state.lineage = body.lineage
    state.manifest = body.manifest
    state.title = one_line(body.title)
    state.workspace = body.workspace
    state.labels = dict(body.labels)
    state.created_at = record.at


def _session_stopped(state: State, record: Record, body: t.SessionStopped) -> None:
    state.stopped = body.reason


def _restore_started(state: State, record: Record, body: t.RestoreStarted) -> None:
    state.restoring = True


def _restore_done(state: State, record: Record, body: t.RestoreDone) -> None:
    if not state.restoring:
        refuse(state, record, "this owner has begun no restore")
    stale = next((turn for turn in state.open_turns.values() if turn.epoch != state.epoch), None)
    if stale is not None:
        refuse(state, record, f"turn {stale.turn} of epoch {stale.epoch} is open and nobody attached to it")
    state.restoring = False


def _restore_errored(state: State, record: Record, body: t.RestoreErrored) -> None:
    if not state.restoring:
        refuse(state, record, "this owner has begun no restore")


# --- loops -------------------------------------------------------------------------------------


def _loop_started(state: State, record: Record, body: t.LoopStarted) -> None:
    if body.loop in state.loops:
        refuse(state, record, f"loop {body.loop} had started before")
    if body.parent is None and state.root is not None:
        refuse(state, record, f"the session has a root loop already: {state.root}")
    if body.parent is not None and body.parent not in state.loops:
        refuse(state, record, f"there is no loop {body.parent} that could be its parent")
    state.loops[body.loop] = Loop(body.loop, body.name, body.agent, body.agent_kind)
    if body.parent is None:
        state.root = body.loop


def _loop_changed(state: State, record: Record, body: t.LoopChanged) -> None:
    loop = loop_of(state, record)
    loop.held = body.state == "held"
    if not loop.held:
        state.stopped = None  # A person wants the work to go on.


def _agent_session_changed(state: State, record: Record, body: t.AgentSessionChanged) -> None:
    loop = loop_of(state, record)
    another = body.provider_session != loop.provider_session
    loop.confirmed = body.state == "confirmed" or (loop.confirmed and not another)
    loop.session_since = record.seq if another else loop.session_since
    if body.state == "lost":
        loop.lost_because, loop.lost_at = body.reason, record.seq
        loop.accepted = None
    elif body.state == "confirmed":
        loop.untold = None
    elif another:
        loop.untold = 0 if loop.decided == "reseed" else None
        loop.decided = loop.called_since = None  # What was cut off is told with all else, or not to be known.
        _begins(state, loop)
    elif body.state == "bound" and loop.decided == "as_is":
        loop.decided = None
    if loop.failed is not None and body.provider_session != loop.failed.provider_session:
        loop.failed = None  # The journal says why it is another one.
    loop.provider = body.provider
    loop.provider_session = body.provider_session
    loop.provider_state = body.state


def _begins(state: State, loop: Loop) -> None:
    """The loop has another provider session. An agent that names it after it was given its input has that
    in it; what was given before is not."""
    loop.inputs, before = 0, state.seq
    for turn in state.open_turns.values():
        if turn.loop == loop.loop and turn.reserved is not None:
            loop.inputs, before = 1, turn.attempt_seq
    _forget(state, loop, before=before)


def _forget(state: State, loop: Loop, *, before: int = 0, after: int | None = None) -> None:
    """The loop's provider session has no input that was given up to the record `before`, or since `after`."""

    def lacks(asked: int) -> bool:
        return asked <= before or (after is not None and asked > after)

    for turn in state.open_turns.values():
        if turn.loop == loop.loop and lacks(turn.asked):
            turn.asked = 0
    for closed in (state.parked, state.retryable, state.last_unsuccessful):
        for key, one in closed.items():
            if one.loop == loop.loop and one.asked and lacks(one.asked):
                closed[key] = replace(one, asked=0)
    for entry in state.queue.marked():
        if loop.loop == state.root and entry.asked and lacks(entry.asked):
            state.queue[entry.request_id] = replace(entry, asked=0)


def _agent_session_decided(state: State, record: Record, body: a.AgentSessionDecided) -> None:
    loop_of(state, record).decided = body.choice
    turn = state.open_turns.get(record.turn or "")
    if turn is not None and body.by in a.BY_ITSELF:
        turn.begun_anew = record.epoch


def _agent_state_captured(state: State, record: Record, body: a.AgentStateCaptured) -> None:
    loop = loop_of(state, record)
    if body.accepted:
        loop.accepted = body
    else:
        loop.captured, loop.accepted = body, None


def _agent_state_restored(state: State, record: Record, body: a.AgentStateRestored) -> None:
    loop = loop_of(state, record)
    loop.untold = body.through_seq
    _forget(state, loop, after=body.through_seq)
    if loop.decided == "put_back":
        loop.decided = None


RULES: Rules = {
    t.Fence: _fence,
    t.JournalRepaired: _journal_repaired,
    t.SessionStarted: _session_started,
    t.SessionStopped: _session_stopped,
    t.RestoreStarted: _restore_started,
    t.RestoreDone: _restore_done,
    t.RestoreErrored: _restore_errored,
    t.LoopStarted: _loop_started,
    t.LoopChanged: _loop_changed,
    t.AgentSessionChanged: _agent_session_changed,
    a.AgentSessionDecided: _agent_session_decided,
    a.AgentStateCaptured: _agent_state_captured,
    a.AgentStateRestored: _agent_state_restored,
}
