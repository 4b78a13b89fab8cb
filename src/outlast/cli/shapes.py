"""The JSON that commands print beside what the library itself defines: typed, so that a field's name
changes in one place or not at all."""

from __future__ import annotations

import msgspec


class AcceptedLine(msgspec.Struct, frozen=True):
    """First line of a turn in `run --json`: the input is durable, the agent not launched yet."""

    session: str
    turn: str


class WayBackLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """Last line on stderr of `run --json`: how to come back to the session. `needs`: the effects without
    which that is refused, and which no command has."""

    session: str
    resume: str
    needs: tuple[str, ...] = ()


class ResultLine(msgspec.Struct, frozen=True):
    """What a command to a session came to."""

    session: str
    result: str
    detail: str = ""
    by: str | msgspec.UnsetType = msgspec.UNSET
    choice: str | msgspec.UnsetType = msgspec.UNSET
