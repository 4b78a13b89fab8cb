"""Records to state, and the invariants of records.md (the rules stand in `session_rules`, `turn_rules`,
`attempt_rules`).

Every rule checks first and changes the state afterwards, so that a refused record leaves no trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from outlast.records import agent_state as a
from outlast.records import types as t
from outlast.records.envelope import Record
from outlast.state import attempt_rules, effect_rules, session_rules, turn_rules
from outlast.state.lookup import Rules, loop_of, refuse
from outlast.state.model import State
from outlast.state.snapshot import plain


def fold(session: str, records: Iterable[Record]) -> State:
    """The state of a session after `records`, which begin with its first. Raises IntegrityError naming the
    first record that contradicts those before it."""
    state = State(session)
    for record in records:
        apply(state, record)
    return state


def apply(state: State, record: Record) -> None:
    """Take `record` into `state`, in place. Raises IntegrityError when it contradicts what came before;
    the state is unchanged then. The chain is the reader's to verify: here it is only carried."""
    body = record.body
    kind = type(body)
    rule = _RULES.get(kind)
    if rule is None:
        refuse(state, record, f"its body was not fetched, or {record.type} has no meaning here")
    if record.seq != state.seq + 1:
        refuse(state, record, f"a gap: the record before it is {state.seq}")
    if record.epoch != state.epoch and kind is not t.Fence:
        relation = "below" if record.epoch < state.epoch else "above"
        refuse(state, record, f"epoch {record.epoch} is {relation} that of the newest Fence ({state.epoch})")
    cursor = record.cursor
    if cursor is None:
        rule(state, record, body)
    else:
        loop = loop_of(state, record)
        rule(state, record, body)
        loop.cursor = cursor
    state.seq = record.seq
    state.chain = record.chain
    if kind not in _NO_ACTIVITY:
        state.last_activity_at = record.at


def digest(state: State) -> bytes:
    """SHA-256 of everything in a state, the order of its queue included: equal for equal states."""
    return hashlib.sha256(_encode(state)).digest()


_encode = msgspec.json.Encoder(enc_hook=plain).encode

_RULES: Rules = {
    **session_rules.RULES,
    **turn_rules.RULES,
    **attempt_rules.RULES,
    **effect_rules.RULES,
}

# What an owner does by itself is no activity: restoring all sessions must not reorder a list of them.
_NO_ACTIVITY: frozenset[type[t.Body]] = frozenset(
    {t.Fence, t.RestoreStarted, t.RestoreDone, t.RestoreErrored, t.AgentStateFolded, a.AgentStateCaptured}
)
