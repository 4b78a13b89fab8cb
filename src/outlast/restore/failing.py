"""What the caller of a restore is told of what it failed of."""

from __future__ import annotations

from outlast.errors import (
    IntegrityError,
    OutlastError,
    RestoreError,
    SessionNotFoundError,
    UnsupportedRecordError,
    in_words,
)


def as_restore_error(error: Exception, kind: str, phase: str, session: str) -> Exception:
    """What the caller of a restore is told of what failed in `phase`."""
    if isinstance(error, RestoreError | SessionNotFoundError | IntegrityError | UnsupportedRecordError):
        return error
    message, hint = str(error), None
    if isinstance(error, OutlastError):
        message, hint = error.message, error.hint
    elif isinstance(error, OSError):
        message, hint = in_words(error)
    return RestoreError(message, kind=kind, phase=phase, hint=hint, session_id=session)
