"""Codex's own transcript of a thread: a file of JSON lines, the rollout.

Its lines are numbered from 0 without a gap, over all processes that wrote them (measured with 0.163). Codex
itself resumes a thread with damaged or missing lines without a word, as long as the first line is whole: it
is here that such damage is noticed. A torn last line is none: codex ends it, and numbers the next line as if
it had not been there.

Turns are taken back in two ways (measured with 0.163). `thread/revert` goes on in another file, whose head
names the one before and how much of that still counts, and whose lines are numbered on from there. Earlier
versions wrote a line that says how many turns count no more; it is still obeyed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from outlast.agents.shapes import decode
from outlast.agents.transcript import Transcript, open_regular
from outlast.agents.turnwise import places

FOLDERS = ("sessions", "archived_sessions")
"""In its home: where codex keeps rollouts."""
_ROLLED_BACK = b"thread_rolled_back"


class _Line(msgspec.Struct, frozen=True):
    type: str
    ordinal: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class _Base(msgspec.Struct, frozen=True):
    """What a file goes on from: all that begins before this byte of it."""

    thread_id: str
    end_byte_offset: int


class _Meta(msgspec.Struct, frozen=True):
    id: str
    history_base: _Base | None = None


class _Item(msgspec.Struct, frozen=True):
    type: str = ""
    client_id: str | None = None


class _Passed(msgspec.Struct, frozen=True):
    content_item_kinds: tuple[str, ...] = ()


class _Payload(msgspec.Struct, frozen=True):
    type: str = ""
    role: str = ""
    num_turns: int = 0
    item: _Item = _Item()
    internal_chat_message_metadata_passthrough: _Passed | None = None


def codex_home(environ: Mapping[str, str]) -> Path:
    """Where codex keeps its files, given the environment that it runs in. What is named without a slash at
    its beginning is below the folder that this process is in; codex, which runs in another, is given the
    whole."""
    said = environ.get("CODEX_HOME")
    return Path(said).absolute() if said else Path(environ.get("HOME") or Path.home()) / ".codex"


def sessions_home(home: Path) -> Path:
    """The folder that the home's sessions really lie in: one for all homes that link to the same."""
    real = Path(os.path.realpath(home / FOLDERS[0]))
    return real.parent if real.name == FOLDERS[0] else real


def find_rollout(home: Path, thread: str) -> Path | None:
    """The thread's rollout, also an archived one; the newest where there are several, such as after turns
    were taken back. None: there is none. It may be no regular file, where there is no other."""
    return _newest(home, thread, "rollout-*-{}.jsonl", "rollout-*-{}_*.jsonl")


def _newest(home: Path, name: str, *patterns: str) -> Path | None:
    if not name or not all(sign.isalnum() or sign == "-" for sign in name):
        return None
    found = [
        path
        for folder in FOLDERS
        for pattern in patterns
        for path in (home / folder).rglob(pattern.format(name))
    ]
    return max(found, key=lambda path: (path.is_file(), path.name, path), default=None)


def read_rollout(path: Path, thread: str) -> Transcript:
    """What the rollout holds, with what it goes on from. Raises OSError."""
    reading = newest = _read(path, thread)
    counts, cut, damage, seen = set(newest.keys), set(newest.beyond), newest.damage, {path}
    while reading.base is not None:
        before = _newest(home_of(path), reading.base.thread_id, "rollout-*-{}.jsonl", "rollout-*_{}.jsonl")
        if before is None or before in seen:
            damage = damage or "the file that it goes on from is not there"
            break
        seen.add(before)
        reading = _read(before, None, reading.base.end_byte_offset)
        counts |= reading.keys
        cut |= reading.beyond
        damage = damage or (f"in {before}, which it goes on from: {reading.damage}" if reading.damage else "")
    return Transcript(
        path,
        frozenset(counts | cut),
        loose=newest.ends_loose,
        damage=damage,
        taken_back=frozenset(cut - counts),
    )


def taken_back(path: Path, since: int) -> str:
    """What is said after byte `since` of the rollout of turns that were taken back, as a part of a sentence;
    empty where nothing is. Raises OSError."""
    with open_regular(path) as lines:
        first = None if since else decode(lines.readline(), _Line)
        meta = decode(first.payload, _Meta) if first is not None and first.type == "session_meta" else None
        if meta is not None and meta.history_base is not None:
            return "codex has taken turns back, and goes on in this file"
        lines.seek(since)
        for data in lines:
            line = decode(data, _Line) if _ROLLED_BACK in data else None
            said = decode(line.payload, _Payload) if line is not None and line.type == "event_msg" else None
            if said is not None and said.type == "thread_rolled_back":
                turns = "the newest turn" if said.num_turns == 1 else f"the newest {said.num_turns} turns"
                return f"codex has taken {turns} back"
    return ""


