"""Telling the program's log of a fault in what others wrote: an adapter, a policy. It ends no session."""

from __future__ import annotations

import logging
import os
import traceback

from outlast.agents.environment import secrets_in
from outlast.agents.failure import tidy

_LOG = logging.getLogger("outlast")


def report(what: str, error: BaseException) -> None:
    """One line: what was being done, the error without what looks like a credential or is one of this
    process's own, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    _LOG.error("%s: %s: %s (%s)", what, type(error).__name__, _words(error), place)


def warn(what: str) -> None:
    """One line about something that is no fault of any code: a sentence for whoever runs it, without what
    looks like a credential."""
    _LOG.warning("%s", tidy(what, secrets_in(os.environ)))


def _words(error: BaseException) -> str:
    try:
        return tidy(str(error), secrets_in(os.environ))
    except BaseException as worse:  # noqa: BLE001 - what others wrote, and only its words are lost
        return f"its words cannot be told, that raised {type(worse).__name__}"
