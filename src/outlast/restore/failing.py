"""What the caller of a restore is told of what it failed of."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from outlast.errors import (
    ConfigError,
    EffectNotFoundError,
    IntegrityError,
    OutlastError,
    RestoreError,
    SessionNotFoundError,
    StoreBehindError,
    UnsupportedRecordError,
    in_words,
)
from outlast.state.model import State
from outlast.store.contract import Entry
from outlast.turns.effects import Effects, lacking, still_owed
from outlast.turns.reopening import unable

_AS_THEY_ARE = (
    ConfigError,
    RestoreError,
    SessionNotFoundError,
    IntegrityError,
    UnsupportedRecordError,
    StoreBehindError,
)
"""What says itself why there is no restoring, in the same words to every command."""


def as_restore_error(error: Exception, kind: str, phase: str, session: str) -> Exception:
    """What the caller of a restore is told of what failed in `phase`."""
    if isinstance(error, _AS_THEY_ARE):
        return error
    message, hint = str(error), None
    if isinstance(error, OutlastError):
        message, hint = error.message, error.hint
    elif isinstance(error, OSError):
        message, hint = in_words(error)
    return RestoreError(message, kind=kind, phase=phase, hint=hint, session_id=session)


def require_effects(state: State, pending: Sequence[Entry], effects: Effects) -> None:
    """Raises EffectNotFoundError where an open turn owes effects that this process does not have, or one that
    a command among `pending` opens again: ended here it would be without them, and the command refused."""
    for turn in state.open_turns.values():
        missing = lacking(still_owed(turn), effects)
        if missing:
            raise EffectNotFoundError(
                f"turn {turn.turn} owes {', '.join(missing)}, which this process does not have",
                hint="let the program that has these effects restore the session",
                session_id=state.session,
            )
    for waiting in unable(state, pending, effects):
        names, which = ", ".join(waiting.missing), f"{quote(state.session)} {quote(waiting.turn)}"
        raise EffectNotFoundError(
            f"turn {waiting.turn} owes {names}, which this process does not have, and its "
            f"{waiting.entry.kind} is kept for a process that does",
            hint="start the program that has these effects: it carries it out; "
            f"`outlast cancel {which}` takes it back",
            session_id=state.session,
        )
