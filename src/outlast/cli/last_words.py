"""The end of what a failed agent wrote to its standard error: shown to a person at this machine, never put
into a record, where others would read it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.records.types import TurnAttemptStarted

LINES, WIDTH = 5, 300
"""How many of the last lines, and how many characters of each."""
_ORDERS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^_`-~])")
"""What a program says to a terminal and not to its reader: colours, titles, movements (ECMA-48)."""
TAIL = 8192
"""Bytes that are looked at."""


def last_words(attempt: TurnAttemptStarted) -> list[str]:
    """The last lines that say something, without what looks like a credential or is one of this process's
    own; none where the file is not there or not ours to read."""
    from outlast.agents.environment import secrets_in
    from outlast.agents.failure import tidy
    from outlast.cli.text import first_line
    from outlast.keep import AgentFolder
    from outlast.keep.layout import generation_number

    number = generation_number(os.fsencode(attempt.generation))
    if number is None:
        return []
    try:
        tail = AgentFolder(Path(attempt.folder)).generation(number).stderr_tail(TAIL)
    except OSError:
        return []
    # Without the orders to a terminal, before anything is looked for in it: an order parts a credential, too.
    lines = _ORDERS.sub("", tail.decode("utf-8", "replace")).splitlines()
    if len(tail) == TAIL:
        del lines[0]  # cut: half of a credential looks like none
    said, secrets = [line for line in lines if line.strip()], secrets_in(os.environ)
    return [first_line(tidy(line, secrets), WIDTH) for line in said[-LINES:]]