def home_of(rollout: Path) -> Path:
    """The home that a rollout is in; the folder of one that is in none."""
    inside = (parent.parent for parent in rollout.parents if parent.name in FOLDERS)
    return next(inside, rollout.parent)


def _read(path: Path, thread: str | None, until: int | None = None) -> _Reading:
    reading = _Reading(thread, until)
    with open_regular(path) as lines:
        reading.read(lines)
    return reading


class _Reading:
    """One pass over the lines of a rollout: of `thread` (None: of any), of which those that begin at the byte
    `until`, or after it, count no more."""

    def __init__(self, thread: str | None, until: int | None = None) -> None:
        self.keys: set[str] = set()
        self.beyond: set[str] = set()
        """Keys of prompts that count no more."""
        self.base: _Base | None = None
        self._prompts: list[str | None] = []
        """Keys of those that count, in their order."""
        self._until = until
        self._loose = False
        self._thread = thread
        self._first: str = "it is empty"
        self._next: int | None = None
        """The number that the next line must bear; None: lines bear none."""
        self._unread = 0
        """Lines that can't be read since the last one that can."""
        self._lost: list[str] = []

    @property
    def ends_loose(self) -> bool:
        """See `Transcript.loose`: what is torn at the end may have been the key."""
        return self._loose or self._unread > 0

    @property
    def damage(self) -> str:
        """See `Transcript.damage`."""
        if self._first:
            return self._first
        return places(self._lost)

    def read(self, lines: Iterable[bytes]) -> None:
        """Take in all lines."""
        offset = 0
        for number, data in enumerate(lines, 1):
            counts = self._until is None or offset < self._until
            offset += len(data)
            line = decode(data, _Line)
            if not counts:
                self._take_cut(line)
                continue
            if number == 1:
                self._first = self._fault_of_first(line)
            if line is None:
                self._unread += 1
                continue
            self._count(number, line.ordinal)
            self._take(line)

    def _fault_of_first(self, line: _Line | None) -> str:
        meta = decode(line.payload, _Meta) if line is not None and line.type == "session_meta" else None
        if meta is None:
            return "its first line is not the head of a thread"
        self.base = meta.history_base
        if self._thread is None or meta.id == self._thread:
            return ""
        return f"it is the transcript of another thread, {meta.id}"

    def _count(self, number: int, ordinal: int | None) -> None:
        unread, self._unread = self._unread, 0
        if ordinal is None:
            if unread and self._next is None:
                self._lost.append(f"line {number - 1} cannot be read")
            return
        # A line that was torn by a crash bears the number that the next one got again.
        if self._next is not None and ordinal != self._next:
            self._lost.append(f"before line {number} is number {self._next} missing: it has {ordinal}")
        self._next = ordinal + 1

    def _take(self, line: _Line) -> None:
        if line.type not in ("event_msg", "response_item"):
            return
        payload = decode(line.payload, _Payload)
        if payload is None:
            return
        if line.type == "event_msg":
            if payload.type == "thread_rolled_back":
                self._roll_back(payload.num_turns)
            elif payload.item.type == "UserMessage":
                self._loose = False
                self._prompts.append(payload.item.client_id)
                if payload.item.client_id:
                    self.keys.add(payload.item.client_id)
        elif payload.role == "user":
            passed = payload.internal_chat_message_metadata_passthrough
            kinds = passed.content_item_kinds if passed is not None else ("user.",)
            self._loose = self._loose or any(kind.startswith("user.") for kind in kinds)

    def _take_cut(self, line: _Line | None) -> None:
        payload = decode(line.payload, _Payload) if line is not None and line.type == "event_msg" else None
        if payload is not None and payload.item.type == "UserMessage" and payload.item.client_id:
            self.beyond.add(payload.item.client_id)

    def _roll_back(self, turns: int) -> None:
        """An input that joined a turn counts as one more here: what counts no more is rather one too few."""
        for _ in range(min(turns, len(self._prompts))):
            key = self._prompts.pop()
            if key is not None and key not in self._prompts:
                self.keys.discard(key)
                self.beyond.add(key)
