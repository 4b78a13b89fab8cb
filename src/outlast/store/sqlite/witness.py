"""The head witness: how long each journal was, kept outside the database.

One bad frame in SQLite's write-ahead log silently drops every later acknowledged commit, and the integrity
check of what is left says ok. So after each commit the new end of each journal goes into a file of slots
beside the database. It is written after the commit and without a flush: it can be behind, never ahead.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from outlast.errors import IntegrityError
from outlast.files import open_regular
from outlast.store.contract import Tip
from outlast.store.sqlite.layout import open_side_file

_SLOT = struct.Struct("<QQ16sII")
"""seq, epoch, chain, CRC-32 of what is before, unused."""
_HEADER = b"outlast witness 1\n"
_HEADER_SIZE = 4096


_ON_PURPOSE = (
    "`outlast repair` goes on from what is there; if a backup was put back on purpose:"
    " `outlast doctor --after-restore`"
)


class Witness:
    """Slot `s` belongs to the session of that number, which is never given out again in one store."""

    def __init__(self, path: Path, store: str, *, write: bool) -> None:
        self._file = open_side_file(path, write=write)
        self._title = _HEADER + store.encode()

    @property
    def is_ours(self) -> bool:
        """A witness of another store says nothing about this one."""
        return os.pread(self._file, len(self._title), 0) == self._title

    def begin_anew(self) -> None:
        """Forget everything. In place, for other processes have the file open; the caller holds the turn."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, self._title, 0)

    def write(self, tips: Iterable[tuple[int, Tip]]) -> None:
        """Note the ends of journals that were just committed; neighbouring slots take one write."""
        start, run, follows = 0, bytearray(), -1
        for s, tip in sorted(tips):
            if s != follows:
                self._put(start, run)
                start, run = s, bytearray()
            run += _packed(tip)
            follows = s + 1
        self._put(start, run)

    def _put(self, start: int, run: bytearray) -> None:
        if run:
            os.pwrite(self._file, run, _HEADER_SIZE + start * _SLOT.size)

    def read(self, s: int) -> Tip | None:
        """What was noted; None where nothing was, or where a power cut tore the slot."""
        if not self.is_ours:
            return None
        data = os.pread(self._file, _SLOT.size, _HEADER_SIZE + s * _SLOT.size)
        if len(data) < _SLOT.size:
            return None
        seq, epoch, chain, crc, _ = _SLOT.unpack(data)
        if seq == 0 or crc != zlib.crc32(data[:32]):
            return None
        return Tip(seq, epoch, chain)

    def slots(self) -> Iterator[tuple[int, Tip | None]]:
        """Every slot that something was written to, with what was noted; None where that cannot be read."""
        if not self.is_ours:
            return
        at = _HEADER_SIZE
        while data := os.pread(self._file, _SLOT.size * 1000, at):
            for start in range(0, len(data) - _SLOT.size + 1, _SLOT.size):
                if any(data[start : start + _SLOT.size]):
                    s = (at + start - _HEADER_SIZE) // _SLOT.size
                    yield s, self.read(s)
            at += len(data)
            if len(data) % _SLOT.size:
                return

    def next_free(self, s: int) -> int:
        """`s`, or the next number above it of which nothing is noted: a session that was lost with the end of
        the database must not lend its end to a new one."""
        if self.is_ours and os.pread(self._file, _SLOT.size, _HEADER_SIZE + s * _SLOT.size).strip(b"\0"):
            return max(s, (os.fstat(self._file).st_size - _HEADER_SIZE) // _SLOT.size + 1)
        return s

    def close(self) -> None:
        os.close(self._file)


def count_noted(path: Path) -> int:
    """How many journals a witness knows of, whatever store it belongs to; 0 where there is none."""
    try:
        with open_regular(path) as file:
            if file.read(len(_HEADER)) != _HEADER:
                return 0
            file.seek(_HEADER_SIZE)
            count = 0
            while data := file.read(_SLOT.size * 1000):
                starts = range(0, len(data), _SLOT.size)
                count += sum(any(data[start : start + _SLOT.size]) for start in starts)
            return count
    except OSError:
        return 0


def _packed(tip: Tip) -> bytes:
    body = _SLOT.pack(tip.seq, tip.epoch, tip.chain, 0, 0)[:32]
    return body + struct.pack("<II", zlib.crc32(body), 0)


def _in_slot(chain: bytes) -> bytes:
    return chain[:16].ljust(16, b"\0")


@dataclass(frozen=True, slots=True)
class Seen:
    """A journal as the database has it: its end, and the chain at the seq that the witness noted."""

    tip: Tip
    chain_at_noted: bytes | None


def compare(name: str, noted: Tip | None, seen: Seen) -> None:
    """Raises IntegrityError when the journal is shorter than it was, or another one."""
    if noted is None:
        return
    if seen.tip.seq < noted.seq:
        raise IntegrityError(
            f"the journal of {name} ends at record {seen.tip.seq}, but record {noted.seq} had been stored",
            seq=seen.tip.seq,
            reason=f"shorter than its witness: {seen.tip.seq} < {noted.seq}",
            noted=noted.seq,
            hint=f"records were lost under the database; {_ON_PURPOSE}",
            session_id=name,
        )
    if _in_slot(seen.chain_at_noted or b"") != noted.chain:
        raise IntegrityError(
            f"record {noted.seq} of the journal of {name} is not the one that had been stored",
            seq=noted.seq,
            reason="another chain than its witness",
            noted=noted.seq,
            hint=f"the database was replaced or changed; {_ON_PURPOSE}",
            session_id=name,
        )
