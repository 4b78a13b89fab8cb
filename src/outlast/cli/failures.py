"""Errors, shown once: one line on stderr that says what, why and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec

from outlast.cli.exits import Exit
from outlast.cli.output import visible
from outlast.errors import (
    BusyError,
    EffectNotFoundError,
    IntegrityError,
    LeaseHeldError,
    NotFoundError,
    OutlastError,
    OwnershipError,
    RestoreError,
    StoreAccessError,
    StoreFullError,
    TurnHeldError,
    in_words,
)


class ErrorLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one line of `--json` on stderr. A contract: docs/cli.md."""

    error: str
    message: str
    hint: str | None
    session: str | None = None
    kind: str | None = None
    """Of a restore that failed: what it failed at."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way out."""

    line: ErrorLine
    exit_code: int
    below: tuple[str, ...] = ()
    """For people, each on a line of its own below the error: what they choose from."""
    afterwards: Callable[[], None] | None = None
    """Says what comes after the error: the way back."""

    def as_text(self) -> str:
        message = _one_line(self.line.message).rstrip(".")
        separator = " " if message.endswith("?") else ". "
        hint = f"{separator}{_one_line(self.line.hint)}" if self.line.hint else ""
        return "\n".join(map(visible, (f"outlast: {message}{hint}", *self.below)))

    def as_json(self) -> str:
        return msgspec.json.encode(self.line).decode("utf-8")


class NothingToDoError(NotFoundError):
    """The command found nothing that it applies to."""


class WaitingForAnswerError(OutlastError):
    """A question, `gate`, is open that nobody here answers; the agent waits under its shim."""

    exit_code = Exit.WAITING

    def __init__(
        self,
        message: str,
        *,
        gate: str,
        choices: tuple[str, ...] = (),
        hint: str | None = None,
        session_id: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, session_id=session_id)
        self.gate = gate
        self.choices = choices
        """A line for each, for people."""


class NobodyRunsItError(OutlastError):
    """There is work left, and no process that does it."""


class OutputError(OutlastError):
    """What was to be printed could not be."""


class DetachedError(OutlastError):
    """The command left the work before it was done, because it was told to."""

    exit_code = Exit.INTERRUPTED


@dataclass(slots=True)
class Sent:
    """What became of a command's input, as far as it got: the failures after that are told with it."""

    session: str | None = None
    turn: str = ""
    ended: bool = False
    """Its turn has ended."""

    def stored(self, session: str, turn: str) -> None:
        """It is durable."""
        self.session, self.turn = session, turn


class StoredInputError(Exception):
    """Its cause came after the input was stored: it is in no way lost, and must not be sent again."""

    def __init__(self, session: str, turn: str) -> None:
        super().__init__(session, turn)
        self.session = session
        self.turn = turn


class LeftError(Exception):
    """Its cause ended a command that had come to a session: after it the way back is told, the last line."""

    def __init__(self, way_back: Callable[[], None]) -> None:
        super().__init__()
        self.way_back = way_back


_ON_PURPOSE = (DetachedError, WaitingForAnswerError, OutputError, BusyError, TurnHeldError, LeftError)
"""Ways to end that say themselves what became of the input."""


@contextmanager
def telling_of(sent: Sent) -> Iterator[None]:
    """What fails within, once the input is stored and before its turn has ended, is told with that."""
    try:
        yield
    except _ON_PURPOSE:
        raise
    except Exception as error:
        if sent.session is None or sent.ended:
            raise
        raise StoredInputError(sent.session, sent.turn) from error


def failure_of(error: BaseException) -> Failure:
    """What the user is told about `error`, whatever it is."""
    if isinstance(error, LeftError):
        assert error.__cause__ is not None
        return replace(failure_of(error.__cause__), afterwards=error.way_back)
    if isinstance(error, OutlastError):
        choices = error.choices if isinstance(error, WaitingForAnswerError) else ()
        return Failure(_line_of(error), _exit_of(error), tuple(f"  {line}" for line in choices))
    if isinstance(error, StoredInputError):
        return _after_storing(error)
    if isinstance(error, KeyboardInterrupt):
        return Failure(ErrorLine("interrupted", "interrupted", None), Exit.INTERRUPTED)
    if isinstance(error, FileNotFoundError) and error.filename is None and _current_folder_is_gone():
        line = ErrorLine("usage", "the current folder is not there any more", "go to another one")
        return Failure(line, Exit.USAGE)
    if isinstance(error, OSError):
        return Failure(ErrorLine("os", *in_words(error)), Exit.FAILED)
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return failure_of(error.exceptions[0])
    text = str(error) or "no message"
    return Failure(
        ErrorLine(
            "internal",
            f"internal error: {type(error).__name__}: {text}",
            "nothing acknowledged is lost; --debug shows where it happened",
        ),
        Exit.FAILED,
    )


def _after_storing(error: StoredInputError) -> Failure:
    from shlex import quote

    assert error.__cause__ is not None
    failure = failure_of(error.__cause__)
    line = failure.line
    advice = f"when that is mended, `outlast resume {quote(error.session)}` goes on with it"
    # What a full disk's own advice says of storing is not true of the input.
    own = None if _comes_from(error, OSError, StoreFullError, StoreAccessError) else line.hint
    # Of effects that no command has, the error itself says who goes on.
    parts = [own and own.rstrip("."), None if _comes_from(error, EffectNotFoundError) else advice]
    told = msgspec.structs.replace(
        line,
        message=f"{line.message}; the input is stored, as turn {error.turn} of session {error.session}",
        hint="; ".join([*filter(None, parts), "sent again it would be another turn"]),
        session=error.session,
    )
    return Failure(told, failure.exit_code)


def _comes_from(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether it is one of these, or was caused by one."""
    cause = error.__cause__
    return isinstance(error, kinds) or (cause is not None and _comes_from(cause, *kinds))


def _exit_of(error: OutlastError) -> int:
    """A failed restore exits by its cause: a held lease is a conflict, a damaged journal a rejection."""
    cause = error.__cause__
    if isinstance(error, RestoreError) and isinstance(cause, OutlastError):
        return _exit_of(cause)
    return error.exit_code


def _line_of(error: OutlastError) -> ErrorLine:
    message, hint = error.message, error.hint
    code, kind = error.code, None
    held: BaseException | None = error
    if isinstance(error, RestoreError):
        held, kind = error.__cause__, error.kind
        if isinstance(held, OwnershipError):
            code = held.code  # the restore was refused, not tried
    if isinstance(held, LeaseHeldError) and held.holder not in message:
        message = f"{message}: held by {held.holder}"
    if isinstance(error, IntegrityError) and error.reason not in message:
        message = f"{message}: {error.reason}"
    return ErrorLine(code, _whole(message), None if hint is None else _whole(hint), error.session_id, kind)


def _current_folder_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - as little as can be
    except FileNotFoundError:
        return True
    return False


def _whole(text: str) -> str:
    """The text with what UTF-8 cannot carry made visible, so that reporting an error cannot fail."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _one_line(text: str) -> str:
    return " ".join(text.split())
