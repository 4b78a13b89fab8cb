"""Writing to people and to pipes, either of which may go away in the middle."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from io import TextIOWrapper
from typing import TextIO

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ENXIO)
"""The reader closed the pipe, or the terminal hung up."""

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"

_CONTROLS = (*range(32), *range(127, 160))
_UNSEEN = (
    # Soft hyphen, Arabic letter mark, Hangul fillers, Mongolian vowel separator, zero-width space.
    *(0xAD, 0x61C, 0x115F, 0x1160, 0x180E, 0x200B),
    # What turns the direction of text, or separates its lines; invisible operators; filler; byte order mark.
    *(0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0x3164, 0xFEFF, 0xFFA0),
    # Annotations, notes of music, tags: letters that nobody sees.
    *(*range(0xFFF9, 0xFFFC), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE0080)),
)
_JOINED = (0x200C, 0x200D, *range(0xE0100, 0xE01F0))
"""The joiners and selectors of emoji and of scripts that are written with them."""


def _shown(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_VISIBLE: dict[int, str | None] = {code: _shown(code) for code in (*_CONTROLS, *_UNSEEN)}
_EXACT = _VISIBLE | {code: _shown(code) for code in _JOINED}
_VISIBLE |= {ord("\n"): "\n", ord("\t"): "\t", ord("\r"): None}


def visible(text: str) -> str:
    """The text with control characters, and characters that turn or hide others, shown and not obeyed: what
    an agent prints must not be able to move the cursor, retitle the terminal or forge a question. Letters and
    emoji stay joined."""
    return text.translate(_VISIBLE)


def exact(text: str) -> str:
    """One line of what a person is asked to decide, with every character in it that cannot be seen: nothing
    reads as what it is not."""
    return text.translate(_EXACT)


class Styled(str):
    """A line for a terminal: what was to be made visible in it has been."""

    __slots__ = ()


class Channel:
    """One output stream. It falls silent for good, without an error, when its reader has gone."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self.is_terminal = _is_terminal(stream)
        self.coloured = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self.gone = False
        self.at_line_start = True

    def write(self, text: str) -> None:
        if self.gone or not text:
            return
        try:
            self._stream.write(self._encodable(text))
            self._stream.flush()
        except (OSError, ValueError) as error:
            self.leave()
            if isinstance(error, OSError) and error.errno not in _GONE:
                from outlast.cli.failures import OutputError

                raise OutputError(
                    f"what was to be printed cannot be written: {error.strerror or error}",
                    hint="only that is missing; what was sent stays sent, `outlast ls` shows it",
                ) from error
            return
        self.at_line_start = text.endswith("\n")

    def line(self, text: str = "") -> None:
        """A line of its own, whatever was written before; nothing in it is obeyed."""
        self.raw_line(text if isinstance(text, Styled) else visible(text))

    def raw_line(self, text: str) -> None:
        """A line that a program reads."""
        self.write(f"{'' if self.at_line_start else chr(10)}{text}\n")

    def dim(self, text: str) -> Styled:
        return Styled(f"{_DIM}{visible(text)}{_PLAIN}" if self.coloured else visible(text))

    def bold(self, text: str) -> Styled:
        return Styled(f"{_BOLD}{visible(text)}{_PLAIN}" if self.coloured else visible(text))

    def leave(self) -> None:
        """Write nothing more."""
        if not self.gone:
            self.gone = True
            point_at_nothing(self._stream)

    def _encodable(self, text: str) -> str:
        encoding = self._stream.encoding or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)


class Screen:
    """Standard output and standard error of one invocation. Results go to the first; progress, questions
    and advice to the second, so that a pipe holds results only."""

    def __init__(self, environ: Mapping[str, str], *, as_json: bool = False) -> None:
        if as_json:
            speak_utf8(sys.stdout, sys.stderr)
        self.out = Channel(sys.stdout, environ)
        self.err = Channel(sys.stderr, environ)
        self.as_json = as_json

    def json_line(self, value: object) -> None:
        self.out.write(_json(value) + "\n")

    async def json_text_line(self, shape: object, field: str, pieces: AsyncIterator[str]) -> None:
        """`shape` as one line of JSON, whose empty text `field` becomes what the pieces are together, which
        may be more than fits into memory. Whoever is told to leave meanwhile leaves at the line's end."""
        await to_its_end(self._json_text_line(shape, field, pieces))

    async def _json_text_line(self, shape: object, field: str, pieces: AsyncIterator[str]) -> None:
        # Within a JSON text every quotation mark is escaped: this stands for the field and nothing else.
        head, _, tail = _json(shape).partition(f'"{field}":""')
        self.out.write(f'{head}"{field}":"')
        async for piece in pieces:
            if self.out.gone:
                return
            self.out.write(_json(piece)[1:-1])
        self.out.write(f'"{tail}\n')

    def err_json_line(self, value: object) -> None:
        self.err.raw_line(_json(value))

    def note(self, text: str) -> None:
        """One line of progress or advice; with `--json` a JSON line, so that all of stderr can be parsed.
        Nothing in it is obeyed."""
        if self.as_json:
            self.err_json_line({"notice": text})
            return
        if self.out.is_terminal and self.err.is_terminal and not self.out.at_line_start:
            self.out.write("\n")
        self.err.line(text)

    def hang_up(self) -> None:
        """The terminal is gone: what goes to it falls silent, files and pipes are still written."""
        for channel in (self.out, self.err):
            if channel.is_terminal:
                channel.leave()


async def to_its_end(work: Coroutine[object, object, None]) -> None:
    """Do the work; a cancellation meanwhile takes effect when it is done."""
    import asyncio

    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # whoever leaves is not told of it any more
        raise


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode("utf-8")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


def speak_utf8(*streams: TextIO) -> None:
    """JSON is UTF-8 whatever the locale: an old one's way of writing what it lacks is no JSON."""
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


def open_missing_streams() -> None:
    """Give a process that was started without standard streams (`>&-`) ones that lead nowhere. The next file
    that it opens would have their descriptor otherwise, and what is printed would go into it."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it is the lowest that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def reader_gone(stream: TextIO) -> bool:
    """Whether nobody can read any more what is written to a pipe."""
    import select

    poll = select.poll()
    try:
        poll.register(stream, 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return True


def point_at_nothing(stream: TextIO) -> None:
    """Let the stream's descriptor lead nowhere, so that what is still buffered is dropped instead of failing
    at exit."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
