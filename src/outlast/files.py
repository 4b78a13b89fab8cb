"""Files that somebody else may have put there, read; and folders, made durable."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. A pipe would be waited for, and a device may have no end. Raises
    OSError, also for what is no regular file."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_regular(path: Path, limit: int) -> bytes:
    """A regular file's bytes, of which there may be `limit` at most. Raises OSError."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit} bytes", str(path))
    return data


def flush_folder(folder: Path) -> None:
    """What was made, renamed or removed in the folder stays so after a power cut. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
