"""What of this machine a runtime uses: its name, its folders, and the secret behind prompts' nonces."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from outlast.errors import UsageError
from outlast.faults import point
from outlast.files import read_regular
from outlast.store.url import storable


def machine_id() -> str:
    """A name for this machine that stays over reboots: machine-id(5), else the host name."""
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        try:
            text = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return text
    return platform.node() or "unknown"


_SECRET_LIMIT = 4096


def secret(folder: Path) -> bytes:
    """32 random bytes of this store on this machine, made with its first use. Raises OSError."""
    path = folder / "secret"
    try:
        return read_regular(path, _SECRET_LIMIT)
    except FileNotFoundError:
        fresh = os.urandom(32)
    # First uses at once, also of several threads: each has a draft of its own, the link tells which counts.
    draft = folder / f".secret-{os.urandom(8).hex()}"
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(fresh)
    try:
        point("home.secret.before_link")
        os.link(draft, path)
        point("home.secret.after_link")
    except FileExistsError:
        fresh = read_regular(path, _SECRET_LIMIT)
    finally:
        draft.unlink()
    return fresh


_OTHER = "work in a folder whose path is"


def absolute(workspace: str | Path | None) -> str | None:
    """A workspace as it is kept: `~` is the home, a relative path is meant from the current folder. Raises
    UsageError, InputError for a path that cannot be stored."""
    if workspace is None:
        return None
    path = Path(workspace).expanduser()
    return str(storable(path if path.is_absolute() else Path(here(), path), "the workspace", _OTHER))


def require_folder(workspace: str) -> None:
    """Raises UsageError where no agent could work: it would fail there, later and less clearly."""
    if not os.path.isdir(workspace):  # noqa: PTH112 - a string is what is stored
        raise UsageError(f"there is no folder {workspace}", hint="make it, or name another workspace")


def here() -> str:
    """The current folder. Raises UsageError where it was deleted, InputError as `absolute`."""
    try:
        return str(storable(Path.cwd(), "the current folder", _OTHER))
    except FileNotFoundError:
        raise UsageError(
            "the current folder is not there any more", hint="go to another one, or name the workspace"
        ) from None
