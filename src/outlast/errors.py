"""Every exception that outlast raises.

OutlastError
├── UsageError                    the call or command line is wrong (exit 2)
│   ├── ConfigError               a configuration file or environment variable is wrong
│   ├── InputError                text that cannot be stored faithfully
│   ├── PlatformError             this system or filesystem cannot carry the promise
│   └── ForkedError               a Runtime used in a forked child
├── NotFoundError                 exit 3
│   ├── SessionNotFoundError      also a KeyError
│   ├── TurnNotFoundError
│   ├── GateNotFoundError
│   ├── AgentNotFoundError
│   └── EffectNotFoundError
├── OwnershipError                somebody else owns it (exit 4)
│   ├── LeaseHeldError            names the holder
│   ├── LeaseLostError            this process owned it and does so no more
│   ├── RequestCollisionError     one request id, two bodies
│   ├── SessionInUseError         an agent's own session that somebody else has
│   ├── BusyError                 `when_busy="reject"` and a turn was running
│   └── AmbiguousIdError          a prefix that fits several sessions
├── StoreError                    not stored; but for one:
│   ├── ConflictError             the journal's tip was another one
│   ├── FencedError               a higher epoch has written
│   ├── AmbiguousAppendError      stored or not, nobody knows yet
│   ├── StoreBusyError            the database stayed locked past the deadline
│   ├── StoreFullError            no space, or the filesystem is read-only
│   │   └── StoreLimitError       a file may not grow so large (ulimit -f)
│   ├── StoreAccessError          the system refuses the store's files for another reason
│   ├── StoreBehindError          a backup that was put back and not accepted yet (exit 5)
│   └── SchemaError               the store was made by a newer outlast, or is not a store
├── RecordError
│   ├── InvalidRecordError        bytes that are not the record they claim to be
│   └── UnsupportedRecordError    a type or version that this outlast does not read
├── IntegrityError                the journal, a blob or the witness contradicts itself (exit 5)
├── RestoreError                  kind: lease replay probe append loop agent materialize cancelled
│   └── RestoreDiscoveryError     the journal lacks what every session has
├── AgentError                    the agent cannot be started or spoken to
├── EffectRefusedError            raised by an effect of a turn: it did nothing, the turn fails there
├── FailedTurnRecoveryError       also a ValueError; a failed turn cannot be recovered as its journal asks
│   ├── RecoveryShapeError        the recovery record, the request or the binding is none
│   ├── RecoverySchemaError       a schema of the recovery record that this outlast does not read
│   ├── RecoveryKindError         a kind of recovery that this outlast does not know
│   ├── RecoveryPhaseError        the turn failed in another phase than its host step
│   ├── RecoveryResolverError     nobody can tell which agent session is bound now, or the asking failed
│   └── FailedTurnSessionRecoveryError  the bound agent session is not the failed turn's
├── KeepError                     between a runtime and its agents' shims: see `outlast.keep.errors`
└── TurnError                     raised by `Outcome.raise_for_failure()`, but for the last:
    ├── TurnFailedError
    ├── TurnInterruptedError
    ├── TurnCancelledError        exit 130
    ├── TurnParkedError
    └── TurnHeldError             the turn has not begun, and does only when a person says so
"""

from __future__ import annotations

import errno
import os
import re
from typing import ClassVar

_SPACE = "free some space and run the same command again; nothing acknowledged is lost"
_RIGHTS = "`outlast doctor` checks the permissions; OUTLAST_STATE_DIR names another place for the state"
_ADVICE = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EIO: "look at the disk, then run the same command again; nothing acknowledged is lost",
    errno.EROFS: "the filesystem is read-only; OUTLAST_STATE_DIR names another place for the state",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: "look whether the folder is there; OUTLAST_STATE_DIR names another place for the state",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


RAISE_FILE_SIZE = "raise the limit with `ulimit -f unlimited`, then run the same command again"


def file_size_limit() -> int | None:
    """The most bytes that this process may give a file (RLIMIT_FSIZE); None where it has no such limit."""
    import resource  # noqa: PLC0415 - `outlast ls` starts without

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if limit == resource.RLIM_INFINITY else limit


def in_words(error: OSError) -> tuple[str, str | None]:
    """What the system refused, at which file where that is known; and what to do about it."""
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    if error.errno == errno.EFBIG and (limit := file_size_limit()) is not None:
        return f"{where}this process may write no file larger than {limit:,} bytes", RAISE_FILE_SIZE
    return f"{where}{error.strerror or error}", _ADVICE.get(error.errno or 0)


