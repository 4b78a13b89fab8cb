"""What a program keeps of its session in a file of lines that it only appends to: found, taken, put back.

An adapter whose program does that says where (`KeepsState`); the rest is the same for all. Everything here
reads or writes files: not for an event loop, and never from a fold.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Literal, Protocol, runtime_checkable

from outlast.agents.transcript import open_regular
from outlast.faults import point
from outlast.files import flush_folder

CAP = 64 * 1024 * 1024
"""Bytes of a file past which no more of it is captured."""
PIECE = 8 * 1024 * 1024
"""Bytes of the largest piece: what is held in memory at a time."""


@dataclass(frozen=True, slots=True)
class StatePlace:
    """Whose session, and where it is to be resumed. `environ` is the runtime's environment."""

    provider_session: str
    workspace: str
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StateFile:
    """`name` is what `KeepsState.state_path` finds the file's place by, in whatever home and workspace."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Said:
    """Something in a transcript: evidence for people, and never a message of ours."""

    role: Literal["user", "assistant", "tool"]
    text: str


@dataclass(frozen=True, slots=True)
class StateSummary:
    """What a transcript tells of a session that began elsewhere. `turns` counts those that have ended."""

    workspace: str = ""
    turns: int = 0
    said: tuple[Said, ...] = ()
    """The first words and the last ones."""


@runtime_checkable
class KeepsState(Protocol):
    """An adapter whose program keeps each session in one file of lines, and only appends to it."""

    def state_home(self, environ: Mapping[str, str]) -> Path:
        """The folder in which the program keeps its sessions."""
        ...

    def find_state(self, place: StatePlace) -> StateFile | None:
        """The session's file, None where there is none. Raises OSError."""
        ...

    def state_path(self, place: StatePlace, name: str) -> Path:
        """Where a file of this name belongs, so that the program finds it when it resumes the session in
        `place`: below another workspace where the program files its sessions by that."""
        ...

    def state_damage(self, path: Path, provider_session: str) -> str:
        """What in the file is lost or not what it should be, as a part of a sentence that says where; empty
        where nothing is. An end that is torn is none where the program mends that. Raises OSError."""
        ...

    def summary(self, path: Path, provider_session: str) -> StateSummary:
        """What the file tells. Raises OSError."""
        ...


@runtime_checkable
class TakesBack(Protocol):
    """An adapter whose program can take turns back, and says so in a session's file."""

    def taken_back(self, path: Path, since: int) -> str:
        """What is said of that after byte `since` of the file, as a part of a sentence; empty where nothing
        is. Raises OSError."""
        ...


@runtime_checkable
class GoesByAnIndex(Protocol):
    """An adapter whose program may keep a session in another file than the one that is found in its home."""

    def kept_elsewhere(self, place: StatePlace, said: str | None = None) -> str:
        """Why the program's file of the session is another one than `find_state` finds, as a part of a
        sentence with KEPT_ELSEWHERE in it, which names both and what to do; empty where it is the same, or
        nothing tells. `said`: where the program itself has said that it is; None: what is known without it.
        Raises OSError."""
        ...


@runtime_checkable
class SaysWhereItKeeps(Protocol):
    """A fold whose program says in which file it keeps the session that it has opened."""

    @property
    def kept_at(self) -> str:
        """The path; empty where it has not said it."""
        ...


@runtime_checkable
class NamesItsWriters(Protocol):
    """An adapter whose program says beside its sessions which of its processes is in which."""

    def named_writers(self, place: StatePlace) -> list[int]:
        """Living processes of the program that are in the session, by its own word."""
        ...


def keeper_of(agent: object) -> KeepsState | None:
    """The agent, if its program keeps its sessions so."""
    return agent if isinstance(agent, KeepsState) else None


# --- reading -----------------------------------------------------------------------------------


class NotTakenError(OSError):
    """There is more in the file than is taken of it, or something else."""


def pieces_from(path: Path, since: int, last: tuple[str, int] | None = None) -> Iterator[bytes]:
    """What is in the file after its byte `since`, up to its last whole line: in pieces of whole lines where
    they are not longer than a piece. Nothing where there is no whole line. `last`: digest and size of what
    was captured last, and ends at that byte. Raises OSError, and NotTakenError where the cap is passed, or
    the file does not go on after that byte."""
    with open_regular(path) as file:
        if last is not None:
            _check_last(file, since, *last)
        end = _end_of_lines(file, since)
        if end > CAP:
            raise NotTakenError(f"{path} has {end} bytes, and no more than {CAP} are taken")
        file.seek(since)
        left = end - since
        while left > 0:
            data = file.read(min(left, PIECE))
            if not data:
                raise NotTakenError(f"{path} was cut while it was read")
            cut = len(data) if len(data) == left else data.rfind(b"\n") + 1 or len(data)
            file.seek(cut - len(data), os.SEEK_CUR)
            left -= cut
            yield data[:cut]


def _check_last(file: BinaryIO, since: int, digest: str, size: int) -> None:
    """A file that was cut may have grown again to where a line ends at the same byte."""
    file.seek(since - size)
    if hashlib.sha256(file.read(size)).hexdigest() != digest:
        raise NotTakenError(f"{file.name} is not what it was before byte {since}")


