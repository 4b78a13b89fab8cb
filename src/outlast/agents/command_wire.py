"""Lines of the `Command` protocol, decoded strictly: a line that has not the shape is no line of it.

Unknown fields are ignored, so that a program may say more than this version reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from outlast.agents.peer import repair_surrogates
from outlast.records.types import Choice

COUNTS_LIMIT = 100
"""Names of counts that one turn may have."""
COUNT_MAX = 2**53 - 1
CHOICES_LIMIT = 100
RETRY_AFTER_MAX = 7 * 86_400.0

Name = Annotated[str, Meta(min_length=1, max_length=200)]
SessionName = Annotated[str, Meta(max_length=512, pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
Kind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
_KINDS: Mapping[str, Kind] = {
    "allow_once": "allow_once",
    "allow_always": "allow_always",
    "reject_once": "reject_once",
    "reject_always": "reject_always",
}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the agent says."""


class Signed(Said, frozen=True, kw_only=True):
    """What may have to prove that the agent itself says it."""

    nonce: str | None = None


class Session(Signed, frozen=True, kw_only=True):
    id: SessionName


class Text(Said, frozen=True, kw_only=True):
    text: str
    role: Literal["assistant", "thought"] = "assistant"


class Tool(Said, frozen=True, kw_only=True):
    id: Name
    status: Literal["started", "completed", "failed"]
    name: Annotated[str, Meta(max_length=1_000)] = ""
    input: msgspec.Raw = msgspec.Raw(b"")
    output: msgspec.Raw = msgspec.Raw(b"")


class ChoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    id: Name
    label: Annotated[str, Meta(max_length=2_000)] | None = None
    kind: Kind | None = None


class Gate(Signed, frozen=True, kw_only=True):
    id: Name
    question: str
    choices: Annotated[list[ChoiceLine | Name], Meta(min_length=1, max_length=CHOICES_LIMIT)]


class BrokenGate(Signed, frozen=True, kw_only=True):
    """A gate that nobody can be asked: whoever printed it would wait for an answer for ever."""

    why: str


class Counts(Said, frozen=True, kw_only=True):
    counts: dict[str, int]


class Done(Signed, frozen=True, kw_only=True):
    stop_reason: Name | None = None


class Error(Signed, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=200)] | Annotated[int, Meta(ge=-(10**9), le=10**9)] = ""
    message: str = ""
    retryable: bool | None = None
    retry_after: float | None = None
    """Seconds."""


class PromptLine(msgspec.Struct, frozen=True, kw_only=True):
    outlast: Literal[1]
    nonce: str
    turn: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["answer"]
    gate: str
    choice: str


@dataclass(frozen=True, slots=True)
class _Decoders:
    head: msgspec.json.Decoder[_Head]
    said: Mapping[str, msgspec.json.Decoder[Said]]
    counts: msgspec.json.Decoder[dict[str, msgspec.Raw]]
    prompt: msgspec.json.Decoder[PromptLine]
    answer: msgspec.json.Decoder[Answer]


class _Head(msgspec.Struct, frozen=True):
    type: str
    nonce: msgspec.Raw = msgspec.Raw(b"null")


_TYPES: Mapping[str, type[Said]] = {
    "session": Session,
    "message": Text,
    "tool": Tool,
    "gate": Gate,
    "done": Done,
    "error": Error,
}
_DECODERS = _Decoders(
    head=msgspec.json.Decoder(_Head),
    said={name: msgspec.json.Decoder(shape) for name, shape in _TYPES.items()},
    counts=msgspec.json.Decoder(dict[str, msgspec.Raw]),
    prompt=msgspec.json.Decoder(PromptLine),
    answer=msgspec.json.Decoder(Answer),
)
# RecursionError: what a line of ten thousand brackets ends in. Never a reason to lose the reader.
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def decode_output(line: bytes) -> Said | None:
    """What the agent says in this line, None when it is no line of the protocol."""
    line = repair_surrogates(line)
    try:
        head = _DECODERS.head.decode(line)
        if head.type == "usage":
            return _counts(_DECODERS.counts.decode(line))
        decoder = _DECODERS.said.get(head.type)
    except _UNREADABLE:
        return None
    try:
        return decoder.decode(line) if decoder else None
    except _UNREADABLE as error:
        return _broken_gate(head, error) if head.type == "gate" else None


def _broken_gate(head: _Head, error: Exception) -> BrokenGate | None:
    try:
        nonce = msgspec.json.decode(head.nonce, type=str | None)
    except _UNREADABLE:
        return None
    return BrokenGate(nonce=nonce, why=str(error) or type(error).__name__)


def beginning_of(head: bytes) -> dict[str, object] | None:
    """The fields of an object that are whole in the beginning of its line; None where it is no object's."""
    text, decoder = head.decode("utf-8", "replace").lstrip(), json.JSONDecoder()
    if not text.startswith("{"):
        return None
    fields: dict[str, object] = {}
    at = 1
    try:
        while True:
            name, at = decoder.raw_decode(text, _after(_BLANK, text, at))
            value, at = decoder.raw_decode(text, _after(_COLON, text, at))
            fields[str(name)] = value
            at = _after(_COMMA, text, at)
    except (ValueError, RecursionError):
        return fields


_BLANK = re.compile(r"\s*")
_COLON = re.compile(r"\s*:\s*")
_COMMA = re.compile(r"\s*,\s*")


def _after(what: re.Pattern[str], text: str, at: int) -> int:
    found = what.match(text, at)
    if found is None:
        raise ValueError(f"no {what.pattern} at {at}")
    return found.end()


def decode_input(line: bytes) -> PromptLine | Answer | None:
    """What outlast itself has written, None for any other line."""
    try:
        return _DECODERS.prompt.decode(line)
    except _UNREADABLE:
        pass
    try:
        return _DECODERS.answer.decode(line)
    except _UNREADABLE:
        return None


def choices_of(gate: Gate) -> tuple[Choice, ...] | None:
    """The gate's choices in full: a string is id, label and, where it is the name of one, kind. None when
    two have the same id."""
    choices = tuple(
        Choice(id=choice, label=choice, kind=_KINDS.get(choice))
        if isinstance(choice, str)
        else Choice(id=choice.id, label=choice.id if choice.label is None else choice.label, kind=choice.kind)
        for choice in gate.choices
    )
    return choices if len({choice.id for choice in choices}) == len(choices) else None


def pause_of(error: Error) -> float | None:
    """Seconds that the agent or its provider asks to be left alone, within reason."""
    if error.retry_after is None or error.retry_after < 0:
        return None
    return min(error.retry_after, RETRY_AFTER_MAX)


def text_of(value: msgspec.Raw) -> str:
    """A JSON value as text: a string as it is, null as nothing, anything else as JSON."""
    data = bytes(value)
    if data in (b"", b"null"):
        return ""
    if data.startswith(b'"'):
        try:
            return msgspec.json.decode(data, type=str)
        except _UNREADABLE:
            pass
    return data.decode("utf-8", "replace")


def _counts(fields: dict[str, msgspec.Raw]) -> Counts | None:
    """Each field that is a whole number; the others are not counted."""
    counts: dict[str, int] = {}
    for name, value in fields.items():
        data = bytes(value)
        if data.isdigit() and len(data) <= 16 and len(name) <= 100 and len(counts) < COUNTS_LIMIT:
            counts[name] = min(int(data), COUNT_MAX)
    return Counts(counts=counts) if counts else None
