"""What callers in Python hand over, looked at before anything is done with it.

Each function gives the value back as it is used from there on. Raises UsageError for one of the wrong kind,
and for an empty one in the place of one that is left out; InputError for text that cannot be stored.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from outlast.agents.contract import Agent
from outlast.errors import UsageError
from outlast.ids import check_label, new_id
from outlast.records.codec import check_text
from outlast.records.types import Content
from outlast.runtime.home import absolute
from outlast.runtime.images import check_block

T = TypeVar("T")


def text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, what, "text")
    return check_text(str.__str__(value), what=what)  # of a type of the caller's own, a plain one


def words(value: object, what: str) -> str:
    """Text that is not empty."""
    found = text(value, what)
    if not found:
        raise UsageError(f"the {what} is empty", hint=f"leave the {what} out where none is meant")
    return found


def label(value: object, what: str) -> str:
    """A session's or a request's id."""
    return check_label(text(value, what), what=what)


def session_id(value: object) -> str:
    return label(value, "session id")


def session_or_new(value: object) -> str:
    """None is a new session's."""
    return new_id() if value is None else session_id(value)


def given(check: Callable[[object, str], T], value: object, what: str) -> T | None:
    """None where it was left out."""
    return None if value is None else check(value, what)


def number(value: object, what: str) -> float:
    """Of seconds, or of a record."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, what, "a number")
    if math.isnan(value) or value < 0:
        raise UsageError(f"the {what} is {value}", hint="give a number from 0 on")
    return value


def place(value: object) -> int:
    """In a journal: a record's number, 0 before the first."""
    if not isinstance(value, int):
        raise _wrong(value, "place in the journal (after)", "a whole number")
    return int(number(value, "place in the journal (after)"))


def folder(value: object) -> str | None:
    """A workspace as it is kept."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise _wrong(value, "workspace", "a path")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise _wrong(path, "workspace", "a path of text")
    if not path:
        raise UsageError("the workspace is empty", hint="leave it out to work in the current folder")
    return absolute(path)


def labels(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(value, "labels", "a dict of text by text")
    return {text(key, "name of a label"): text(each, "value of a label") for key, each in value.items()}


def blocks(value: object) -> list[Content]:
    """An input as its blocks."""
    if isinstance(value, str):
        return [Content(text=text(value, "text"))]
    if isinstance(value, bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise _wrong(value, "input", "text, or blocks of it", "an image is made with outlast.image")
    found = list(value)
    for block in found:
        if not isinstance(block, Content) or not isinstance(block.text, str):
            kind = "a block of text" if isinstance(block, Content) else "a block of the input"
            raise _wrong(block, kind, "an outlast.Content with text", "as in [outlast.Content(text=…)]")
        check_block(block)
    if not found:
        raise UsageError("the input is empty", hint="give some text")
    return found


def agents_by_name(value: object) -> dict[str, Agent]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(value, "agents", "a dict of agents by their names")
    for name, agent in value.items():
        words(name, "name of an agent")
        if not hasattr(agent, "capabilities"):
            raise _wrong(agent, f"agent {name}", "an agent", "as in agents={'mine': Command(['./agent'])}")
    return dict(value)


def _wrong(value: object, what: str, wanted: str, hint: str | None = None) -> UsageError:
    return UsageError(f"the {what} has to be {wanted}, and is of type {type(value).__name__}", hint=hint)
