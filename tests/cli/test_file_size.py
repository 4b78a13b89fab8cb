"""A limit on the size of files (`ulimit -f`) is told as what it is, and not waited for as for a full disk."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from tests.cli.support import Shell

from outlast.cli.app import FILE_SIZE
from outlast.errors import StoreLimitError, in_words
from outlast.journal import Journal
from outlast.store.sqlite.layout import unwritable
from outlast.store.url import sqlite_url
from outlast.turns import patience


def limited(size: int) -> dict[str, Any]:
    """Options of a process that may write no larger file."""
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}


def test_a_process_that_may_write_small_files_only_is_told_so_at_once(shell: Shell) -> None:
    refused = shell.start("run", "-a", "scripted", "hello", **limited(1 << 20))
    _, told = refused.communicate(timeout=30)
    assert refused.returncode == 2
    assert "this process may write no file larger than 1,048,576 bytes, outlast needs 67,108,864" in told
    assert "ulimit -f unlimited" in told
    assert not shell.state.exists()
    enough = shell.start("ls", **limited(FILE_SIZE))
    assert enough.wait(30) == 0


FILLS = """
import asyncio, sys
from outlast.errors import StoreError
from outlast.store.contract import Admission, CatalogEntry
from outlast.store.url import open_store

async def main():
    store = await open_store(sys.argv[1])
    entry = CatalogEntry("s", 0, "", "new", "a", "/", 0, 0, 0, 0, 0)
    for number in range(100):
        try:
            await store.admit(Admission("s", f"r{number}", "input", bytes(10_000), None, entry, b"{}"))
        except StoreError as error:
            print(error.code, "|", error)
            break
    print(len(await store.pending("s")) == number)

asyncio.run(main())
"""


def test_a_store_that_may_not_grow_names_the_limit(tmp_path: Path) -> None:
    """What was acknowledged is there."""
    done = subprocess.run(
        [sys.executable, "-c", FILLS, sqlite_url(tmp_path / "x.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"OUTLAST_STATE_DIR": str(tmp_path)},
        **limited(300_000),
    )
    told, whole = done.stdout.splitlines()
    assert told.startswith("store_limit | ")
    assert "may write no file larger than 300,000 bytes" in told
    assert "ulimit -f" in told
    assert "space" not in told
    assert whole == "True"


def test_the_limit_of_the_filesystem_is_told_as_such(tmp_path: Path) -> None:
    error = unwritable(tmp_path, OSError(errno.EFBIG, os.strerror(errno.EFBIG)))
    assert type(error) is StoreLimitError
    assert (error.hint, error.code) == ("its filesystem holds no file that large", "store_limit")
    assert in_words(OSError(errno.EFBIG, "File too large", "x")) == ("x: File too large", None)
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN, "else the process ends without a word"


async def test_nobody_waits_for_a_limit_to_go_away() -> None:
    class Limited:
        name = "s"

        async def decide(self, propose: object) -> None:
            raise StoreLimitError("no file so large")

    with pytest.raises(StoreLimitError):
        await patience.append(cast(Journal, Limited()), [], at="turn.terminal")
