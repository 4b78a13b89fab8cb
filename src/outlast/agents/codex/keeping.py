"""Codex's rollout as the state of a thread: where it is, where it belongs, what is wrong with it, what it
tells of a thread that began elsewhere."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import msgspec

from outlast.agents.codex.rollout import codex_home, find_rollout, read_rollout
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
