"""What the demo prints: plain lines one after another, with colours on a terminal that wants them.

Nothing is ever moved or overwritten, so a pipe, a log and a terminal show the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Literal, TextIO

from outlast.clock import monotonic
from outlast.demo.proof import Proof

Kind = Literal["command", "fact", "kill", "good", "bad"]

_PLAIN, _BOLD, _DIM, _RED, _GREEN, _CYAN = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m"
_COLOURS: Mapping[Kind, str] = {
    "command": _CYAN,
    "fact": "",
    "kill": _BOLD + _RED,
    "good": _GREEN,
    "bad": _BOLD + _RED,
}
_SIGNS: Mapping[Kind, str] = {"command": "$", "fact": "·", "kill": "✗", "good": "✓", "bad": "✗"}
_ASCII: Mapping[str, str] = {
    "·": "-",
    "✗": "x",
    "✓": "+",
    "■": "#",
    "□": ".",
    "…": "...",
    "—": "-",
    "→": "->",
}
NARROWEST, WIDEST, UNKNOWN_WIDTH = 40, 100, 80
INDENT = 10


@dataclass
class Screen:
    """Writes to `stream`. Raises BrokenPipeError when its reader has gone."""

    stream: TextIO
    environ: Mapping[str, str]

    def __post_init__(self) -> None:
        self._began = monotonic()
        terminal = self.stream.isatty()
        self._coloured = (
            terminal and not self.environ.get("NO_COLOR") and self.environ.get("TERM", "dumb") != "dumb"
        )
        columns = get_terminal_size((UNKNOWN_WIDTH, 24)).columns if terminal else UNKNOWN_WIDTH
        self._width = max(NARROWEST, min(WIDEST, columns))
        self._ascii = not _can_say(self.stream, "".join(_ASCII))

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return monotonic() - self._began

    def title(self, text: str) -> None:
        self._write(self._painted(text, _BOLD))

    def paragraph(self, text: str) -> None:
        for line in textwrap.wrap(text, min(self._width, 84)):
            self._write(line)
        self._write("")

    def rung(self, number: int, name: str, promise: str) -> None:
        """The head of one rung of the ladder."""
        head = f"{number}  {name}"
        if len(head) + 2 + len(promise) > self._width:
            self._write("", self._painted(head, _BOLD), f"   {promise}")
        else:
            self._write("", f"{self._painted(head, _BOLD)}  {promise}")

    def command(self, command: str, note: str, *, kind: Kind = "command") -> None:
        """A command that was just given, and to what."""
        typed = self._painted(f"{_SIGNS[kind]} {command}", _COLOURS[kind])
        self._write(f"{self._time()} {typed}   {note}")

    def line(self, kind: Kind, text: str, *, bar: str = "") -> None:
        """Something that has just happened; `bar` stands at the right where there is room."""
        lines = textwrap.wrap(text, self._width - INDENT, break_long_words=False) or [""]
        if bar:
            room = min(self._width, 84) - INDENT - len(lines[-1]) - len(bar)
            lines[-1] += " " * max(2, room) + bar
        first, *rest = lines
        colour = _COLOURS[kind]
        self._write(f"{self._time()} {self._painted(_SIGNS[kind], colour)} {self._painted(first, colour)}")
        for more in rest:
            self._write(" " * INDENT + self._painted(more, colour))

    def proof(self, proof: Proof, found_in: str) -> None:
        """The table of turns and the list of checks."""
        self._write("", f"{self._painted('The proof', _BOLD)}, {found_in}", "")
        self._write(self._painted("  turn    ended        steps   done once   doubled", _DIM))
        for turn in proof.turns:
            counts = f"{turn.asked:>5}   {turn.once:>9}   {turn.more:>7}"
            self._write(f"  {turn.turn:<7} {turn.ended:<11}  {counts}   {turn.note}".rstrip())
        self._write("")
        width = max(len(check.name) for check in proof.checks)
        for check in proof.checks:
            kind: Kind = "bad" if check.wrong else "good"
            sign = self._painted(_SIGNS[kind], _COLOURS[kind])
            count = self._painted(f"{check.wrong:>2}", _COLOURS[kind])
            room = self._width - width - 10
            first, *rest = textwrap.wrap(check.detail, max(20, room)) or [""]
            self._write(f"  {sign} {check.name:<{width}} {count}   {first}")
            for more in rest:
                self._write(" " * (width + 10) + more)

    def verdict(self, good: bool, text: str) -> None:
        kind: Kind = "good" if good else "bad"
        self._write("", self._painted(text, _BOLD + _COLOURS[kind]))

    def plain(self, *lines: str) -> None:
        self._write(*lines)

    def _time(self) -> str:
        return self._painted(f"{self.elapsed:5.1f} s", _DIM)

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._coloured and colour else text

    def _write(self, *lines: str) -> None:
        text = "".join(line + "\n" for line in lines)
        if self._ascii:
            for sign, plain in _ASCII.items():
                text = text.replace(sign, plain)
            encoding = self.stream.encoding or "ascii"
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        self.stream.write(text)
        self.stream.flush()


def bar(done: int, of: int) -> str:
    """Steps done, and those to come."""
    return "■" * done + "□" * (of - done)


def _can_say(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
