"""Who drives a provider's session on this machine: one agent life at a time, whatever the store.

A provider's session is one file in the program's home, and not every program locks it. So each start of an
agent leaves a claim in that home, where all stores look, by whatever environment they were found: who, and by
which processes it is known whether that still lives.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from outlast.errors import UsageError
from outlast.faults import point
from outlast.files import flush_folder
from outlast.keep import AgentFolder, Verified, tree_dead
from outlast.keep.proc import boot_id, is_alive, start_ticks
from outlast.records.types import Process
from outlast.store.url import home

_LIMIT = 64 * 1024
_PATIENCE = 10.0
"""Seconds for another process to let go of a claim: it holds it for as long as it takes to write a line."""
_NAP = 0.02
_DRAFT = ".draft"
"""What the name of a claim ends with that is being written. One that a crash has left is overwritten."""


class ClaimBusyError(UsageError):
    """Somebody holds the lock of a claim's file and does not let go."""


class Holder(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int


class SessionClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Whose the provider's session is. `folder` and `generation` name the agent's last life, `processes` and
    `boot_id` the shim and guard that it had. Without a folder it is kept for a session that is about to adopt
    it, for as long as the process that does it lives."""

    store: str
    """The store's folder, for people."""
    session: str
    folder: str
    generation: str
    processes: list[Process] = []
    boot_id: str = ""
    lives_with: Holder | None = None
    """The process with which the claim ends: its store does, or it is about to adopt. None where it lasts."""

    @property
    def alive(self) -> bool:
        """Whether that life may still drive it. Raises OSError."""
        if self.boot_id == boot_id() and any(is_alive(p.pid, p.start_ticks) for p in self.processes):
            return True
        number = self.generation.rpartition("-")[2]
        if not number.isdecimal():
            return False
        return not isinstance(tree_dead(AgentFolder(Path(self.folder)).generation(int(number))), Verified)

    @property
    def held(self) -> bool:
        """Whether its session may still go on with it: something lives, or its store is there. A store is
        gone where its folder is, or the process that it lived in. Raises OSError."""
        if self.alive:
            return True
        ends = self.lives_with
        if ends is not None and not (self.boot_id == boot_id() and is_alive(ends.pid, ends.start_ticks)):
            return False
        return _is_there(self.store)

    def keeps_out(self, other: SessionClaim) -> bool:
        """Whether `other` may not have it. The same session in another store, which is a copy or was brought
        from elsewhere, goes on where nothing of this one lives. Raises OSError."""
        if self.folder == other.folder and self.folder:
            return False
        if not (self.folder and other.folder):
            return not self.is_of(other) and self.held
        if Path(self.folder).name == Path(other.folder).name:
            return self.alive
        return self.held

    def is_of(self, other: SessionClaim) -> bool:
        """Whether it is the same session's, of the same store."""
        return (self.store, self.session) == (other.store, other.session)

    def told(self, path: Path) -> str:
        """Whose it is and what to do, as a part of a sentence. `path`: the claim's file."""
        whose = f"it is session {self.session}'s, in {self.store}"
        if not self.folder:
            return f"{whose}, which is about to adopt it"
        return (
            f"{whose}: go on there, close that one, or let it begin anew;"
            f" where that store is gone for good, remove {path}"
        )


def this_process() -> Holder:
    """For a claim that ends with it."""
    pid = os.getpid()
    return Holder(pid, start_ticks(pid) or 0)


def claims_folder(provider_home: Path, environ: Mapping[str, str]) -> Path:
    """Where all look who may drive a session in this home: in the home itself, and where nobody may write
    there in the user's own state. `OUTLAST_STATE_DIR` names one store's state, and not this. Raises
    UsageError where there is neither."""
    real = Path(os.path.realpath(provider_home))
    if not real.exists() or os.access(real, os.W_OK | os.X_OK):
        return real / ".outlast" / "claims"
    state = environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else home(environ) / ".local" / "state"
    return base / "outlast" / "claims"


def claim_name(kind: str, provider_home: Path, provider_session: str) -> str:
    """The claim's file name: the same for whoever means the same file."""
    parts = (kind, os.path.realpath(provider_home), provider_session)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def take(folder: Path, name: str, mine: SessionClaim) -> SessionClaim | None:
    """Make the claim ours; the one that keeps it from being so, if there is one. Raises OSError, and
    ClaimBusyError."""
    with _locked(folder, name) as file:
        found = _read(file)
        if found is not None and found.keeps_out(mine):
            return found
        held_for_longer = found is not None and found.folder and not mine.folder and found.is_of(mine)
        if found != mine and not held_for_longer:
            _write(folder, name, mine)
        return None


def look(folder: Path, name: str) -> SessionClaim | None:
    """The claim as it is; None where nobody ever made one, or it was given up. Raises OSError, and
    ClaimBusyError."""
    if not (folder / name).exists():
        return None
    with _locked(folder, name) as file:
        return _read(file)


def peek(folder: Path, name: str) -> SessionClaim | None:
    """The claim as it is, without its lock, for who only tells it: of one that is being written just then
    there is nothing to tell. Raises OSError."""
    try:
        file = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _read(file)
    finally:
        os.close(file)


def give_up(folder: Path, name: str, agent_folder: str) -> None:
    """Take back a claim of this agent folder: its session goes on in another provider session, or not at all.
    Raises OSError, and ClaimBusyError."""
    _clear(folder, name, lambda found: found.folder == agent_folder)


def give_up_all(folder: Path, mine: SessionClaim) -> bool:
    """Take back each claim here that says itself that it is this session's, of this store and agent folder,
    whatever it is about. Whether there was one. Raises OSError, and ClaimBusyError."""

    def is_mine(found: SessionClaim) -> bool:
        return found.is_of(mine) and found.folder == mine.folder

    ours = False
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        found = peek(folder, path.name)
        if found is not None and is_mine(found):
            ours = True
            _clear(folder, path.name, is_mine)
    return ours


def put_down(folder: Path, name: str, mine: SessionClaim) -> None:
    """Take back a claim that is still just this one. Raises OSError, and ClaimBusyError."""
    _clear(folder, name, lambda found: found == mine)


def _clear(folder: Path, name: str, is_mine: Callable[[SessionClaim], bool]) -> None:
    if not (folder / name).exists():
        return
    with _locked(folder, name) as file:
        found = _read(file)
        if found is not None and is_mine(found):
            point("provider.claim.before_give_up")
            os.ftruncate(file, 0)
            point("provider.claim.after_give_up")


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[int]:
    """The claim's file, which nobody else reads or changes meanwhile."""
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = _open_locked(folder / name)
    try:
        yield file
    finally:
        os.close(file)


def _open_locked(path: Path) -> int:
    """The file that stands there now: while its lock was waited for another may have taken its place."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(file, path)
            if _stands_at(file, path):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _stands_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _lock(file: int, path: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise ClaimBusyError(
                    f"{_holder(file)} holds the lock of {path} for more than {_PATIENCE:g} s",
                    hint="continue or end that process, then `outlast retry`",
                ) from None
            time.sleep(_NAP)
        else:
            return


def _is_there(folder: str) -> bool:
    """Whether it may be: what cannot be looked at is."""
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _holder(file: int) -> str:
    """Who has the file locked, as far as the system tells."""
    found, pids = os.fstat(file), []
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            words = line.split()
            if "->" not in words and words[1] == "FLOCK" and words[5] == wanted:
                pids.append(words[4])
    except (OSError, IndexError):
        return "another process"
    return f"process {', '.join(pids)}" if pids else "another process"


def _read(file: int) -> SessionClaim | None:
    """What cannot be read was given up, or cut off when an older outlast wrote it: before its agent was
    started."""
    try:
        return msgspec.json.decode(os.pread(file, _LIMIT, 0), type=SessionClaim)
    except msgspec.MsgspecError:
        return None


def _write(folder: Path, name: str, claim: SessionClaim) -> None:
    """Whole and durable or not at all: what a full disk or a crash cut off would be nobody's, and free for
    any. Called with the claim's lock."""
    draft = folder / f"{name}{_DRAFT}"
    point("provider.claim.before_write")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(msgspec.json.encode(claim))
            out.flush()
            os.fsync(out.fileno())
        point("provider.claim.before_rename")
        draft.rename(folder / name)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    flush_folder(folder)
    point("provider.claim.after_write")