_BARE = re.compile(
    "`outlast (answer|attach|cancel|close|kill|plan|repair|resume|retry|seal|send|settle|show|skip|tail"
    "|verify|wait)((?: --(?!all|database)[a-z-]+)*)`"
)
"""A command of a session that does not name it yet."""


def naming(text: str, session: str) -> str:
    """The text with the session in its commands, so that they can be pasted."""
    if "`outlast " not in text:
        return text
    from shlex import quote  # noqa: PLC0415 - most errors name no command

    return _BARE.sub(lambda found: f"`outlast {found[1]} {quote(session)}{found[2]}`", text)


def _code_of(name: str) -> str:
    bare = name.removesuffix("Error") or name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", bare).lower()


class OutlastError(Exception):
    """The base of the family.

    `message` says what happened and why, `hint` what to do about it. `code` is the class name in
    snake case without `Error`; `exit_code` is what the command line exits with. No instance carries
    credentials, provider messages or file contents. A command in the hint that lacks its session is given it.
    """

    code: ClassVar[str] = "outlast"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, session_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is None or session_id is None else naming(hint, session_id)
        self.session_id = session_id

    def of_session(self, session_id: str) -> None:
        """Whose error it is, where that shows only to who catches it."""
        self.session_id = session_id
        self.hint = None if self.hint is None else naming(self.hint, session_id)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.code = _code_of(cls.__name__)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}. {self.hint}"


class UsageError(OutlastError):
    """The call or the command line is wrong; nothing was changed."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file, URL or environment variable is wrong."""


class InputError(UsageError):
    """Text that cannot be stored and given to an agent unchanged (a lone surrogate)."""


class PlatformError(UsageError):
    """This operating system or filesystem cannot carry outlast's promise."""


class ForkedError(UsageError):
    """A Runtime was used in a forked child; ownership is never inherited by a fork."""


class NotFoundError(OutlastError):
    """What was named does not exist."""

    exit_code = 3


class SessionNotFoundError(NotFoundError, KeyError):
    """No session has this id or label."""

    def __str__(self) -> str:
        return OutlastError.__str__(self)  # KeyError's own puts the message in quotes


class TurnNotFoundError(NotFoundError):
    """The session has no turn with this id, or none that the command applies to."""


class GateNotFoundError(NotFoundError):
    """The session never had a gate with this id."""


class AgentNotFoundError(NotFoundError):
    """No agent of this name is configured or installed."""


class EffectNotFoundError(NotFoundError):
    """A turn needs an effect that this process does not have, or has no effect of this name or id."""


class OwnershipError(OutlastError):
    """Somebody else owns it."""

    exit_code = 4


class LeaseHeldError(OwnershipError):
    """A living process owns the session. `holder` describes it for people, `epoch` is its lease's."""

    def __init__(
        self, message: str, *, holder: str, epoch: int, hint: str | None = None, session_id: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id)
        self.holder = holder
        self.epoch = epoch


class LeaseLostError(OwnershipError):
    """This process owned the session and does so no more."""


class RequestCollisionError(OwnershipError):
    """A request id was used again with another body."""


class SessionInUseError(OwnershipError):
    """An agent's own session is another outlast session's, or open in another process."""


class BusyError(OwnershipError):
    """The input was given with `when_busy="reject"` and a turn was running."""


class AmbiguousIdError(OwnershipError):
    """A prefix that fits more than one session."""

    exit_code = 2


class StoreError(OutlastError):
    """The store refused or failed: what was asked is definitely not stored, except where it is an
    AmbiguousAppendError."""


class ConflictError(StoreError):
    """The tip was not the expected one; `tip` is the sequence number found."""

    def __init__(self, message: str, *, tip: int, session_id: str | None = None) -> None:
        super().__init__(message, session_id=session_id)
        self.tip = tip


class FencedError(StoreError):
    """The lease is not (or no longer) the one in force; `epoch` is the highest known."""

    exit_code = 4

    def __init__(self, message: str, *, epoch: int, session_id: str | None = None) -> None:
        super().__init__(message, session_id=session_id)
        self.epoch = epoch


class AmbiguousAppendError(StoreError):
    """Stored or not, nobody knows yet; only appending the same batch again can tell."""