def _end_of_lines(file: BinaryIO, since: int) -> int:
    """The offset after the file's last newline, or `since`."""
    if since:
        file.seek(since - 1)
        if file.read(1) != b"\n":
            raise NotTakenError(f"{file.name} is not what it was: no line ends at byte {since}")
    end = file.seek(0, os.SEEK_END)
    while end > since:
        start = max(since, end - 65_536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return since


def difference(path: Path, pieces: Sequence[tuple[str, int]]) -> str:
    """In what the file is not what was captured of it, as (digest, size) of each piece: a part of a sentence;
    empty where the file begins with all of that. Raises OSError."""
    whole = sum(size for _, size in pieces)
    line = 1
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        for digest, length in pieces:
            data = file.read(length)
            if hashlib.sha256(data).hexdigest() != digest:
                if len(data) < length:
                    return f"it ends at byte {size}, and {whole} were captured"
                return f"it is not what was captured, in or after line {line}"
            line += data.count(b"\n")
    return ""


def outside_writers(keeper: KeepsState, path: Path, place: StatePlace) -> list[int]:
    """Processes that are in the session and make no claims, as far as anything shows them. `path` is the
    session's file. Raises OSError."""
    named = keeper.named_writers(place) if isinstance(keeper, NamesItsWriters) else []
    seen = writers_of(path, place.provider_session)
    mine = _ancestors()
    return sorted({*seen, *(pid for pid in named if pid not in mine)})


def lives_since(pid: int, start_ticks: int) -> bool:
    """Whether the process that began at this time, in clock ticks since the boot, is still there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    return fields[0] not in ("Z", "X") and fields[19] == str(start_ticks)


def writers_of(path: Path, provider_session: str) -> list[int]:
    """Processes of this user that have the file open for writing, or were started with the session's id as an
    argument: not this one, and not those that it was started by. Empty where the system cannot tell."""
    real, mine, found = os.path.realpath(path), _ancestors(), []
    for entry in _processes():
        if int(entry.name) not in mine and (_writes(entry, real) or _named(entry, provider_session)):
            found.append(int(entry.name))
    return found


def _processes() -> list[Path]:
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def _ancestors() -> set[int]:
    pid, found = os.getpid(), set[int]()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def _writes(process: Path, real: str) -> bool:
    try:
        for handle in (process / "fd").iterdir():
            if str(handle.readlink()) == real:
                flags = (process / "fdinfo" / handle.name).read_text("ascii").split("flags:", 1)[1].split()[0]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    except (OSError, IndexError, ValueError):
        return False  # It has ended, or is not this user's.
    return False


def _named(process: Path, session: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = session.encode("utf-8", "surrogateescape")
    if not any(word == wanted or word.endswith(b"=" + wanted) for word in words):
        return False
    return not _adopts(words)


def _adopts(words: Sequence[bytes]) -> bool:
    """Whether it is an `outlast adopt`, by whatever it was started: it writes nothing, and claims."""
    ours = next((n for n, word in enumerate(words) if word.rpartition(b"/")[2] == b"outlast"), None)
    return ours is not None and b"adopt" in words[ours + 1 :]


# --- writing -----------------------------------------------------------------------------------


def keep_aside(path: Path, folder: Path) -> Path:
    """Copy the file into `folder`, under a name that none there has, whole and durably. What cannot be
    read, or is no file, is moved there, or beside where it is on another filesystem. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        open_regular(path).close()
    except OSError:
        return _move_aside(path, folder)
    number = 1
    while True:
        kept = folder / (path.name if number == 1 else f"{path.name}.{number}")
        try:
            out = os.open(kept, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        point("state.keep_aside.before_copy")
        try:
            with os.fdopen(out, "wb") as copy, path.open("rb") as original:
                shutil.copyfileobj(original, copy)
                copy.flush()
                os.fsync(copy.fileno())
        except OSError:
            # Half a copy keeps nothing, and the next try would put another one beside it.
            with suppress(OSError):
                kept.unlink()
            raise
        flush_folder(folder)
        point("state.keep_aside.after_copy")
        return kept


def _move_aside(path: Path, folder: Path) -> Path:
    """Names nothing that is there, and tells no lines: a program finds no session under it."""
    name = f"{path.name}.{os.urandom(4).hex()}.kept"
    point("state.keep_aside.before_move")
    try:
        return path.rename(folder / name)
    except OSError:
        point("state.keep_aside.before_move_beside")
        return path.rename(path.with_name(name))


def put_back(path: Path, pieces: Iterable[bytes]) -> None:
    """Make `path` a file of these pieces, whole and durable or not at all; what was there is replaced.
    Raises OSError, and what `pieces` raises."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep_drafts(path.parent)
    draft, file = _new_draft(path)
    try:
        with os.fdopen(file, "wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
            point("state.put_back.before_rename")
            draft.rename(path)
            point("state.put_back.after_rename")
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    flush_folder(path.parent)


_DRAFT = re.compile(r"\..+\.[0-9a-f]{16}\.outlast-draft")
"""The name of a file that is to be put back, while it is written in the program's own folder."""


def sweep_drafts(folder: Path) -> None:
    """Remove what a `put_back` that was killed has left there. Whoever writes one has it locked."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _DRAFT.fullmatch(path.name):
                _sweep(path)


def _sweep(draft: Path) -> None:
    with suppress(OSError):
        file = os.open(draft, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if S_ISREG(os.fstat(file).st_mode):
                draft.unlink()
        finally:
            os.close(file)


def _new_draft(path: Path) -> tuple[Path, int]:
    """Locked for as long as it is open, and there."""
    while True:
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}.outlast-draft")
        file = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return draft, file
        except BaseException:
            os.close(file)
            draft.unlink(missing_ok=True)
            raise
        os.close(file)  # Somebody swept it between the two.
