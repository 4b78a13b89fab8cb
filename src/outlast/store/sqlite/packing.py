"""How a record is laid down in its table, and found again exactly as it was.

The contract's `Row` and the chain over it know nothing of this. A packed value is a BLOB where the value
would be TEXT, so that neither can be taken for the other, and any row may hold values as they are:

- `type`: one byte, its place in TYPES; with CUT set, the body is kept as what its type's form leaves open.
- `loop`, `turn`, `cause`: the 16 bytes of a UUID. Of a `loop` or `turn` also one to eight bytes: the number
  of an earlier record of the journal that holds it. Of a `cause` also nothing: it is the turn.

An earlier record is one of the same owner, at most REACH records before: damage to it takes no more with it.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, cast

from outlast.store.contract import Row

Value = str | int | bytes | float | None

TYPES = (
    *("Fence", "JournalRepaired", "SessionStarted", "SessionStopped", "RestoreStarted", "RestoreDone"),
    *("RestoreErrored", "LoopStarted", "LoopChanged", "AgentSessionChanged", "InputAccepted"),
    *("InputReturned", "InputJoined", "InputCancelled", "CommandSettled", "TurnStarted"),
    *("TurnAttemptStarted", "InputReserved", "TurnAttached", "AgentEventRecorded", "CallObserved"),
    *("AgentStateFolded", "TurnDone", "TurnFailed", "TurnInterrupted", "TurnParked", "TurnRetried"),
    *("ReplyInterrupted", "GatePrepared", "GateOpened", "GateResolved"),
    *("AgentStateCaptured", "AgentStateRestored", "AgentSessionDecided"),
    *("HostDone", "EffectIntended", "EffectDispatched", "EffectSettled", "TurnResumed"),
)
"""Part of the stored format: their order stays. A type that is not here is stored by its name; to add one is
a new schema version."""

FORMS = {
    "InputAccepted": '{"request_id":"@","content":[{"type":"text","text":"*',
    "TurnStarted": '{"index":#,"request_id":"@","settings":{"agent":"$","model":"$"}}',
    "TurnAttemptStarted": (
        '{"attempt":#,"folder":"$","generation":"$","machine":"$","boot_id":"$","processes":['
        '{"role":"guard","pid":#,"start_ticks":#},{"role":"shim","pid":#,"start_ticks":#}]}'
    ),
    "InputReserved": '{"generation":"gen-#","seq":#,"key":"@","digest":"$"}',
    "AgentEventRecorded": '{"kind":"message","text":"*',
    "AgentStateFolded": '{"generation":"gen-#","offset":#,"stdout":#,"last_input":#,"state":"="}',
    "TurnDone": '{"stop_reason":"end_turn"*',
}
"""Bodies as the codec writes most of them: `#` stands for digits, `$` for plain text, `@` for the row's turn,
or where it has none, its cause; at the end `*` for the rest, `=` for base64, of which the bytes are kept.
Part of the stored format: they stay. A body of another form is kept whole."""
_REFERRING = "TurnAttemptStarted"
"""What is left open here may be as in an earlier record: it begins with the distance to that, or 0."""

CUT = 0x80
REACH = 128
"""Records."""

_BETWEEN = b"\0"
"""Between the parts of a cut body; only the last part can hold one itself."""
_SAME = b"\1"
"""In the place of a part: it is as in the earlier record."""


class PackingError(ValueError):
    """A stored value is none that was ever laid down."""


# --- ids ---------------------------------------------------------------------------------------


def packed_id(text: str) -> str | bytes:
    """16 bytes for a UUID in its usual lower-case form; every other text as it is."""
    if len(text) == 36 and text.isascii():
        try:
            data = bytes.fromhex(text.replace("-", ""))
        except ValueError:
            return text
        if len(data) == 16 and _uuid_text(data) == text:
            return data
    return text


def unpacked_id(value: str | bytes) -> str:
    """Raises PackingError."""
    if isinstance(value, bytes):
        if len(value) != 16:
            raise PackingError(f"an id has {len(value)} bytes")
        return _uuid_text(value)
    return value


def _uuid_text(data: bytes) -> str:
    h = data.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


# --- types and their forms ---------------------------------------------------------------------

_TEXT = rb'([^"\\\x00-\x1f]*)'
_PATTERNS = {"#": rb"(\d+)", "$": _TEXT, "@": _TEXT, "*": rb"(.*)", "=": rb"([A-Za-z0-9+/]*=*)"}


class _Kind(NamedTuple):
    """A record type, and what is known of its bodies."""

    name: str
    code: bytes
    cut: bytes
    """The code of a row whose body is cut."""
    head: bytes
    """All that a body leaves out, where that is its beginning alone."""
    whole: bytes
    """The format of a body, one `%b` for each part."""
    id_at: int
    """Which part is the row's id; -1 for none."""
    kept: int
    """Parts that are kept: all but the id."""
    refers: bool
    has_base64: bool
    """Its last part."""


