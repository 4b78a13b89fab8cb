"""Lines that a person types, read without blocking the event loop."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys

READ_SIZE = 65536


def can_ask() -> bool:
    """Whether a person can be asked: standard input and standard error are terminals, and this process is
    in the terminal's foreground (reading in the background would stop it)."""
    try:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


class LineReader:
    """Standard input by lines, from a terminal, a pipe or a file.

    Bytes that are not UTF-8 are replaced: what matters byte for byte is read by `-` instead.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._fd = sys.stdin.fileno() if descriptor is None else descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._polled = False
        self._ended = False

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self._fd, self._read)
            self._polled = True
        except (PermissionError, ValueError, OSError):
            # A regular file or /dev/null cannot be polled; reading it does not wait either.
            while not self._ended:
                self._read()

    def stop(self) -> None:
        if self._polled:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._polled = False

    async def line(self) -> str | None:
        """The next line without its newline; None at the end of input, again and again."""
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
        return line

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:  # the terminal hung up
            data = b""
        text = self._rest + self._decoder.decode(data, final=not data)
        *whole, self._rest = text.split("\n")
        for line in whole:
            self._lines.put_nowait(line.removesuffix("\r"))
        if not data:
            self._end()

    def _end(self) -> None:
        self._ended = True
        self.stop()
        if self._rest:
            self._lines.put_nowait(self._rest)
            self._rest = ""
        self._lines.put_nowait(None)
