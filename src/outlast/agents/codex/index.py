"""Codex's own index of its threads: a hint at where it keeps one, read and never written.

The index names each thread's rollout by its absolute path, links resolved, and codex goes by that, whatever
lies in its home (measured with 0.163): a home that was moved or copied names files of the old one. What a
codex that runs says is what counts; this is known before one does.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

_NAME = re.compile(r"state_(\d+)\.sqlite")
_BUSY = 0.5
"""Seconds to wait for a codex that writes it."""


def indexed_rollout(home: Path, thread: str) -> Path | None:
    """Where the index says that the thread is; None where it says nothing, or cannot be read: a later codex
    may keep another one, or none."""
    try:
        found = [(int(name[1]), path) for path in home.iterdir() if (name := _NAME.fullmatch(path.name))]
        if not found:
            return None
        path = max(found)[1]
        log, shared = (path.with_name(f"{path.name}-{part}").exists() for part in ("wal", "shm"))
        if log and not shared:
            return None  # A reader would make the missing file.
        # Without a log beside it all is in the file, and a reader need not make one there.
        mode = "mode=ro" if log else "immutable=1"
        with closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, timeout=_BUSY)) as index:
            row = index.execute("SELECT rollout_path FROM threads WHERE id = ?", (thread,)).fetchone()
    except (OSError, ValueError, sqlite3.Error):
        return None
    said = row[0] if row else None
    return Path(said) if isinstance(said, str) and Path(said).is_absolute() else None
