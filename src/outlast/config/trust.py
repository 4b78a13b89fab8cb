"""Which folders' `outlast.toml` the user has trusted.

A record names the folder by its real path and the file by its digest: a file that changed, by a `git
pull` for instance, is asked about again. One file a folder, so that two processes never rewrite each
other's answers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from outlast.config.files import ConfigFile


class TrustState(Enum):
    """What the user said about a folder's file."""

    UNKNOWN = "unknown"
    CHANGED = "changed"
    """It was trusted with another content."""
    TRUSTED = "trusted"
    REFUSED = "refused"
    """The user was asked and said no; not asked again until the file changes."""


class _Decision(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    digest: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class Trust:
    """The user's decisions, kept below the state directory."""

    state_dir: Path

    def look_up(self, file: ConfigFile) -> TrustState:
        try:
            decision = msgspec.json.decode(self._path(file).read_bytes(), type=_Decision)
        except (FileNotFoundError, NotADirectoryError, PermissionError, msgspec.DecodeError):
            return TrustState.UNKNOWN
        if decision.folder != str(file.folder):
            return TrustState.UNKNOWN
        if decision.digest != file.digest:
            return TrustState.CHANGED if decision.trusted else TrustState.UNKNOWN
        return TrustState.TRUSTED if decision.trusted else TrustState.REFUSED

    def decide(self, file: ConfigFile, *, trusted: bool) -> None:
        """Keep the user's answer, durably. Raises OSError."""
        decision = _Decision(folder=str(file.folder), digest=file.digest, trusted=trusted)
        path = self._path(file)
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            target.write(msgspec.json.encode(decision))
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)

    def forget(self, folder: Path) -> bool:
        """Drop what was decided about a folder; False if nothing was."""
        path = self._path_of(folder)
        if not path.exists():
            return False
        path.unlink()
        return True

    def _path(self, file: ConfigFile) -> Path:
        return self._path_of(file.folder)

    def _path_of(self, folder: Path) -> Path:
        import hashlib

        name = hashlib.sha256(os.fsencode(folder)).hexdigest()
        return self.state_dir / "trust" / f"{name}.json"
