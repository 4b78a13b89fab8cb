"""A command at a terminal of its own, as a person has it in front of them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import PATIENCE, until

CTRL_C = b"\x03"
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the controlling terminal, then becomes the command."""


class Terminal:
    """What the command prints is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._shown = b""
        self._open = True

    @property
    def shown(self) -> str:
        """All that the terminal has shown so far."""
        while self._open:
            try:
                more = os.read(self._master, 65536)
            except BlockingIOError:
                break
            except OSError:  # The other end is closed: all has been read.
                break
            if not more:
                break
            self._shown += more
        return self._shown.decode("utf-8", "replace").replace("\r\n", "\n")

    def until_shown(self, text: str) -> str:
        until(lambda: text in self.shown, f"the terminal shows {text!r}")
        return self.shown

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def hang_up(self) -> None:
        """The window is closed: the kernel signals it, and nothing can be shown any more."""
        if self._open:
            self._open = False
            os.close(self._master)

    def kill(self) -> None:
        """kill -9 of the command."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def wait(self) -> int:
        """The exit status, once it has ended by itself; a terminal that nobody reads would hold it up."""
        until(lambda: (self.shown, self.process.poll())[1] is not None, "the command has ended")
        return int(self.process.returncode)


@contextmanager
def at_terminal(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Iterator[Terminal]:
    """Run `argv` at a new terminal; whatever happens, it is ended with the block."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    process = subprocess.Popen(
        (sys.executable, "-c", TAKE_TERMINAL, *argv),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
    )
    os.close(slave)
    terminal = Terminal(process, master)
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        terminal.hang_up()