def _pieces(name: str) -> list[str]:
    """Of the type's form: what stands between the marks, and each mark."""
    return re.split(r"([#$@*=])", FORMS.get(name, ""))


def _kind(number: int, name: str) -> _Kind:
    pieces = _pieces(name)
    marks = pieces[1::2]
    return _Kind(
        name,
        bytes([number]),
        bytes([number | CUT]),
        pieces[0].encode() if marks == ["*"] else b"",
        b"".join(b"%b" if piece in _PATTERNS else piece.encode() for piece in pieces),
        marks.index("@") if "@" in marks else -1,
        len(marks) - ("@" in marks),
        name == _REFERRING,
        "=" in marks,
    )


@cache  # compiled by who writes: `outlast ls` starts without
def _fits(name: str) -> Callable[[bytes], re.Match[bytes] | None]:
    pattern = b"".join(_PATTERNS.get(piece) or re.escape(piece.encode()) for piece in _pieces(name))
    return re.compile(pattern, re.DOTALL).fullmatch


class _Stored(dict[object, tuple[str, bytes, _Kind | None]]):
    """By what is stored as a row's type: its name; and where the body is cut, its head, or its kind."""

    def __missing__(self, value: object) -> tuple[str, bytes, None]:
        if isinstance(value, bytes):
            raise PackingError(f"there is no record type {value.hex()}")
        return cast(str, value), b"", None


_KINDS = {name: _kind(number, name) for number, name in enumerate(TYPES)}
_STORED = _Stored({kind.code: (name, b"", None) for name, kind in _KINDS.items()})
_STORED.update({kind.cut: (name, kind.head, kind) for name, kind in _KINDS.items() if name in FORMS})


# --- laying down -------------------------------------------------------------------------------


@dataclass(slots=True)
class Earlier:
    """What stands in full in the last records of a journal, and where; of the owner that wrote them."""

    epoch: int
    loop: str | None = None
    loop_seq: int = 0
    loop_number: bytes = b""
    """Of the record, as it is stored."""
    turn: str | None = None
    turn_seq: int = 0
    turn_number: bytes = b""
    attempt: Sequence[bytes] = ()
    """The parts of its body."""
    attempt_seq: int = 0


def packed(s: int, row: Row, earlier: Earlier) -> tuple[Value, ...]:
    """The values of the columns of `record`, in the order of "s" and RECORD_COLUMNS. What `row` holds in full
    is noted in `earlier`."""
    seq, epoch, id_, at, type_, v, loop, turn, cause, actor, cursor, body, chain = row
    code: Value = type_
    kind = _KINDS.get(type_)
    if kind is not None:
        code = kind.code
        if kind.head:
            if body.startswith(kind.head):
                code, body = kind.cut, body[len(kind.head) :]
        elif kind.kept and (rest := _rest(row, kind, earlier)) is not None:
            code, body = kind.cut, rest
    kept_loop: Value = loop
    if loop is not None:
        if loop == earlier.loop and seq - earlier.loop_seq <= REACH:
            kept_loop = earlier.loop_number
        elif isinstance(kept_loop := packed_id(loop), bytes):
            earlier.loop, earlier.loop_seq, earlier.loop_number = loop, seq, _number(seq)
    kept_turn: Value = turn
    if turn is not None:
        if turn == earlier.turn and seq - earlier.turn_seq <= REACH:
            kept_turn = earlier.turn_number
        elif isinstance(kept_turn := packed_id(turn), bytes):
            earlier.turn, earlier.turn_seq, earlier.turn_number = turn, seq, _number(seq)
    kept_cause: Value = cause
    if cause is not None:
        kept_cause = b"" if cause == turn else packed_id(cause)
    return s, seq, epoch, id_, at, code, v, kept_loop, kept_turn, kept_cause, actor, cursor, body, chain


def _bytes(base64: bytes) -> bytes | None:
    """None where base64 would be written otherwise."""
    try:
        data = a2b_base64(base64)
    except ValueError:
        return None
    return data if b2a_base64(data, newline=False) == base64 else None


