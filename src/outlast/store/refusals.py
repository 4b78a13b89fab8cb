"""How a store refuses: the same errors, in the same words, whatever its back end."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from outlast.errors import (
    AmbiguousIdError,
    ConflictError,
    FencedError,
    ForkedError,
    IntegrityError,
    LeaseHeldError,
    RequestCollisionError,
    SessionNotFoundError,
    StoreBehindError,
    StoreError,
    UsageError,
)

_LISTS = "`outlast ls` lists them"

# --- ledger ------------------------------------------------------------------------------------


def conflict(name: str, *, tip: int, expected: int) -> ConflictError:
    return ConflictError(
        f"the journal of {name} ends at record {tip}, not {expected}", tip=tip, session_id=name
    )


def not_gapless(name: str, *, tip: int, epoch: int) -> StoreError:
    return StoreError(
        f"the batch for {name} does not follow record {tip} of epoch {epoch} gaplessly", session_id=name
    )


def not_waiting(name: str, request: str) -> StoreError:
    return StoreError(
        f"request {request} of {name} is not waiting in the inbox",
        hint="it was settled before, or never admitted",
        session_id=name,
    )


# --- leases ------------------------------------------------------------------------------------


def fenced(name: str, *, epoch: int, in_force: int) -> FencedError:
    return FencedError(
        f"epoch {epoch} does not own {name}: the lease in force is of epoch {in_force}",
        epoch=in_force,
        session_id=name,
    )


def lost(name: str, *, epoch: int) -> FencedError:
    return FencedError(f"the lease of {name} was lost", epoch=epoch, session_id=name)


def declared_dead(name: str) -> FencedError:
    return FencedError(
        "another process declared this one dead and took its sessions over", epoch=0, session_id=name
    )


def held(name: str, *, epoch: int, label: str, own: bool) -> LeaseHeldError:
    which = quote(name)
    hint = (
        f"`outlast attach {which}` follows it; `outlast resume {which} --take-over` ends that process and"
        " takes the session"
    )
    if own:
        hint = "this very process owns it"
    return LeaseHeldError(
        f"{name} is owned by {label} (epoch {epoch})", holder=label, epoch=epoch, hint=hint, session_id=name
    )


# --- inbox -------------------------------------------------------------------------------------


def collision(name: str, request: str) -> RequestCollisionError:
    return RequestCollisionError(
        f"request {request} was given before with another content",
        hint="use a new key for a new request",
        session_id=name,
    )


# --- catalog -----------------------------------------------------------------------------------


def no_session(name: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"no session {name}", session_id=name, hint=_LISTS)


def nothing_left(name: str) -> IntegrityError:
    """For a session that had begun and of whose journal no record is there."""
    return IntegrityError(
        f"of the journal of {name} nothing is left",
        seq=0,
        reason=NOTHING_LEFT,
        hint=f"put a backup back; `outlast repair {quote(name)} --anew` begins it again without its history",
        session_id=name,
    )


NOTHING_LEFT = "its journal is lost, all of it"


def ambiguous_id(prefix: str, first: str, second: str) -> AmbiguousIdError:
    return AmbiguousIdError(f"{prefix} fits {first}, {second} and maybe more", hint="give more of the id")


def require_name(name_or_prefix: str) -> None:
    """Every id begins with an empty one. Raises UsageError."""
    if not name_or_prefix:
        raise UsageError("an empty session id names no session", hint=_LISTS)


# --- blobs -------------------------------------------------------------------------------------


def bad_blob(digest: str, reason: str) -> IntegrityError:
    hint = "restore it from a backup"
    return IntegrityError(f"blob {digest} is {reason}", seq=0, reason=reason, hint=hint)


def require_digest(digest: str) -> None:
    """A digest can come from a record; as a path it must not leave its folder. Raises UsageError."""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise UsageError(f"{digest!r} is no SHA-256 in lower-case hexadecimal")


# --- life --------------------------------------------------------------------------------------


def closed() -> StoreError:
    return StoreError("the store is closed")


def behind(store: Path) -> StoreBehindError:
    return StoreBehindError(
        f"the store {store} is a backup that was put back, or older than what this machine has seen of it: it"
        " is open for reading only",
        hint="`outlast doctor --after-restore` goes on with it as it is",
    )


def forked() -> ForkedError:
    return ForkedError(
        "this store was opened before the process forked", hint="open another one in the child"
    )
