"""Codex's own transcript of a thread: a file of JSON lines, the rollout.

Its lines are numbered from 0 without a gap, over all processes that wrote them (measured with 0.163). Codex
itself resumes a thread with damaged or missing lines without a word, as long as the first line is whole: it
is here that such damage is noticed. A torn last line is none: codex ends it, and numbers the next line as if
it had not been there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from outlast.agents.codex.wire import decode
from outlast.agents.transcript import Transcript, open_regular
from outlast.agents.turnwise import places


class _Line(msgspec.Struct, frozen=True):
    type: str
    ordinal: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")


class _Meta(msgspec.Struct, frozen=True):
    id: str


class _Item(msgspec.Struct, frozen=True):
    type: str = ""
    client_id: str | None = None


class _Passed(msgspec.Struct, frozen=True):
    content_item_kinds: tuple[str, ...] = ()


class _Payload(msgspec.Struct, frozen=True):
    type: str = ""
    role: str = ""
    item: _Item = _Item()
    internal_chat_message_metadata_passthrough: _Passed | None = None


def codex_home(environ: Mapping[str, str]) -> Path:
    """Where codex keeps its files, given the environment that it runs in."""
    said = environ.get("CODEX_HOME")
    return Path(said) if said else Path(environ.get("HOME") or Path.home()) / ".codex"


def find_rollout(home: Path, thread: str) -> Path | None:
    """The thread's rollout, also an archived one; the newest where there are several. None: there is
    none. It may be no regular file, where there is no other."""
    if not thread or not all(sign.isalnum() or sign == "-" for sign in thread):
        return None
    found = [
        path
        for folder in ("sessions", "archived_sessions")
        for path in (home / folder).rglob(f"rollout-*-{thread}.jsonl")
    ]
    return max(found, key=lambda path: (path.is_file(), path), default=None)


def read_rollout(path: Path, thread: str) -> Transcript:
    """What the rollout holds. Raises OSError."""
    reading = _Reading(thread)
    with open_regular(path) as lines:
        reading.read(lines)
    return Transcript(path, frozenset(reading.keys), loose=reading.ends_loose, damage=reading.damage)


class _Reading:
    """One pass over the lines of a rollout."""

    def __init__(self, thread: str) -> None:
        self.keys: set[str] = set()
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
        for number, data in enumerate(lines, 1):
            line = decode(data, _Line)
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
        return "" if meta.id == self._thread else f"it is the transcript of another thread, {meta.id}"

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
            if payload.item.type == "UserMessage":
                self._loose = False
                if payload.item.client_id:
                    self.keys.add(payload.item.client_id)
        elif payload.role == "user":
            passed = payload.internal_chat_message_metadata_passthrough
            kinds = passed.content_item_kinds if passed is not None else ("user.",)
            self._loose = self._loose or any(kind.startswith("user.") for kind in kinds)
