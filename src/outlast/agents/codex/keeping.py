"""Codex's rollout as the state of a thread: where it is, where it belongs, what is wrong with it, what it
tells of a thread that began elsewhere."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import msgspec

from outlast.agents.codex.index import indexed_rollout
from outlast.agents.codex.rollout import FOLDERS, codex_home, find_rollout, home_of, read_rollout
from outlast.agents.failure import KEPT_ELSEWHERE
from outlast.agents.provider_state import Said, StateFile, StatePlace, StateSummary
from outlast.agents.shapes import decode
from outlast.agents.transcript import open_regular
from outlast.agents.turnwise import FirstAndLast
from outlast.errors import AgentError

_TEXT_LIMIT = 2_000
_ENDS = ("task_complete", "turn_aborted")


class _Content(msgspec.Struct, frozen=True):
    text: str = ""


class _Item(msgspec.Struct, frozen=True):
    type: str = ""
    content: tuple[_Content, ...] = ()


class _Payload(msgspec.Struct, frozen=True):
    type: str = ""
    cwd: str = ""
    item: _Item = _Item()


class _Line(msgspec.Struct, frozen=True):
    type: str
    payload: _Payload = _Payload()


def find_state(place: StatePlace) -> StateFile | None:
    """See `KeepsState.find_state`."""
    home = codex_home(place.environ)
    path = find_rollout(home, place.provider_session)
    return None if path is None else StateFile(path, path.relative_to(home).as_posix())


def kept_elsewhere(place: StatePlace, said: str | None = None) -> str:
    """See `GoesByAnIndex.kept_elsewhere`."""
    home, thread = codex_home(place.environ), place.provider_session
    here = find_rollout(home, thread)
    there = indexed_rollout(home, thread) if said is None else Path(said)
    if there is None or _is_same(home, here, there):
        return ""
    gone = "" if there.exists() else ", which is not there"
    missed = f"and not in {here}, where outlast looks" if here else f"and nowhere in {home}"
    return f"codex {KEPT_ELSEWHERE}: in {there}{gone}, {missed}; {_what_helps(home, here, there)}"


def is_indexed_elsewhere(home: Path, thread: str) -> bool:
    """Whether codex's index names another file for the thread than its home has. Raises OSError."""
    there = indexed_rollout(home, thread)
    return there is not None and not _is_same(home, find_rollout(home, thread), there)


def _is_same(home: Path, here: Path | None, there: Path) -> bool:
    if here is None:  # Before its first turn a thread has none yet.
        real = Path(os.path.realpath(there))
        return any(real.is_relative_to(os.path.realpath(home / folder)) for folder in FOLDERS)
    try:
        return here.samefile(there)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _what_helps(home: Path, here: Path | None, there: Path) -> str:
    """Codex takes the file at the path that it knows, also through a link, and knows the real one from then
    on (measured with 0.163)."""
    other = home_of(there)
    if os.path.realpath(other) == os.path.realpath(home) or not _is_filed_as(here, home, there, other):
        if there.exists():
            return f"put a link to that file in the place of {here or home}"
        return f"put it back there, or a link to {here or 'it'}"
    if there.exists():
        return f"set CODEX_HOME to {other} again, or put a link to {home} in the place of that folder"
    return f"put {home} back to {other}, or a link to it there"


def _is_filed_as(here: Path | None, home: Path, there: Path, other: Path) -> bool:
    return here is None or here.relative_to(home) == there.relative_to(other)


def state_path(place: StatePlace, name: str) -> Path:
    """See `KeepsState.state_path`: codex files threads by the day on which they began, wherever they run.
    Raises AgentError for a name that leads out of codex's home."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        raise AgentError(f"{name!r} is no place in codex's home")
    return codex_home(place.environ).joinpath(*parts)


def state_damage(path: Path, thread: str) -> str:
    """See `KeepsState.state_damage`."""
    return read_rollout(path, thread).damage


def summary(path: Path) -> StateSummary:
    """See `KeepsState.summary`. Lines that can't be read are passed over."""
    workspace, turns = "", 0
    shown = FirstAndLast[Said]()
    with open_regular(path) as lines:
        for data in lines:
            line = decode(data, _Line)
            if line is None:
                continue
            workspace = line.payload.cwd or workspace
            turns += line.type == "event_msg" and line.payload.type in _ENDS
            said = _said(line)
            if said is not None:
                shown.add(said)
    return StateSummary(workspace, turns, shown.kept)


def _said(line: _Line) -> Said | None:
    """Items that are completed: what codex itself shows of a thread."""
    item = line.payload.item
    if line.type != "event_msg" or line.payload.type != "item_completed":
        return None
    role = {"UserMessage": "user", "AgentMessage": "assistant"}.get(item.type)
    text = "\n".join(part.text for part in item.content if part.text)[:_TEXT_LIMIT]
    if role is None or not text:
        return None
    return Said("user" if role == "user" else "assistant", text)