def _number(seq: int) -> bytes:
    return seq.to_bytes((seq.bit_length() + 7) // 8, "big")


def _rest(row: Row, kind: _Kind, earlier: Earlier) -> bytes | None:
    """What is kept of the body; None where it has not the form."""
    found = _fits(kind.name)(row.body)
    if found is None:
        return None
    parts: list[bytes] = list(found.groups())
    if kind.id_at >= 0 and parts.pop(kind.id_at) != (row.turn or row.cause or "").encode():
        return None
    if kind.has_base64:
        data = _bytes(parts[-1])
        if data is None:
            return None
        parts[-1] = data
    if not kind.refers:
        return _BETWEEN.join(parts)
    distance = row.seq - earlier.attempt_seq
    if earlier.attempt and distance <= REACH:
        pairs = zip(parts, earlier.attempt, strict=True)
        return bytes([distance]) + _BETWEEN.join([_SAME if p == same else p for p, same in pairs])
    earlier.attempt, earlier.attempt_seq = parts, row.seq
    return bytes([0]) + _BETWEEN.join(parts)


# --- finding again -----------------------------------------------------------------------------

Columns = Sequence[Any]
"""As they are stored: where the file is damaged, anything."""
Find = Callable[[int], Columns | None]
"""The columns FOUND of a record of the journal, by its number."""
FOUND = "type, loop, turn, body"


def unpacking(rows: list[Row], find: Find) -> Callable[[Columns], Row]:
    """A function that gives the row that was laid down as these values, in the order of RECORD_COLUMNS; once
    for each record that is read, so what is frequent is short. `rows` is the page so far: what it gave, one
    after the other. It raises PackingError."""
    page = _Page(rows, find)
    loops, turns = _Ids(page, "loop"), _Ids(page, "turn")
    stored, new = _STORED, tuple.__new__

    def unpacked(values: Columns) -> Row:
        seq, epoch, id_, at, type_, v, loop, turn, cause, actor, cursor, body, chain = values
        turn = turns[turn]
        if cause is not None:
            cause = turn if cause == b"" else turns[cause]
        name, head, kind = stored[type_]
        if kind is not None:
            if body.__class__ is not bytes:
                raise PackingError("its body is no bytes")
            body = head + body if head else _body(kind, turn or cause, body, page.parts, seq)
        return new(Row, (seq, epoch, id_, at, name, v, loops[loop], turn, cause, actor, cursor, body, chain))

    return unpacked


@dataclass(frozen=True, slots=True)
class _Page:
    rows: list[Row]
    find: Find

    def among(self, seq: int) -> Row | None:
        place = seq - self.rows[0].seq if self.rows else -1
        row = self.rows[place] if 0 <= place < len(self.rows) else None
        return row if row is not None and row.seq == seq else None

    def parts(self, seq: int) -> Sequence[bytes]:
        """Of the body of an earlier record."""
        kind = _KINDS[_REFERRING]
        row = self.among(seq)
        body = b""
        found = self.find(seq) if row is None else None
        if row is not None:
            body = row.body
        elif found is not None and found[0] == kind.cut and isinstance(found[3], bytes):
            body = _body(kind, None, found[3], self.parts, seq)
        parts = _fits(kind.name)(body)
        if parts is None:
            raise _nowhere(seq, gone=row is None and found is None)
        return parts.groups()


class _Ids(dict[object, Any]):
    """The values of one column, by what is stored."""

    def __init__(self, page: _Page, column: Literal["loop", "turn"]) -> None:
        super().__init__({None: None})
        self._page = page
        self._place = Row._fields.index(column)
        self._found = 1 if column == "loop" else 2

    def __missing__(self, value: object) -> Any:
        if not isinstance(value, bytes):
            return value
        self[value] = text = self._text(value)
        return text

    def _text(self, value: bytes) -> Any:
        before = 1 << 63
        while len(value) != 16:
            # From a damaged number it may be a reference again. Each goes further back, so that this ends.
            seq = int.from_bytes(value, "big")
            row = self._page.among(seq)
            if row is not None:
                return row[self._place]
            found = self._page.find(seq) if 0 < seq < before else None
            value = b"" if found is None else found[self._found]
            if not isinstance(value, bytes) or not value:
                raise _nowhere(seq, gone=found is None)
            before = seq
        return _uuid_text(value)


def _nowhere(seq: int, *, gone: bool) -> PackingError:
    why = "is missing" if gone else "does not hold what it should"
    return PackingError(f"it refers to record {seq}, which {why}")


def _body(
    kind: _Kind, id_: object, rest: bytes, earlier: Callable[[int], Sequence[bytes]], seq: int
) -> bytes:
    """The body of which `rest` was kept, in the record `seq`."""
    kept = kind.kept
    if kept == 1:
        parts = [rest]
    elif kind.refers:
        parts = rest[1:].split(_BETWEEN)
        if rest and rest[0]:
            pairs = zip(parts, earlier(seq - rest[0]), strict=False)
            parts = [same if part == _SAME else part for part, same in pairs]
    else:
        parts = rest.split(_BETWEEN, kept - 1)
    if len(parts) != kept:
        raise PackingError(f"its body has {len(parts)} parts instead of {kept}")
    if kind.has_base64:
        parts[-1] = b2a_base64(parts[-1], newline=False)
    if kind.id_at >= 0:
        parts.insert(kind.id_at, id_.encode() if isinstance(id_, str) else b"")
    return kind.whole % tuple(parts)
