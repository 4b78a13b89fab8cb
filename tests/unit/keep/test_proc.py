"""Finding processes: what a marker finds although it is hard to see."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outlast.keep import proc

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MARKER = "0123456789abcdef"
WAIT = "import sys; print(flush=True); sys.stdin.read()"
ONLY_A_THREAD = """
import ctypes, os, sys, threading
def live():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    print(flush=True)
    sys.stdin.read()
threading.Thread(target=live).start()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""


@contextmanager
def process(source: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-I", "-S", "-c", source]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("source", [WAIT, ONLY_A_THREAD], ids=["plain", "its main thread has ended"])
def test_a_process_is_found_by_its_marker(source: str) -> None:
    with process(source, {"OUTLAST_AGENT": MARKER}) as started:
        assert proc.marked(MARKER, 0)[0] == [started.pid]
        assert proc.marked(MARKER + "0", 0)[0] == []
    assert proc.marked(MARKER, 0)[0] == []


def test_a_process_without_any_environment_is_no_suspect() -> None:
    with process(WAIT, {}) as started:
        assert proc.carries(started.pid, MARKER) is False


def test_descent_is_followed_to_its_root_and_a_vanished_process_has_none() -> None:
    others = proc.children(os.getpid())
    with process(WAIT, {}) as started:
        assert proc.descends(started.pid, (os.getpid(),)) is True
        assert proc.descends(started.pid, (started.pid,)) is True
        assert proc.descends(os.getpid(), (started.pid,)) is False
        assert sorted(proc.children(os.getpid())) == sorted([*others, started.pid])
    assert proc.descends(started.pid, (os.getpid(),)) is None
