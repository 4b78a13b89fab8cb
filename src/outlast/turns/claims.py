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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from outlast.errors import UsageError
from outlast.faults import point
from outlast.keep import AgentFolder, Verified, tree_dead
from outlast.keep.proc import boot_id, is_alive
from outlast.records.types import Process
from outlast.store.url import home

_LIMIT = 64 * 1024
_PATIENCE = 10.0
"""Seconds for another process to let go of a claim: it holds it for as long as it takes to write a line."""
_NAP = 0.02


class ClaimBusyError(UsageError):
    """Somebody holds the lock of a claim's file and does not let go."""


class SessionClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Whose agent drove the provider's session last. `folder` and `generation` name its life, `processes`
    and `boot_id` the shim and guard that it had."""

    store: str
    """The store's folder, for people."""
    session: str
    folder: str
    generation: str
    processes: list[Process] = []
    boot_id: str = ""

    @property
    def alive(self) -> bool:
        """Whether that life may still drive it. Raises OSError."""
        if self.boot_id == boot_id() and any(is_alive(p.pid, p.start_ticks) for p in self.processes):
            return True
        number = self.generation.rpartition("-")[2]
        if not number.isdecimal():
            return False
        return not isinstance(tree_dead(AgentFolder(Path(self.folder)).generation(int(number))), Verified)


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
    """Make the claim ours; the one that keeps it from being so, if there is one: of another agent folder, in
    which something may live. Raises OSError, and ClaimBusyError."""
    with _locked(folder, name) as file:
        found = _read(file)
        if found is not None and found.folder != mine.folder and found.alive:
            return found
        if found != mine:
            _write(file, mine)
        return None


def look(folder: Path, name: str) -> SessionClaim | None:
    """The claim as it is; None where nobody ever made one, or it was given up. Raises OSError, and
    ClaimBusyError."""
    if not (folder / name).exists():
        return None
    with _locked(folder, name) as file:
        return _read(file)


def give_up(folder: Path, name: str, agent_folder: str) -> None:
    """Take back a claim of this agent folder: its session goes on in another provider session. Raises
    OSError, and ClaimBusyError."""
    if not (folder / name).exists():
        return
    with _locked(folder, name) as file:
        found = _read(file)
        if found is not None and found.folder == agent_folder:
            point("provider.claim.before_give_up")
            os.ftruncate(file, 0)
            point("provider.claim.after_give_up")


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[int]:
    """The claim's file, which nobody else reads or changes meanwhile."""
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(file, folder / name)
        yield file
    finally:
        os.close(file)


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
    """What cannot be read was cut off when it was written: before its agent was started."""
    try:
        return msgspec.json.decode(os.pread(file, _LIMIT, 0), type=SessionClaim)
    except msgspec.MsgspecError:
        return None


def _write(file: int, claim: SessionClaim) -> None:
    data = msgspec.json.encode(claim)
    point("provider.claim.before_write")
    os.ftruncate(file, 0)
    os.pwrite(file, data, 0)
    os.fsync(file)
    point("provider.claim.after_write")
