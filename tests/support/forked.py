"""Processes that are forked off a server which has imported what they need: where hundreds of short ones are
started, most of their time would go by importing the same modules again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_ONE_AT_A_TIME = threading.Lock()
"""multiprocessing looks at all of its children whenever it starts one; two threads would take an exit status
from each other."""


def preload(modules: Sequence[str]) -> None:
    """What the server imports; to be told before the first process is started."""
    _CONTEXT.set_forkserver_preload(list(modules))


class Forked:
    """A process of its own session, as `subprocess.Popen` shows it."""

    def __init__(
        self,
        main: Callable[..., int],
        *args: object,
        env: Mapping[str, str],
        cwd: Path,
        stderr: Path,
    ) -> None:
        """Call `main`, whose result is the exit status, with both outputs appended to the file `stderr`."""
        begin = (main, args, dict(env), str(cwd), str(stderr))
        self._process = _CONTEXT.Process(target=_begin, args=begin)
        with _ONE_AT_A_TIME:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Its exit status, -N for signal N; None while it lives."""
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if not wait([self._process.sentinel], timeout):
            raise subprocess.TimeoutExpired(["forked"], timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _begin(
    main: Callable[..., int], args: Sequence[object], env: Mapping[str, str], cwd: str, stderr: str
) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    output = os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, number)
    warnings.simplefilter("error")
    raise SystemExit(main(*args))