class StoreBusyError(StoreError):
    """The database stayed locked past the deadline; names the process that holds it where known."""

    exit_code = 4


class StoreFullError(StoreError):
    """No space left, or the filesystem is read-only; works again once that is mended."""


class StoreLimitError(StoreFullError):
    """A file of the store may not grow, by a limit of this process (`ulimit -f`) or of its filesystem, which
    does not go away by itself."""


class StoreAccessError(StoreError):
    """The system does not let this user read or write the store's files, or they are not there; works again
    once that is mended."""


class StoreBehindError(StoreError):
    """The store is a backup that was put back, or older than what this machine has seen of it: it is open for
    reading only until a person accepts it."""

    exit_code = 5


class SchemaError(StoreError):
    """The file is not an outlast store, or a newer outlast made it; it was not touched."""

    exit_code = 5


class RecordError(OutlastError):
    """A record cannot be used."""

    exit_code = 5


class InvalidRecordError(RecordError):
    """Bytes that are not the record they claim to be."""


class UnsupportedRecordError(RecordError):
    """A record type or version that this outlast does not read."""


class IntegrityError(OutlastError):
    """The journal, a blob or the head witness contradicts itself at `seq`, for `reason`. `noted` is where the
    journal had ended by its witness, 0 where that is not the matter."""

    exit_code = 5

    def __init__(
        self,
        message: str,
        *,
        seq: int,
        reason: str,
        noted: int = 0,
        hint: str | None = None,
        session_id: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id)
        self.seq = seq
        self.reason = reason
        self.noted = noted


class RestoreError(OutlastError):
    """A restore failed and was rolled back. `kind` is one of lease, replay, probe, append, loop,
    agent, materialize, cancelled; `phase` names the phase that failed; `__cause__` is what it failed of."""

    def __init__(
        self, message: str, *, kind: str, phase: str, hint: str | None = None, session_id: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id)
        self.kind = kind
        self.phase = phase


class RestoreDiscoveryError(RestoreError):
    """The journal lacks a record that every session begins with; `missing` names it."""

    def __init__(self, session_id: str, missing: str) -> None:
        super().__init__(
            f"the journal of session {session_id} has no {missing}",
            kind="replay",
            phase="discover",
            session_id=session_id,
            hint="`outlast verify` says what is wrong; `outlast tail` prints what is there",
        )
        self.missing = missing


class AgentError(OutlastError):
    """The agent cannot be started or spoken to."""


class EffectRefusedError(OutlastError):
    """Raised by the body of a turn's effect: it did nothing, and the turn must not go on. The message becomes
    the turn's receipt."""


class FailedTurnRecoveryError(OutlastError, ValueError):
    """A failed turn cannot be recovered as its journal asks; nothing was launched. `reason` names what
    did not hold, for programs."""

    def __init__(
        self, message: str, *, reason: str, hint: str | None = None, session_id: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id)
        self.reason = reason


class RecoveryShapeError(FailedTurnRecoveryError):
    """The recovery record, the request or the binding is not of its shape."""


class RecoverySchemaError(FailedTurnRecoveryError):
    """The recovery record has a schema that this outlast does not read."""


class RecoveryKindError(FailedTurnRecoveryError):
    """The recovery record asks for something that this outlast does not know."""


class RecoveryPhaseError(FailedTurnRecoveryError):
    """The turn failed in another phase than its host step: no agent session is to be resumed for it."""


class RecoveryResolverError(FailedTurnRecoveryError):
    """There is nobody to ask which agent session is bound now, or the asking failed."""


class FailedTurnSessionRecoveryError(FailedTurnRecoveryError):
    """The agent session that is bound now is not the failed turn's, or not one of the program that the
    agent's name stands for, or there is none."""


class TurnError(OutlastError):
    """A turn did not end as done. `turn` is its id."""

    def __init__(
        self, message: str, *, turn: str, hint: str | None = None, session_id: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id)
        self.turn = turn


class TurnFailedError(TurnError):
    """The agent failed; the receipt says how."""


class TurnInterruptedError(TurnError):
    """A crash or a close cut the turn off."""


class TurnCancelledError(TurnError):
    """A person cancelled the turn."""

    exit_code = 130


class TurnParkedError(TurnError):
    """The turn waits for `outlast retry` or `outlast skip`."""


class TurnHeldError(TurnError):
    """The turn has not begun: its input waits in a held queue, or in a closed session, until a person lets
    it go on. Raised by whoever waits for its end."""
