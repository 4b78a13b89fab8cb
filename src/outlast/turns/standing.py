"""How the provider's session of a loop stands: by what its program keeps of it and by what was captured.

Looked at before an agent is started, which acts on it, and by a plan, which shows it: both by `standing`. It
reads files, and changes nothing.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outlast.agents.failure import KEPT_ELSEWHERE
from outlast.agents.provider_state import (
    GoesByAnIndex,
    KeepsState,
    StateFile,
    StatePlace,
    TakesBack,
    difference,
)
from outlast.agents.transcript import open_regular
from outlast.records.agent_state import AgentStateCaptured
from outlast.state.model import Loop
from outlast.turns.lost import UNREADABLE

_NOT_THE_MACHINES = frozenset(
    {errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOENT, errno.ENOTDIR}
)


LOOKS = 3
"""Times that a file which is gone once it is read is looked for again."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the next start of the agent does with the session, and `why`, as a part of a sentence.

    `given_up`: it begins a new one, as was decided. `absent`: nothing is there, here or captured: the program
    itself says what it makes of that. `put_back`: what was captured replaces what is there. `whole`: it
    resumes it. `as_is`: it resumes it with what is wrong with it, as a person chose. `lost`: only a person,
    or the agent's `on_lost`, can say.
    """

    verdict: Literal["given_up", "absent", "put_back", "whole", "as_is", "lost"]
    why: str = ""
    file: StateFile | None = None

    @property
    def code(self) -> str:
        """What a turn fails of where it is lost."""
        return "session_missing" if KEPT_ELSEWHERE in self.why else "session_corrupt"


def standing(keeper: KeepsState, place: StatePlace, loop: Loop) -> Standing:
    """See `Standing`. Raises AgentError, OSError for what is the machine's fault and may be over in a
    moment."""
    found = _seen(keeper, place, loop)
    for _ in range(LOOKS):
        if found.verdict != "lost" or found.file is None or os.path.lexists(found.file.path):
            break
        # It was moved since it was found, as codex does to archive a thread, or removed.
        found = _seen(keeper, place, loop)
    return found


def _seen(keeper: KeepsState, place: StatePlace, loop: Loop) -> Standing:
    captured, decided = captured_of(loop), loop.decided
    if decided in ("fresh", "reseed"):
        return Standing("given_up")
    file = keeper.find_state(place)
    # Where a person wants it as it is, the program's own answer alone decides.
    if decided != "as_is" and isinstance(keeper, GoesByAnIndex) and (why := keeper.kept_elsewhere(place)):
        return Standing("lost", why, file)
    if file is None:
        return Standing("absent") if captured is None else Standing("put_back", "its file was gone")
    if decided == "put_back":
        return Standing("put_back", "a person chose it", file)
    try:
        unread = _unreadable(file.path)
        damage = unread or _damage(keeper, place, file, loop.followed)
    except FileNotFoundError as gone:
        if os.path.lexists(file.path):
            raise
        unread = damage = f"{UNREADABLE}: {gone.strerror}"
    if not damage:
        return Standing("whole", file=file)
    if decided == "as_is" and not unread:
        return Standing("as_is", damage, file)
    return Standing("lost", f"{file.path}: {damage}", file)


def captured_of(loop: Loop) -> AgentStateCaptured | None:
    """What was captured of the session that the loop has now, to be put back."""
    captured = loop.captured
    return captured if captured and captured.provider_session == loop.provider_session else None


def changed(path: Path, captured: AgentStateCaptured) -> str:
    """See `difference`."""
    return difference(path, [(piece.digest, piece.size) for piece in captured.pieces])


def _damage(
    keeper: KeepsState, place: StatePlace, file: StateFile, captured: AgentStateCaptured | None
) -> str:
    differs = ""
    if captured is not None:
        differs = changed(file.path, captured)
        if isinstance(keeper, TakesBack):
            differs = keeper.taken_back(file.path, 0 if differs else captured.size) or differs
    damage = keeper.state_damage(file.path, place.provider_session)
    if differs:
        return f"{damage}; {differs}" if damage else differs
    return "" if captured is not None and damage == captured.damage else damage


def _unreadable(path: Path) -> str:
    """Why nothing of the file can be read, where that is the file's own fault. Raises OSError for what the
    machine lacks."""
    try:
        open_regular(path).close()
    except OSError as error:
        if error.errno not in _NOT_THE_MACHINES:
            raise
        return f"{UNREADABLE}: {error.strerror}"
    return ""
