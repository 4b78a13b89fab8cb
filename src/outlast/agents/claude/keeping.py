"""Claude Code's transcript as the state of a session: where it is, where it belongs, what is wrong with it,
what it tells of a session that began elsewhere.

Each entry of the conversation names the one before it, and the program appends whole lines only (measured
over turns, kills, interrupts and compaction). It goes on after a torn end on a new line, and reads past a
line that it can't read without a word: what hung on that is gone. It is here that such damage is noticed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from outlast.agents.claude.transcript import claude_home, find_transcript, folder_name, is_folder_of
from outlast.agents.claude.wire import EMPTY, Block
from outlast.agents.provider_state import Said, StateFile, StatePlace, StateSummary, lives_since
from outlast.agents.shapes import decode
from outlast.agents.transcript import open_regular
from outlast.agents.turnwise import FirstAndLast, places
from outlast.errors import AgentError

_TEXT_LIMIT = 2_000


class _Message(msgspec.Struct, frozen=True):
    content: msgspec.Raw = EMPTY


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    uuid: str = ""
    parent_uuid: str | None = None
    session_id: str = ""
    is_meta: bool = False
    is_sidechain: bool = False
    cwd: str = ""
    message: _Message = _Message()


def find_state(place: StatePlace) -> StateFile | None:
    """See `KeepsState.find_state`."""
    path = find_transcript(claude_home(place.environ), place.workspace, place.provider_session)
    return None if path is None else StateFile(path, path.name)


class _Present(msgspec.Struct, frozen=True, rename="camel"):
    """What a running Claude Code says of itself in `sessions/PID.json` (measured with 2.1.332)."""

    pid: int = 0
    session_id: str = ""
    proc_start: str = ""
    """Clock ticks since the boot."""


def named_writers(place: StatePlace) -> list[int]:
    """See `NamesItsWriters.named_writers`. A file that a killed process left behind names nobody, and one
    that is gone before it is read was of a process that has ended. Raises OSError."""
    found: list[int] = []
    for file in (claude_home(place.environ) / "sessions").glob("*.json"):
        said = _present(file)
        if said is None or said.session_id != place.provider_session or not said.proc_start.isdecimal():
            continue
        if lives_since(said.pid, int(said.proc_start)):
            found.append(said.pid)
    return found


def _present(file: Path) -> _Present | None:
    if not file.is_file():
        return None
    try:
        return decode(file.read_bytes(), _Present)
    except FileNotFoundError:
        return None


def state_path(place: StatePlace, name: str) -> Path:
    """See `KeepsState.state_path`: Claude Code files sessions by the folder that they run in. Raises
    AgentError for a name that leads out of that, and for a folder whose name it alone can make."""
    if name != f"{place.provider_session}.jsonl":
        raise AgentError(f"{name!r} is not the transcript of session {place.provider_session}")
    projects = claude_home(place.environ) / "projects"
    folder = next((one.name for one in projects.glob("*") if is_folder_of(one.name, place.workspace)), None)
    folder = folder or folder_name(place.workspace)
    if folder is None:
        raise AgentError(
            f"where Claude Code keeps the sessions of {place.workspace} is known to itself alone",
            hint="run it there once, or use a folder with a shorter path",
        )
    return projects / folder / name


def state_damage(path: Path, session: str) -> str:
    """See `KeepsState.state_damage`."""
    seen: set[str] = set()
    lost: list[str] = []
    known = whose = False
    with open_regular(path) as lines:
        for number, data in enumerate(lines, 1):
            line = decode(data, _Line)
            if line is None:
                continue
            known = True
            whose = whose or not line.session_id or line.session_id == session
            if line.parent_uuid and line.parent_uuid not in seen:
                lost.append(f"line {number} goes on from an entry that is not there")
            if line.uuid:
                seen.add(line.uuid)
    if not known:
        return "no line of it can be read"
    if not whose:
        return "it is the transcript of another session"
    return places(lost)


def summary(path: Path) -> StateSummary:
    """See `KeepsState.summary`. Lines that can't be read are passed over. A turn is a prompt with an
    answer."""
    workspace, turns, asked = "", 0, False
    shown = FirstAndLast[Said]()
    with open_regular(path) as lines:
        for data in lines:
            line = decode(data, _Line)
            if line is None or line.is_sidechain:
                continue
            workspace = line.cwd or workspace
            said = _said(line)
            if said is None:
                continue
            turns += asked and said.role == "assistant"
            asked = said.role == "user"
            shown.add(said)
    return StateSummary(workspace, turns, shown.kept)


def _said(line: _Line) -> Said | None:
    if line.type not in ("user", "assistant") or line.is_meta:
        return None
    text = decode(line.message.content, str)
    if text is None:
        blocks = decode(line.message.content, tuple[Block, ...]) or ()
        text = "\n".join(block.text for block in blocks if block.type == "text" and block.text)
    if not text.strip():
        return None
    return Said("user" if line.type == "user" else "assistant", text[:_TEXT_LIMIT])
