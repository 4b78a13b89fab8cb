"""Claude Code's own transcript of a session: a file of JSON lines, filed under the folder that it works in.

It is appended to some hundredths of a second after the fact: the model may have been asked, and a command may
run, before a line of that is there (measured). So what it lacks proves nothing, and what it holds proves that
the program knows of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from outlast.agents.transcript import open_regular

_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9]")
_NAME_LIMIT = 200
"""Characters of a folder's name after which Claude Code shortens it and adds a sum that it alone makes."""
_BITE = 1024 * 1024
_BETWEEN = tuple(bytes([byte]) for byte in b" \t\r\n\"'\\()[]{}<>,;")
"""What ends a word: an id is none of these."""
_WORD = re.compile(rb"[^ \t\r\n\"'\\()\[\]{}<>,;]+")


def claude_home(environ: Mapping[str, str]) -> Path:
    """Where Claude Code keeps its files, given the environment that it runs in. What is named without a slash
    at its beginning is below the folder that this process is in; Claude Code, which runs in another, is given
    the whole."""
    said = environ.get("CLAUDE_CONFIG_DIR")
    return Path(said).absolute() if said else Path(environ.get("HOME") or Path.home()) / ".claude"


def find_transcript(home: Path, workspace: str, session: str) -> Path | None:
    """The session's transcript: the one of this workspace, else the newest of another. None: there is none,
    or it can't be looked for. It may be no regular file, where there is no other."""
    if not session or _NOT_PLAIN.sub("", session) != session.replace("-", ""):
        return None
    try:
        found = _written((home / "projects").glob(f"*/{session}.jsonl"))
    except OSError:
        return None
    own = {path: written for path, written in found.items() if is_folder_of(path.parent.name, workspace)}
    among = own or found
    return max(among, key=lambda path: among[path], default=None)


def _written(paths: Iterable[Path]) -> dict[Path, tuple[bool, float]]:
    """Those that are there, with whether they are files, and when they were written last. One that goes
    while it is looked at hides no other. Raises OSError."""
    found: dict[Path, tuple[bool, float]] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = path.is_file(), path.lstat().st_mtime
    return found


def folder_name(workspace: str) -> str | None:
    """The name of the folder under which Claude Code files the sessions of `workspace`; None where that is
    too long to be known."""
    plain = _NOT_PLAIN.sub("-", workspace)
    return plain if len(plain) <= _NAME_LIMIT else None


def is_folder_of(name: str, workspace: str) -> bool:
    """Whether Claude Code files the sessions of `workspace` under a folder of this name."""
    known = folder_name(workspace)
    if known is not None:
        return name == known
    return name.startswith(f"{_NOT_PLAIN.sub('-', workspace)[:_NAME_LIMIT]}-")


def unmentioned(path: Path, words: Iterable[str]) -> frozenset[str]:
    """Of these words those that stand nowhere in the transcript, nor in those of the session's subagents,
    which Claude Code keeps in files of their own (measured with 2.1.332). A part of a longer word is no
    mention: ids may count. Raises OSError."""
    left = {word.encode(): word for word in words}
    longest = max(map(len, left), default=0)
    _strike_out(left, path, longest)
    for one in sorted((path.parent / path.stem / "subagents").rglob("agent-*.jsonl")):
        with suppress(FileNotFoundError):  # It was there a moment ago, and mentions nothing any more.
            _strike_out(left, one, longest)
    return frozenset(left.values())


def _strike_out(left: dict[bytes, str], path: Path, longest: int) -> None:
    """Take those words out of `left` that stand in the file. Raises OSError."""
    if not left:
        return
    with open_regular(path) as file:
        for piece in _whole_words(file, longest):
            for data in left.keys() & _WORD.findall(piece):
                del left[data]


def _whole_words(file: BinaryIO, longest: int) -> Iterator[bytes]:
    """The file in pieces that cut no word; of one that is longer than `longest` bytes only so much that it
    still is."""
    begun = b""
    while bite := file.read(_BITE):
        data = begun + bite
        end = max(map(data.rfind, _BETWEEN)) + 1
        yield data[:end]
        begun = data[end:][-longest - 1 :]
    yield begun
