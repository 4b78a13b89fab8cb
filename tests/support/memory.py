"""A memory cgroup of the test's own, where the system and the user that runs the tests have one to give."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TWO, ONE = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


@contextmanager
def memory_cgroup(name: str, limit: int) -> Iterator[Path]:
    """The folder of a new cgroup whose processes may have `limit` bytes. Skips where there can be none."""
    two = (TWO / "cgroup.controllers").exists()
    folder = (TWO if two else ONE) / f"outlast-test-{os.getpid()}-{name}"
    try:
        folder.mkdir()
        (folder / ("memory.max" if two else "memory.limit_in_bytes")).write_text(str(limit))
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"no memory cgroup can be had here: {error}")
    swap = folder / ("memory.swap.max" if two else "memory.memsw.limit_in_bytes")
    if swap.exists():
        swap.write_text("0" if two else str(limit))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Processes that have ended are gone from it a moment later."""
    for _ in range(500):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.01)
        else:
            return
    folder.rmdir()


def within(folder: Path) -> tuple[str, ...]:
    """The beginning of a command line that runs in the cgroup."""
    return ("/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(folder))
