"""Running the event loop of a command."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import click

from outlast.cli.app import Debug
from outlast.cli.output import Screen, visible
from outlast.errors import OutlastError

T = TypeVar("T")


def run_async(screen: Screen, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. What the library tells the log meanwhile is told by the screen."""
    with heard(screen):
        return asyncio.run(work)


@contextmanager
def heard(screen: Screen) -> Iterator[None]:
    """Around all that may write to the log. Nobody configures one for a command: what is written to it would
    go to standard error by itself, in whatever form."""
    notices = _Notices(screen)
    root = logging.getLogger()
    root.addHandler(notices)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(notices)


class _Notices(logging.Handler):
    """Tells what is logged as a warning or worse: in one line, with `--debug` with its traceback."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen
        context = click.get_current_context(silent=True)
        self._debug = context is not None and context.find_object(Debug) is not None

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record) if self._debug else _in_one_line(record)
        with suppress(OutlastError):  # nothing can be printed: who prints next is told so
            self._screen.note(visible(f"outlast: {text}"))


def _in_one_line(record: logging.LogRecord) -> str:
    said = " ".join(record.getMessage().split())
    error = record.exc_info[1] if record.exc_info else None
    return said if error is None else f"{said}: {type(error).__name__}: {error}"
