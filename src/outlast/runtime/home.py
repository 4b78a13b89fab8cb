"""What of this machine a runtime uses: who the machine is, and the secret behind prompts' nonces."""

from __future__ import annotations

import os
import platform
from pathlib import Path


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


def secret(folder: Path) -> bytes:
    """32 random bytes of this store on this machine, made with its first use. Raises OSError."""
    path = folder / "secret"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        fresh = os.urandom(32)
    # Two first uses at once: the link tells which one counts.
    draft = folder / f".secret-{os.getpid()}"
    draft.write_bytes(fresh)
    draft.chmod(0o600)
    try:
        os.link(draft, path)
    except FileExistsError:
        fresh = path.read_bytes()
    finally:
        draft.unlink()
    return fresh
